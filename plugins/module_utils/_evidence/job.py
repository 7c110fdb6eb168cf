# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on the engine of a slot that ends with a record, whatever becomes of it.

The unit runs `main(folder)` of its kind's module. The Ansible module makes the record, so work that was killed leaves
one too.
"""

from __future__ import annotations

import grp
import json
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .._slot.host.clock import SystemClock
from .._slot.host.effects import host_effects
from .._slot.kinds.table import kind_of
from .._slot.model.profile import Profile
from .._slot.model.recorded import excluded_by, unit_of
from .._slot.words.effects import Effects
from .._slot.words.types import Layout, SlotFault, layout_of
from .._work.decide import BEGIN, WorkState, on_begin
from .._work.folder import WorkError, WorkFolder
from .._work.protocol import Beginning, Job
from . import host_class
from .record import make
from .store import Store, StoreError

_LAYOUT = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")
_VERSION_S = 5.0
_LOOKS = ("shown", "stopped")  # the states that begin nothing


@dataclass(frozen=True)
class WorkOrder:
    """The order of a kind of work for its unit.

    :param given: what the unit and the record need, besides what all kinds have.
    :param limit_s: seconds after which systemd ends the unit. It ends by itself; this stops one that hangs.
    :param user: the unit's user; root if empty. Any other user may write only to the unit's own folder.
    :param secret: what the unit needs and nobody else may read; the unit then runs as root.
    """

    profile: Profile
    given: Mapping[str, Any]
    limit_s: int
    properties: Mapping[str, str]
    user: str = ""
    secret: str = ""


@dataclass(frozen=True)
class WorkOutcome:
    """The findings of a kind of work, for its record. The fields are those of `record.make`."""

    verdict: str
    reasons: list[str]
    engine: Mapping[str, str]
    data: Mapping[str, Any]
    canary: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SlotJob(Job):
    """One kind of work on the slot that a module's options name. Each kind implements the abstract methods."""

    kind: ClassVar[str]  # of its records; also names the folder and the unit

    @abstractmethod
    def asked(self, fx: Effects, layout: Layout) -> WorkOrder:
        """Return what to do; raise SlotFault or WorkError if it can't be done. Change nothing."""

    @abstractmethod
    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        """Return the progress in one line."""

    @abstractmethod
    def shown(self, found: WorkState) -> dict[str, Any]:
        """Return the kind's own keys in the result of its module."""

    @property
    def unit(self) -> str:
        return unit_of(self.kind, self.params["slot"])

    @property
    def folder(self) -> WorkFolder:
        return WorkFolder(Path(self.params["state_dir"], self.kind, self.params["slot"]))

    def allowed(self, words: str = "begins") -> tuple[WorkOrder, Layout]:
        """Return what to do and where; raise WorkError if other work must not run beside it, or it can't be done."""
        layout = layout_of(self.params)
        try:
            if why := excluded_by(self.kind, layout.slot, lambda unit: self.systemd.state(unit).running):
                raise SlotFault(why)
            return self.asked(host_effects(SystemClock()), layout), layout
        except SlotFault as fault:
            raise WorkError(f"no {self.noun} {words}: {fault.message}") from fault

    def begin(self) -> Beginning:
        asked, layout = self.allowed()
        profile, user = asked.profile, asked.user
        given = {
            "layout": {key: self.params[key] for key in _LAYOUT},
            "host_name": self.params["host_name"],
            "profile": profile.name,
            "fingerprint": profile.fingerprint,
            "stack": profile.stack.id,
            **asked.given,
        }
        group = _readers(layout) if user else ""
        return Beginning(
            given, self.task(asked.limit_s, user=user, group=group, properties=asked.properties), asked.secret
        )

    def answer(self, *, check_mode: bool) -> dict[str, Any]:
        """Return the result of the module."""
        where = self.folder.path
        try:
            found = self._done(check_mode)
        except StoreError as error:
            raise WorkError(f"the record of the {self.noun} can't be written: {error}") from error
        except (OSError, ValueError) as error:
            raise WorkError(
                f"the {self.noun} in {where} can't be read or written: {error}; put this right and run the same again"
            ) from error
        except (LookupError, TypeError) as error:
            raise WorkError(
                f"the {self.noun} in {where} has content that this version does not understand "
                f"({type(error).__name__}: {error}); remove {where} to give it up, and run the same again"
            ) from error
        line = self.line(found.given, found.seen) if found.given else f"no {self.noun} is under way"
        return {
            "changed": False,
            "state": found.state,
            "joined": found.joined,
            "waits": found.waits,
            "line": f"{line}; {found.seen['now'] or 'starting'}" if found.state == "running" else line,
            "profile": found.given.get("profile"),
            "began_at": found.given.get("began_at"),
            **self.shown(found),
            **{key: found.result.get(key) for key in ("verdict", "reasons", "record", "file")},
        }

    def _done(self, check_mode: bool) -> WorkState:
        step = self.params["step"]
        if self.params["state"] == "shown" or check_mode:
            found = self.look(write=not check_mode)
            if self.params["state"] in _LOOKS:
                return found
            other = bool(found.given) and bool(self.differs(found.given))
            # What a real run would not join is not its result.
            return WorkState("none") if on_begin(found, self.params["token"], other=other) == BEGIN else found
        if step == "acknowledge":
            return self.acknowledge()
        if self.params["state"] == "stopped":
            return self.stop()
        return self.start() if step == "start" else self.look()


