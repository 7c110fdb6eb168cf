# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal: append-only, one JSON per line. What it remembers is a fold over its lines; both are pure.

Lines: `begin` (id, at, kind, from, to, who, why), `phase` (id, phase, direction: written as the phase begins),
`end` (id, outcome, profile, fingerprint, verified, phases, failures, canary, loads), and at the head of a file that
follows another one `memory`: everything the lines before it teach. A begin without its end is a switch that was
interrupted: a kill, a reboot, a lost machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..words.decode import decode, plain
from ..words.moment import Moment
from ..words.types import End, Failure, Gate, Mode, OnFailure
from .load_times import LoadTimes

KEPT_ATTEMPTS = 20
JOURNALS_KEPT = 5
INTERRUPTED = "interrupted"
CONTROLLER = "the controller"  # who, in the attempts that nobody asked for
WATCHDOG = "the liveness watchdog"  # who, in those that a wedged engine led to
IDLE = "idle"  # who, in a stop of a model that nobody asked for


@dataclass(frozen=True)
class Verified:
    """The last profile that passed its canary and was served."""

    profile: str
    fingerprint: str
    at: str
    cases: tuple[Mapping[str, Any], ...] = ()  # each case that it passed, see `passed`


@dataclass(frozen=True)
class Wanted:
    """The last word on what the slot is to serve: that of a person, or of a switch that committed.

    profile: None for nothing. left: an engine was left for a look, so nothing is done about it. idle: the profile that
    was stopped because nobody asked for it; the next request loads it.
    """

    profile: str | None
    fingerprint: str
    gate: str
    at: str
    who: str
    why: str = ""
    left: bool = False
    idle: str = ""

    def as_dict(self) -> dict[str, Any]:
        names = ("profile", "gate", "at", "who", "why", "left", "idle")
        return {name: getattr(self, name) for name in names} | {"text": self.describe()}

    @property
    def idle_part(self) -> dict[str, str] | None:
        """Return what the next request loads, for the state file."""
        return {"profile": self.idle, "since": self.at} if self.idle else None

    def published(self) -> str:
        """Return it for everybody, without who said it."""
        if self.idle:
            return f"idle since {self.at}; where requests load models, the next one loads {self.idle}"
        what = "what runs is left for a look" if self.left else f"{self.profile or 'nothing'} is to be served"
        return f"{what}, as somebody said at {self.at}"

    def describe(self) -> str:
        """Return it in words, without a full stop."""
        said = f"said by {self.who or 'somebody'} at {self.at}{f' ({self.why})' if self.why else ''}"
        if self.left:
            return f"what runs is left for a look, {said}"
        return f"{self.profile or 'nothing'}, {said}"


@dataclass(frozen=True)
class Attempt:
    """One switch as the journal tells it. outcome is None while it has no end."""

    id: str
    at: str
    kind: str
    source: str | None
    target: str | None
    outcome: str | None = None
    phase: str | None = None
    seconds: float | None = None
    reason: str = ""
    who: str = ""
    why: str = ""
    gate: str = ""
    profile: str | None = None  # what was served at its end
    on_failure: str = ""
    turned_away_s: float | None = None  # during which no engine was open; None until its end
    way: str = ""  # how engines were replaced; empty until its end
    boot: str = ""  # the id of the boot that it was made in
    mono: float | None = None  # monotonic seconds at its begin
    mode: str = ""  # of the request; only `switch` says what is wanted
    clears: Mapping[str, str] = field(default_factory=dict)  # other slots that it stops, and what they serve

    @property
    def began(self) -> Moment:
        return Moment(self.at, self.boot, self.mono)

    def as_dict(self) -> dict[str, Any]:
        names = ("id", "at", "kind", "outcome", "phase", "seconds", "turned_away_s", "way", "reason", "who", "why")
        return {name: getattr(self, name) for name in names} | {"from": self.source, "to": self.target}


