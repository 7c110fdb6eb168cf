# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a host that runs as a transient unit and ends with a record: begin or join it, look at it, make its record.

The unit runs `main(folder)` of its kind's module, and writes `out/seen.json` in the folder. The Ansible module writes
the rest of the folder and the record, so work that was killed leaves a record too.
"""

from __future__ import annotations

import grp
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from .. import _transient
from .._slot.host.clock import SystemClock
from .._slot.host.effects import host_effects
from .._slot.model.profile import Profile
from .._slot.model.recorded import excluded_by, unit_of
from .._slot.model.state_file import stamp
from .._slot.words.effects import Effects
from .._slot.words.types import Layout, SlotFault
from .._slot_module import layout_of
from .._switch_job import own_archive
from . import host_class
from .record import make
from .store import Store, StoreError
from .work import Work, WorkError

_LAYOUT = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")


@dataclass(frozen=True)
class Beginning:
    """What a unit is begun with.

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
class Finding:
    """What a kind of work has found, for its record. The fields are those of `record.make`."""

    verdict: str
    reasons: list[str]
    engine: Mapping[str, str]
    data: Mapping[str, Any]
    canary: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Found:
    """What one look finds. state: none, running or ended."""

    state: str
    line: str
    given: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    joined: bool = False


@dataclass(frozen=True)
class RecordedJob(ABC):
    """One kind of work on the slot that a module's options name. Each kind implements the abstract methods.

    For every kind, `seen` has `now` (what is being done) and `ended` (None, or how, why and at).
    """

    params: Mapping[str, Any]
    kind: ClassVar[str]  # of its records; also names the folder and the unit
    noun: ClassVar[str]
    systemd: ClassVar[_transient.Systemd]

    @abstractmethod
    def begin(self, fx: Effects, layout: Layout) -> Beginning:
        """Return what to do; raise SlotFault or WorkError if it can't be done. Change nothing."""

    @abstractmethod
    def nothing_seen(self) -> dict[str, Any]:
        """Return what a unit that has just begun has seen."""

    @abstractmethod
    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        """Return the progress in one line."""

    @abstractmethod
    def finding(self, fx: Effects, layout: Layout, given: Mapping[str, Any], seen: Mapping[str, Any]) -> Finding:
        """Return the outcome of work that has ended. The caller holds the folder."""

    @abstractmethod
    def shown(self, found: Found) -> dict[str, Any]:
        """Return the kind's own keys in the result of its module."""

    def refuse(self, found: Found) -> None:  # noqa: B027 (most kinds refuse nothing)
        """Raise WorkError if the work to be joined or collected is not what is asked for."""

    def exclude(self, layout: Layout) -> None:
        """Raise SlotFault if other work is under way that this must not run beside."""
        if why := excluded_by(self.kind, layout.slot, lambda unit: self.systemd.state(unit).running):
            raise SlotFault(why)

    @property
    def work(self) -> Work:
        slot = self.params["slot"]
        return Work(Path(self.params["state_dir"], self.kind, slot), unit_of(self.kind, slot))

    def answer(self, *, check_mode: bool) -> dict[str, Any]:
        """Return the result of the module."""
        try:
            found = self._done(check_mode)
        except StoreError as error:
            raise WorkError(f"the record of the {self.noun} can't be written: {error}") from error
        except (OSError, ValueError) as error:
            raise WorkError(
                f"the {self.noun} in {self.work.folder} can't be read or written: {error}; put this right and run the "
                "same again"
            ) from error
        except (LookupError, TypeError) as error:
            where = self.work.folder
            raise WorkError(
                f"the {self.noun} in {where} has content that this version does not understand "
                f"({type(error).__name__}: {error}); remove {where} to give it up, and run the same again"
            ) from error
        return {
            "changed": False,
            "state": found.state,
            "joined": found.joined,
            "waits": found.state == "running" or (found.state == "ended" and not self.work.told()),
            "line": found.line,
            "profile": found.given.get("profile"),
            "began_at": found.given.get("began_at"),
            **self.shown(found),
            **{key: found.result.get(key) for key in ("verdict", "reasons", "record", "file")},
        }

    def _done(self, check_mode: bool) -> Found:
        step = self.params["step"]
        if self.params["state"] == "shown" or check_mode:
            return self.look(write=not check_mode)
        if step == "acknowledge":
            return self.acknowledge()
        if self.params["state"] == "stopped":
            return self.stop()
        return self.start() if step == "start" else self.look()

    def start(self, archive: Path | None = None) -> Found:
        """Begin the work, join what is under way, or return a result that no play has been told yet.

        The same call may come twice if its answer was lost: its token shows what it has begun or was told.
        """
        work, token = self.work, self.params["token"]
        with work.alone():
            found = self._collect(work)
            if found.state == "running" or (found.state == "ended" and not work.told_to_another(token)):
                try:
                    self.refuse(found)
                except WorkError:
                    work.tell(found.result, token)
                    raise
                return replace(found, joined=not work.begun_by(token))
            self._begin(work, archive or own_archive())
        return self.look()

    def acknowledge(self) -> Found:
        """Note that a play has the result and can print it, so that the next play begins anew."""
        work = self.work
        with work.alone():
            found = self._collect(work)
            work.tell(found.result, self.params["token"])
        return found

    def _begin(self, work: Work, archive: Path) -> None:
        fx, layout = host_effects(SystemClock()), layout_of(self.params)
        try:
            self.exclude(layout)
            beginning = self.begin(fx, layout)
        except SlotFault as fault:
            raise WorkError(f"no {self.noun} begins: {fault.message}") from fault
        profile = beginning.profile
        given = {
            "layout": {key: self.params[key] for key in _LAYOUT},
            "host_name": self.params["host_name"],
            "token": self.params["token"],
            "began_at": stamp(fx.clock.now()),
            "profile": profile.name,
            "fingerprint": profile.fingerprint,
            "stack": profile.stack.id,
            **beginning.given,
        }
        work.prepare(given, archive, beginning.user, beginning.secret)
        task = _transient.Task(
            unit=work.unit,
            description=f"{self.noun.capitalize()} of the b70 slot {layout.slot}",
            argv=work.argv(type(self).__module__),
            limit_s=beginning.limit_s,
            directory=str(work.folder),
            user=beginning.user,
            group=_readers(layout) if beginning.user else "",
            writable=(str(work.out),),
            properties=beginning.properties,
        )
        try:
            self.systemd.start(task)
        except WorkError:
            if not self.systemd.state(work.unit).running:  # else systemd was only slow to say so
                work.remove()
                raise

    def stop(self) -> Found:
        """End the work that is under way; its record says that it is unfinished."""
        unit = self.work.unit
        if self.systemd.state(unit).running:
            self.systemd.stop(unit)
        return self.look()

    def look(self, *, write: bool = True) -> Found:
        """Look at the work. write: make the record of work that has ended, if there is none yet."""
        work = self.work
        found = self._look(work)
        if write and found.state == "ended" and not found.result:
            with work.alone():
                return self._collect(work)
        return found

    def _collect(self, work: Work) -> Found:
        """Look, and make the record of work that has ended. The caller holds the folder."""
        found = self._look(work)
        if found.state == "ended" and not found.result:
            found.result.update(self._record(work, found.given, found.seen))
        return found

    def _look(self, work: Work) -> Found:
        given = work.given()
        if given is None:
            return Found("none", f"no {self.noun} is under way")
        # The unit first: if it ends between the two looks, it has left what it saw.
        running = self.systemd.state(work.unit).running
        seen = work.seen() or self.nothing_seen()
        line = self.line(given, seen)
        if running:
            return Found("running", f"{line}; {seen['now'] or 'starting'}", given, seen)
        return Found("ended", line, given, seen, work.result() or {})

    def _record(self, work: Work, given: Mapping[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
        if seen["ended"] is None:
            why = f"the {self.noun} broke off: its process was killed, or the host restarted"
            seen["ended"] = {"how": "vanished", "why": why, "at": work.last_seen_at()}
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
                f"no record can be made of what the {self.noun} saw: {error}; remove {work.folder} to give it up"
            ) from error
        path = Store(self.params["records_dir"]).write(record)
        result = {"record": record["id"], "file": str(path), "verdict": finding.verdict, "reasons": finding.reasons}
        work.save_result(result)
        return result


def _readers(layout: Layout) -> str:
    """Return the group that may read the slot's profiles, which a unit of another user than root needs."""
    return grp.getgrgid(os.stat(layout.profiles_dir).st_gid).gr_name


@dataclass(frozen=True)
class Commission:
    """A unit's task, and what it works with."""

    work: Work
    given: Mapping[str, Any]
    fx: Effects
    layout: Layout


def commission(folder: str) -> Commission:
    """Return what the folder of a unit asks for. From here on, a signal raises ToldToEndFault in any wait."""
    work = Work(Path(folder), "")
    given = work.given()
    if given is None:
        raise WorkError(f"{folder} does not say what to do")
    clock = SystemClock()
    clock.heed_signals()
    return Commission(work, given, host_effects(clock), layout_of(given["layout"]))