@dataclass(frozen=True)
class RecordedJob(SlotJob):
    """Work whose record says also that it was killed."""

    @abstractmethod
    def finding(self, fx: Effects, layout: Layout, given: Mapping[str, Any], seen: Mapping[str, Any]) -> WorkOutcome:
        """Return the outcome of work that has ended."""

    def outcome(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        finding = self.finding(host_effects(SystemClock()), layout_of(given["layout"]), given, seen)
        try:
            record = make(
                self.kind,
                **{key: given[key] for key in ("profile", "fingerprint", "stack", "began_at")},
                **finding.__dict__,
                slot=given["layout"]["slot"],
                host={"name": given["host_name"], **host_class.look()},
                ended_at=seen["ended"]["at"],
            )
        except ValueError as error:
            raise WorkError(
                f"no record can be made of what the {self.noun} saw: {error}; remove {self.folder.path} to give it up"
            ) from error
        path = Store(self.params["records_dir"]).write(record)
        return {"record": record["id"], "file": str(path), "verdict": finding.verdict, "reasons": finding.reasons}


def _readers(layout: Layout) -> str:
    """Return the group that may read the slot's profiles, which a unit of another user than root needs."""
    return grp.getgrgid(os.stat(layout.profiles_dir).st_gid).gr_name


def asked_version(fx: Effects, profile: Profile) -> str:
    """Return the engine's answer where engines of its kind tell their version."""
    path, _key = kind_of(profile.engine.kind).version_at
    return fx.http.get(f"{profile.engine.backend_url}{path}", _VERSION_S).text


def engine_of(kind: str, version: str) -> dict[str, str]:
    """Return the engine of a record. version: the answer where engines of its kind tell their version."""
    try:
        return {"name": kind, "version": str(json.loads(version)[kind_of(kind).version_at[1]])}
    except (ValueError, LookupError, TypeError):
        return {"name": kind, "version": "unknown"}


@dataclass(frozen=True)
class Commission:
    """A unit's task, and what it works with."""

    work: WorkFolder
    given: Mapping[str, Any]
    fx: Effects
    layout: Layout


def commission(folder: str) -> Commission:
    """Return what the folder of a unit asks for. From here on, a signal raises ToldToEndFault in any wait."""
    work = WorkFolder(Path(folder))
    given = work.given()
    if given is None:
        raise WorkError(f"{folder} does not say what to do")
    clock = SystemClock()
    clock.heed_signals()
    return Commission(work, given, host_effects(clock), layout_of(given["layout"]))
