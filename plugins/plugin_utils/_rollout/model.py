# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a rollout, and the record that the controller keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

SCHEMA = 1


class RolloutOnFailure(StrEnum):
    """The fate of the hosts that already serve the new profile when the rollout stops."""

    STOP = "stop"
    ROLLBACK_WAVE = "rollback_wave"
    ROLLBACK_ALL = "rollback_all"


class WaveGate(StrEnum):
    """The condition of a wave before the next one begins. PERFORMANCE: also the figures of its first host."""

    VERIFIED = "verified"
    PERFORMANCE = "performance"


class HostVerdict(StrEnum):
    """The state of a host, in the words of the result table."""

    WAITING = "not begun"
    MAINTENANCE = "in maintenance"  # a person has taken it out of the fleet
    ALREADY = "already verified"
    VERIFIED = "verified"
    ROLLED_BACK = "failed, rolled back"  # by the slot itself
    UNTOUCHED = "failed, untouched"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    DISAGREES = "disagrees, quarantined"
    EXPOSED = "disagrees, not quarantined"  # the quarantine could not be set
    DISPUTED = "verified, answers in dispute"  # on a tie
    CUT_OFF = "verified, not reached"  # by clients, through a load balancer
    UNMEASURED = "verified, to be measured"  # the gate has not judged its wave
    HELD = "verified, held by the gate"
    LOST = "no longer served"  # since its wave, or since the plan
    RETURNED = "rolled back"  # by the rollout
    STRANDED = "rollback failed"


FAILURES = frozenset(
    {
        HostVerdict.ROLLED_BACK,
        HostVerdict.UNTOUCHED,
        HostVerdict.FAILED,
        HostVerdict.UNREACHABLE,
        HostVerdict.DISAGREES,
        HostVerdict.EXPOSED,
        HostVerdict.DISPUTED,
        HostVerdict.CUT_OFF,
        HostVerdict.STRANDED,
        HostVerdict.HELD,
        HostVerdict.LOST,
    }
)
# Serves the profile, and counts.
SERVES = frozenset({HostVerdict.ALREADY, HostVerdict.VERIFIED})
# Serves the profile, verified, but was not let pass.
UNPASSED = frozenset({HostVerdict.UNMEASURED, HostVerdict.HELD, HostVerdict.DISPUTED, HostVerdict.CUT_OFF})


class Status(StrEnum):
    """The state of the rollout. The next run resumes a rollout that is RUNNING or STOPPED."""

    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class CanaryAnswer:
    """A host's answer to one canary case. request: hash of the question. steady: its repeats were equal."""

    name: str
    request: str
    sha256: str
    steady: bool = True


@dataclass(frozen=True)
class HostResult:
    """The known state of a host.

    profile: what it serves. phases: (name, seconds) in order. figures: what the gate measured and compared, a line
    each.
    """

    verdict: HostVerdict
    profile: str | None = None
    fingerprint: str = ""
    answers: tuple[CanaryAnswer, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    why: str = ""
    figures: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(seconds for _name, seconds in self.phases)


WAITING = HostResult(HostVerdict.WAITING)


@dataclass(frozen=True)
class RolloutHost:
    """A host of the rollout.

    wave: its number from 1. before: the profile that it served before the rollout. outside: it is in the record, but
    not among the hosts of this run, which leaves it as it is. now: what it served when it was looked at last.
    """

    host: str
    wave: int
    before: str | None = None
    result: HostResult = WAITING
    outside: bool = False
    now: str = ""

    @property
    def verdict(self) -> HostVerdict:
        return self.result.verdict

    @property
    def failed(self) -> bool:
        return self.verdict in FAILURES


@dataclass(frozen=True)
class Rollout:
    """The plan and what has happened.

    Members are in the order in which they are switched; the first is the canary. Those outside of this run come last.
    """

    id: str
    profile: str
    members: tuple[RolloutHost, ...]
    waves: str
    max_fail: str = "0"
    on_failure: RolloutOnFailure = RolloutOnFailure.STOP
    gate: WaveGate = WaveGate.VERIFIED
    status: Status = Status.RUNNING
    reason: str = ""
    began: str = ""
    ended: str = ""
    back: tuple[str, ...] = ()  # the hosts that a stop takes back
    run: str = ""  # the run of the playbook that carries it out

    @property
    def canary(self) -> RolloutHost:
        return self.members[0]

    @property
    def inside(self) -> tuple[RolloutHost, ...]:
        """Return the hosts of this run."""
        return tuple(member for member in self.members if not member.outside)

    @property
    def outside(self) -> tuple[RolloutHost, ...]:
        return tuple(member for member in self.members if member.outside)

    @property
    def last_wave(self) -> int:
        return self.inside[-1].wave

    @property
    def waiting(self) -> tuple[RolloutHost, ...]:
        """Return the hosts whose turn is still to come. Some may serve the profile because of an earlier run."""
        return tuple(
            member for member in self.inside if member.verdict in (HostVerdict.WAITING, HostVerdict.UNMEASURED)
        )

    @property
    def batches(self) -> tuple[tuple[str, ...], ...]:
        """Return the hosts that are still to be switched or judged, wave by wave."""
        found: dict[int, list[str]] = {}
        for member in self.waiting:
            found.setdefault(member.wave, []).append(member.host)
        return tuple(tuple(hosts) for _wave, hosts in sorted(found.items()))

    def with_results(self, results: Mapping[str, HostResult]) -> Rollout:
        members = (replace(member, result=results.get(member.host, member.result)) for member in self.members)
        return replace(self, members=tuple(members))


def as_dict(rollout: Rollout) -> dict[str, Any]:
    """Return the record, as it is written to JSON."""
    data = asdict(rollout)
    for member in data["members"]:
        member["result"]["seconds"] = round(sum(seconds for _name, seconds in member["result"]["phases"]), 3)
    return {"schema": SCHEMA, **data}


def from_dict(data: Mapping[str, Any]) -> Rollout:
    """Return the rollout of a record; raise ValueError if it is not one."""
    try:
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, this version reads {SCHEMA}")
        known = {key: data[key] for key in ("id", "profile", "waves", "max_fail", "reason", "began", "ended")}
        return Rollout(
            **known,
            members=tuple(_member(member) for member in data["members"]),
            on_failure=RolloutOnFailure(data["on_failure"]),
            gate=WaveGate(data.get("gate", WaveGate.VERIFIED)),
            status=Status(data["status"]),
            back=tuple(data["back"]),
            run=data.get("run", ""),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not the record of a rollout: {error}") from error


def _member(data: Mapping[str, Any]) -> RolloutHost:
    result = data["result"]
    return RolloutHost(
        host=data["host"],
        wave=data["wave"],
        before=data["before"],
        outside=bool(data.get("outside")),
        now=data.get("now", ""),
        result=HostResult(
            verdict=HostVerdict(result["verdict"]),
            profile=result["profile"],
            fingerprint=result["fingerprint"],
            answers=tuple(CanaryAnswer(**answer) for answer in result["answers"]),
            phases=tuple((str(name), float(seconds)) for name, seconds in result["phases"]),
            why=result["why"],
            figures=tuple(result.get("figures", ())),
        ),
    )


def listed(hosts: Sequence[str], most: int = 8) -> str:
    """Return the names of hosts for a sentence; only the first of many."""
    rest = len(hosts) - most
    return ", ".join(hosts[:most]) + (f" and {rest} more" if rest > 0 else "")