@dataclass(frozen=True)
class JournalMemory:
    """The memory of the journal."""

    verified: Verified | None = None
    wanted: Wanted | None = None  # None: nobody has said anything yet
    attempts: tuple[Attempt, ...] = ()
    load_times: LoadTimes = field(default_factory=LoadTimes)

    @property
    def interrupted(self) -> Attempt | None:
        """The last attempt, when it never came to its end."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is None else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _begin(memory: JournalMemory, line: Mapping[str, Any]) -> JournalMemory:
    names = ("id", "at", "kind", "who", "why", "gate", "on_failure", "boot", "mode")
    said: dict[str, Any] = {name: _text(line.get(name)) for name in names}
    said |= {"source": line.get("from"), "target": line.get("to")}
    attempt = Attempt(**said, mono=line.get("mono"), clears=line.get("clears") or {})
    before = memory.attempts[:-1] if memory.attempts and _repeats(memory.attempts[-1], attempt) else memory.attempts
    return replace(memory, attempts=(*before, attempt)[-KEPT_ATTEMPTS:])


def _repeats(last: Attempt, attempt: Attempt) -> bool:
    """Tell whether an attempt repeats the last one unasked: such must not push out of memory what somebody did."""
    if (last.kind, last.who, last.target) != (attempt.kind, attempt.who, attempt.target):
        return False
    if attempt.who == CONTROLLER:
        return last.outcome not in (None, End.COMMITTED)
    return (attempt.kind, attempt.who) == ("recheck", WATCHDOG) and last.outcome in (End.COMMITTED, End.UNTOUCHED)


def _end(memory: JournalMemory, line: Mapping[str, Any]) -> JournalMemory:
    outcome = _text(line.get("outcome"))
    failures = line.get("failures") or ()
    reason = _text(failures[0].get("message")) if failures and isinstance(failures[0], Mapping) else ""
    attempts = tuple(
        replace(
            attempt,
            outcome=outcome,
            seconds=line.get("seconds"),
            reason=reason,
            profile=line.get("profile"),
            turned_away_s=line.get("turned_away_s"),
            way=_text(line.get("way")),
        )
        if attempt.id == line.get("id") and attempt.outcome is None
        else attempt
        for attempt in memory.attempts
    )
    ended = next((attempt for attempt in reversed(attempts) if attempt.id == line.get("id")), None)
    memory = replace(
        memory,
        attempts=attempts,
        wanted=_said(memory.wanted, _asked(attempts, ended, line), line),
        load_times=_with_times(memory.load_times, line, outcome),
    )
    profile = line.get("profile")
    if outcome in (End.COMMITTED, End.ROLLED_BACK) and profile is not None:
        if not line.get("verified"):
            return memory
        cases = passed(line.get("canary") or (), profile)
        if not cases and memory.verified is not None and memory.verified.profile == profile:
            # Recorded again without having been asked again: what it was asked then still holds.
            cases = memory.verified.cases
        verified = Verified(_text(profile), _text(line.get("fingerprint")), _text(line.get("at")), cases)
        return replace(memory, verified=verified)
    # A failure leaves the way back as it was.
    return replace(memory, verified=None) if outcome == End.COMMITTED else memory


def _asked(attempts: Iterable[Attempt], ended: Attempt | None, line: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt that somebody asked for and that has ended with this line; None if it is another one.

    An interrupted switch whose target was served already is brought to its end by a run that nobody asked for.
    """
    if ended is None or (ended.mode == Mode.SWITCH and ended.who not in (CONTROLLER, WATCHDOG)):
        return ended
    asked = [attempt for attempt in attempts if attempt.mode == Mode.SWITCH and attempt.id != ended.id]
    last = asked[-1] if asked and asked[-1].outcome == INTERRUPTED else None
    if last is None or last.target is None or ended.outcome != End.COMMITTED or line.get("profile") != last.target:
        return None
    return replace(last, outcome=ended.outcome)


