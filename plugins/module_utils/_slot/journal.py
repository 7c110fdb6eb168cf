# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal: append-only, one JSON per line. What it remembers is a fold over its lines; both are pure.

Lines: `begin` (id, at, kind, from, to, who, why), `phase` (id, phase, direction: written as the phase begins),
`end` (id, outcome, profile, fingerprint, verified, phases, failures, canary). A begin without its end is a switch
that was interrupted: a kill, a reboot, a lost machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .types import End

KEPT_ATTEMPTS = 20
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Verified:
    """The last profile that passed its canary and was served."""

    profile: str
    fingerprint: str
    at: str
    cases: tuple[str, ...] = ()


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
    gate: str = ""
    profile: str | None = None  # what was served at its end

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "at": self.at,
            "kind": self.kind,
            "from": self.source,
            "to": self.target,
            "outcome": self.outcome,
            "phase": self.phase,
            "seconds": self.seconds,
            "reason": self.reason,
            "who": self.who,
        }


@dataclass(frozen=True)
class Memory:
    """What the journal knows. seconds: how long the last committed switch to a profile took, by profile name."""

    verified: Verified | None = None
    attempts: tuple[Attempt, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def interrupted(self) -> Attempt | None:
        """The last attempt, when it never came to its end."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is None else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _begin(memory: Memory, line: Mapping[str, Any]) -> Memory:
    attempt = Attempt(
        id=_text(line.get("id")),
        at=_text(line.get("at")),
        kind=_text(line.get("kind")),
        source=line.get("from"),
        target=line.get("to"),
        who=_text(line.get("who")),
        gate=_text(line.get("gate")),
    )
    return replace(memory, attempts=(*memory.attempts, attempt)[-KEPT_ATTEMPTS:])


def _end(memory: Memory, line: Mapping[str, Any]) -> Memory:
    outcome = _text(line.get("outcome"))
    failures = line.get("failures") or ()
    reason = _text(failures[0].get("message")) if failures and isinstance(failures[0], Mapping) else ""
    attempts = tuple(
        replace(attempt, outcome=outcome, seconds=line.get("seconds"), reason=reason, profile=line.get("profile"))
        if attempt.id == line.get("id") and attempt.outcome is None
        else attempt
        for attempt in memory.attempts
    )
    memory = replace(memory, attempts=attempts)
    if outcome in (INTERRUPTED, End.UNTOUCHED):
        return memory
    profile = line.get("profile")
    if outcome in (End.COMMITTED, End.ROLLED_BACK) and profile is not None:
        if not line.get("verified"):
            return memory
        asked = [case for case in line.get("canary") or () if isinstance(case, Mapping)]
        cases = tuple(_text(case.get("name")) for case in asked if case.get("profile") == profile)
        verified = Verified(_text(profile), _text(line.get("fingerprint")), _text(line.get("at")), cases)
        seconds = dict(memory.seconds)
        if outcome == End.COMMITTED and line.get("kind") == "switch" and isinstance(line.get("seconds"), (int, float)):
            seconds[verified.profile] = float(line["seconds"])
        return replace(memory, verified=verified, seconds=seconds)
    return replace(memory, verified=None)


def remember(lines: Iterable[str]) -> Memory:
    """Memory from the journal's lines. A line that a crash tore is skipped."""
    memory = Memory()
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if not isinstance(line, Mapping):
            continue
        event = line.get("event")
        if event == "begin":
            memory = _begin(memory, line)
        elif event == "phase" and memory.attempts and memory.attempts[-1].id == line.get("id"):
            last = replace(memory.attempts[-1], phase=_text(line.get("phase")))
            memory = replace(memory, attempts=(*memory.attempts[:-1], last))
        elif event == "end":
            memory = _end(memory, line)
    return memory


def encode(event: str, **fields: Any) -> str:
    """One journal line with its newline."""
    return json.dumps({"event": event, **fields}, ensure_ascii=False, separators=(",", ":")) + "\n"
