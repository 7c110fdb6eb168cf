# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin work of a host or join it, look at it, stop it, collect what became of it, and note that a play has it.

The work is a transient unit of systemd. Each call is short and may come twice, because its answer may be lost.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from .._slot.host.clock import SystemClock
from .._slot.model.state_file import stamp
from .._slot.words.types import ToldToEndFault
from .._transient import Task, TransientUnits
from .decide import BEGIN, REFUSE, WorkState, death, on_begin
from .folder import WorkError, WorkFolder, last_line, own_archive


@dataclass(frozen=True)
class Beginning:
    """The values with which a unit is begun.

    :param given: what the unit needs, and those who say what became of it.
    :param task: the unit; None if there is nothing to do and all is seen.
    :param secret: what the unit needs and nobody else may read; the unit then runs as root.
    """

    given: Mapping[str, Any]
    task: Task | None
    secret: str = ""


@dataclass(frozen=True)
class Job(ABC):
    """One piece of work, as a module's options name it. Each kind implements the abstract methods."""

    params: Mapping[str, Any]
    noun: ClassVar[str]
    passing: ClassVar[bool] = False  # whether the folder goes when a play has the result
    systemd: ClassVar[TransientUnits] = TransientUnits(WorkError, "work of a host")

    @property
    @abstractmethod
    def unit(self) -> str:
        """Return the name of the unit."""

    @property
    @abstractmethod
    def folder(self) -> WorkFolder:
        """Return the folder, which no other work has."""

    @abstractmethod
    def begin(self) -> Beginning:
        """Return what to do; raise a fault if it can't be done. The folder has the program and is held."""

    def outcome(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        """Return what became of work that has ended. The folder is held."""
        found: dict[str, Any] = seen.get("found") or {"failed": True, "msg": seen["ended"]["why"]}
        return found

    def differs(self, given: Mapping[str, Any]) -> Sequence[str]:
        """Return how work with this `given` is not what the options ask for."""
        return ()

    def nothing_seen(self) -> dict[str, Any]:
        """Return what a unit that has just begun has seen."""
        return {"now": "", "ended": None}

    def launch(self, task: Task) -> None:
        """Start the unit; raise a fault if it does not start."""
        self.systemd.start(task)

    def task(self, limit_s: int, **more: Any) -> Task:
        """Return the unit. more: fields of Task; without an argv it runs `main(folder)` of the kind's module."""
        folder = self.folder
        own = {
            "unit": self.unit,
            "description": f"{self.noun[0].upper()}{self.noun[1:]}",
            "argv": folder.argv(type(self).__module__),
            "limit_s": limit_s,
            "directory": str(folder.path),
            "writable": (str(folder.out),),
        }
        return Task(**{**own, **more})

    def start(self, archive: Path | None = None) -> WorkState:
        """Begin the work, join what is under way, or return a result that no play has been told yet."""
        token = self.params["token"]
        with self.folder.alone():
            found = self._collect()
            differs = self.differs(found.given) if found.given else ()
            step = on_begin(found, token, other=bool(differs))
            if step == REFUSE:
                raise WorkError(
                    f"another {self.noun} is under way, with {'; '.join(differs)}: run this again when it has ended, "
                    f"or end it with `systemctl stop {self.unit}`"
                )
            if step != BEGIN:
                return replace(found, joined=not found.begun_by(token))
            self._begin(archive or own_archive())
        return self.look()

    def look(self, *, write: bool = True) -> WorkState:
        """Look at the work. write: collect what became of work that has ended, if nobody did yet."""
        found = self._look()
        if write and found.state == "ended" and not found.result:
            with self.folder.alone():
                return self._collect()
        return found

    def stop(self) -> WorkState:
        """End the work that is under way."""
        if self.systemd.state(self.unit).running:
            self.systemd.stop(self.unit)
        return self.look()

    def acknowledge(self) -> WorkState:
        """Note that the play has the result and can print it, so that the next play begins anew."""
        with self.folder.alone():
            found = self._collect()
            if found.result:
                # The first note stays.
                self.folder.save_result({"told_to": self.params["token"], **found.result})
            if found.result and self.passing:
                self.folder.remove()
        return found

    def _begin(self, archive: Path) -> None:
        folder = self.folder
        folder.prepare(archive)
        try:
            beginning = self.begin()
            task = beginning.task
            told = {"token": self.params["token"], "began_at": stamp(SystemClock().now())}
            log, user = (task.log, task.user) if task else ("", "")
            folder.give({**told, "log": log, **beginning.given}, user, beginning.secret)
            if task:
                self.launch(task)
        except Exception:
            if not self.systemd.state(self.unit).running:  # else systemd was only slow to say so
                folder.remove()
                raise

    def _collect(self) -> WorkState:
        """Look, and find out what became of work that has ended. The caller holds the folder."""
        found = self._look()
        if found.state == "ended" and not found.result:
            if found.seen["ended"] is None:
                why = death(self.systemd.state(self.unit).result, last_line(found.given["log"]))
                why = f"the {self.noun} broke off: {why}"
                found.seen["ended"] = {"how": "vanished", "why": why, "at": self.folder.last_seen_at()}
            found.result.update(self.outcome(found.given, found.seen))
            self.folder.save_result(found.result)
        return found

    def _look(self) -> WorkState:
        given = self.folder.given()
        if given is None:
            return WorkState("none")
        result = self.folder.result() or {}
        # The unit before what it saw: if it ends between the two looks, it has left that.
        running = not result and self.systemd.state(self.unit).running
        return WorkState("running" if running else "ended", given, self.folder.seen() or self.nothing_seen(), result)


def conclude(folder: WorkFolder, noun: str, work: Callable[[], dict[str, Any]]) -> None:
    """Do the work of a unit and save what it found; a fault of the program is a finding too."""
    try:
        found = work()
    except ToldToEndFault:
        return  # systemd knows whether somebody ended it or its time was over
    except Exception as error:
        traceback.print_exc()
        found = {"failed": True, "msg": f"the {noun} broke off: {type(error).__name__}: {error}"}
    ended = {"how": "done", "why": "", "at": stamp(SystemClock().now())}
    folder.save_seen({"now": "", "ended": ended, "found": found})
    folder.program.unlink(missing_ok=True)