def _said(wanted: Wanted | None, attempt: Attempt | None, line: Mapping[str, Any]) -> Wanted | None:
    """Return what is wanted after this attempt, which somebody asked for, has ended."""
    if attempt is None:
        return wanted
    at, outcome, profile = _text(line.get("at")), attempt.outcome, line.get("profile")
    if attempt.target is None and outcome != End.UNTOUCHED:
        # Somebody said so, however far it came: the controller brings it to its end.
        idle = attempt.source or (wanted and wanted.idle) if attempt.who == IDLE else None
        return Wanted(None, "", "", at, attempt.who, attempt.why, idle=idle or "")
    if outcome == End.COMMITTED:
        gate = attempt.gate or Gate.VERIFIED
    elif outcome == End.ROLLED_BACK:
        # The way back always verifies, whatever gate the way forward had.
        gate = Gate.VERIFIED
    elif outcome == End.STOPPED and attempt.on_failure == OnFailure.STOP:
        return Wanted(None, "", "", at, attempt.who, f"on_failure: stop, and the switch to {attempt.target} failed")
    elif outcome == End.LEFT and attempt.on_failure == OnFailure.LEAVE:
        return Wanted(None, "", "", at, attempt.who, f"on_failure: leave, after the switch to {attempt.target}", True)
    else:
        return wanted
    return Wanted(_text(profile), _text(line.get("fingerprint")), str(gate), at, attempt.who, attempt.why)


def passed(canary: Iterable[Any], profile: str) -> tuple[Mapping[str, Any], ...]:
    """Return, of each case that the profile passed, its name, its attempts, and what hosts can be compared by.

    A case that several engines passed is one case; it is steady where all of them answered alike.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in canary:
        if not (isinstance(case, Mapping) and case.get("profile") == profile and case.get("passed")):
            continue
        name, sha256 = _text(case.get("name")), _text(case.get("sha256"))
        before = found.get(name)
        alike = case.get("replica") is None or before is None or (before["steady"] and before["sha256"] == sha256)
        found[name] = {
            "name": name,
            "repeats": case.get("attempt"),
            "sha256": sha256,
            "request": _text(case.get("request")),
            "steady": case.get("steady") is True and alike,
        }
    return tuple(found.values())


def _with_times(load_times: LoadTimes, line: Mapping[str, Any], outcome: str) -> LoadTimes:
    for load in line.get("loads") or ():
        if isinstance(load, Mapping) and isinstance(load.get("seconds"), (int, float)):
            load_times = load_times.with_load(_text(load.get("key")), float(load["seconds"]))
    seconds, key = line.get("seconds"), _text(line.get("key"))
    if key and outcome == End.COMMITTED and line.get("kind") == "switch" and isinstance(seconds, (int, float)):
        load_times = load_times.with_closed(key, float(seconds))
    return load_times


def failure_data(failure: Failure | None) -> dict[str, Any] | None:
    """Return a failure for the journal and for results, without what only the machine asks of it."""
    whole = plain(failure)
    return whole and {key: value for key, value in whole.items() if key not in ("told", "host", "exposed", "woken")}


def encode_memory(memory: JournalMemory) -> str:
    """Return the line that begins a file which follows another one."""
    return encode("memory", **plain(memory))


def begins_with_memory(text: str) -> bool:
    """Tell whether this journal needs none of the files before it; a crash may have torn its first line."""
    try:
        line = json.loads(text.partition("\n")[0])
        return isinstance(line, Mapping) and line.get("event") == "memory" and bool(decode(JournalMemory, line))
    except ValueError:
        return False


def remember(lines: Iterable[str]) -> JournalMemory:
    """Return the memory in the journal's lines; a line that a crash tore is skipped."""
    memory = JournalMemory()
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if not isinstance(line, Mapping):
            continue
        event = line.get("event")
        if event == "memory":
            with suppress(ValueError):
                memory = decode(JournalMemory, line)
        elif event == "begin":
            memory = _begin(memory, line)
        elif event == "phase" and memory.attempts and memory.attempts[-1].id == line.get("id"):
            last = replace(memory.attempts[-1], phase=_text(line.get("phase")))
            memory = replace(memory, attempts=(*memory.attempts[:-1], last))
        elif event == "end":
            memory = _end(memory, line)
    return memory


def encode(event: str, **fields: Any) -> str:
    """Return one journal line with its newline."""
    return json.dumps({"event": event, **fields}, ensure_ascii=False, separators=(",", ":")) + "\n"
