# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The beginning of a rollout: from each host's answer to the check, and the record of an unfinished rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from .model import WAITING, HostResult, HostVerdict, Rollout, RolloutHost, RolloutOnFailure, Status, WaveGate, listed
from .waves import SettingError, allowed, waves_of

Kind = TypeVar("Kind", bound=StrEnum)
UNFINISHED = (Status.RUNNING, Status.STOPPED)


@dataclass(frozen=True)
class RolloutSettings:
    """The operator's settings for the rollout of a profile."""

    profile: str
    waves: str = "1,25%,100%"
    canary: str = ""
    max_fail: str = "0"
    on_failure: str = RolloutOnFailure.STOP
    gate: str = WaveGate.VERIFIED


@dataclass(frozen=True)
class HostCheck:
    """The findings of the check of one host.

    result: its verdict is ALREADY if there is nothing to switch, and WAITING if the switch would begin. problem: why
    the switch would be refused.
    """

    result: HostResult = WAITING
    problem: str = ""


def refusals(looks: Mapping[str, HostCheck]) -> dict[str, str]:
    """Return the hosts that would refuse the switch. While there is one, nothing starts."""
    return {host: look.problem for host, look in looks.items() if look.problem}


def resumable(earlier: Rollout | None, profile: str) -> bool:
    """Return whether this is the record of a rollout of the profile that the next run continues."""
    return earlier is not None and earlier.profile == profile and earlier.status in UNFINISHED


def plan(
    name: str, now: str, given: RolloutSettings, looks: Mapping[str, HostCheck], earlier: Rollout | None = None
) -> Rollout:
    """Return the rollout over these hosts, in this order, the canary host first.

    Other hosts of an earlier rollout stay in its record. name: the rollout's id, unless an earlier rollout is resumed.
    Raise SettingError.
    """
    on_failure, gate = _one_of(RolloutOnFailure, "on_failure", given.on_failure), _one_of(WaveGate, "gate", given.gate)
    allowed(given.max_fail, len(looks))
    before = earlier if earlier is not None and resumable(earlier, given.profile) else None
    known = {member.host: member for member in before.members} if before is not None else {}
    at_rest = [host for host, look in looks.items() if look.result.verdict is HostVerdict.MAINTENANCE]
    if len(at_rest) == len(looks):
        raise SettingError(f"{listed(at_rest)} is in maintenance, and there is no other host")
    if given.canary in at_rest:
        raise SettingError(f"canary is {given.canary}, which is {looks[given.canary].result.why}")
    waves = waves_of([host for host in looks if host not in at_rest], given.waves, given.canary)
    members = tuple(
        _member(host, number, given.profile, looks[host].result, known.get(host), gate)
        for number, hosts in enumerate(waves, 1)
        for host in hosts
    )
    left_alone = tuple(
        replace(
            _member(host, len(waves), given.profile, looks[host].result, known.get(host), gate),
            result=looks[host].result,
        )
        for host in at_rest
    )
    others = tuple(replace(member, outside=True) for host, member in known.items() if host not in looks)
    return Rollout(
        id=name if before is None else before.id,
        profile=given.profile,
        members=(*members, *left_alone, *others),
        waves=str(given.waves),
        max_fail=str(given.max_fail),
        on_failure=on_failure,
        gate=gate,
        began=now if before is None else before.began,
    )


def _one_of(kind: type[Kind], name: str, given: str) -> Kind:
    try:
        return kind(given)
    except ValueError:
        raise SettingError(f"{name} is {given!r}; write one of {', '.join(kind)}") from None


def _member(
    host: str, wave: int, profile: str, found: HostResult, earlier: RolloutHost | None, gate: WaveGate
) -> RolloutHost:
    """Return the member for a host. What an unfinished rollout recorded counts if the host no longer says it itself."""
    if earlier is None:
        return RolloutHost(host, wave, found.profile, found)
    before = found.profile if found.profile not in (None, profile) else earlier.before
    if found.verdict is not HostVerdict.ALREADY or before == profile:
        return RolloutHost(host, wave, before, found)
    if gate is WaveGate.PERFORMANCE and earlier.verdict is not HostVerdict.VERIFIED:
        # It was switched, but its wave was not judged or did not pass. It takes its turn in its wave, and the switch
        # does nothing.
        return RolloutHost(host, wave, before, replace(found, verdict=HostVerdict.UNMEASURED))
    kept = earlier.result if earlier.verdict is HostVerdict.VERIFIED else WAITING
    result = replace(
        found, verdict=HostVerdict.VERIFIED, phases=kept.phases, why="by an earlier run", figures=kept.figures
    )
    return RolloutHost(host, wave, before, result)
