# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what comes next: the next wave, the end, or a stop with the hosts that go back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from .._fleet import HostSeen
from .agreement import agreement
from .model import SERVES, UNPASSED, HostVerdict, Rollout, RolloutHost, RolloutOnFailure, Status, WaveGate, listed
from .waves import allowed


@dataclass(frozen=True)
class Decision:
    """A decision about the rollout.

    rollout: with the decisions about its hosts and, if it stops, the hosts that go back. next: the hosts of the next
    wave. quarantine: hosts to put into quarantine now, with the reason. measure: the host whose figures the gate wants
    before anything else is decided.
    """

    rollout: Rollout
    next: tuple[str, ...] = ()
    quarantine: Mapping[str, str] = field(default_factory=dict)
    measure: str = ""


def decide(rollout: Rollout, switched: Collection[str] = ()) -> Decision:
    """Decide after a wave, or before the first.

    A host that never gave a result counts as waiting, so the caller gives one to each host of the wave. switched: the
    hosts of a wave that no gate has judged yet.
    """
    known = {member.host: member.result for member in rollout.members}
    found = agreement(rollout.members)
    hosts = [
        member.host for member in rollout.inside if member.verdict not in (HostVerdict.DISAGREES, HostVerdict.EXPOSED)
    ]
    named = {host: found.outvoted[host] for host in hosts if host in found.outvoted}
    rollout = rollout.with_results(
        {host: replace(known[host], verdict=HostVerdict.DISAGREES, why=why) for host, why in named.items()}
        | {
            host: replace(known[host], verdict=HostVerdict.DISPUTED, why=found.tied[host])
            for host in hosts
            if host in found.tied
        }
    )
    why = _stop(rollout)
    if why:
        stopped = replace(rollout, status=Status.STOPPED, reason=why, back=_back(rollout))
        return Decision(stopped, quarantine=named)
    first = _to_measure(rollout, switched)
    if first is not None:
        waits = rollout.with_results({first.host: replace(first.result, verdict=HostVerdict.UNMEASURED)})
        return Decision(waits, quarantine=named, measure=first.host)
    batches = rollout.batches
    if batches:
        return Decision(rollout, next=batches[0], quarantine=named)
    left = [member.host for member in rollout.outside if member.verdict not in SERVES or member.host in found.outvoted]
    if left:
        why = f"{listed(left)} {'is' if len(left) == 1 else 'are'} outside the limit of this run"
        return Decision(replace(rollout, reason=why), quarantine=named)
    return Decision(replace(rollout, status=Status.FINISHED, reason=""), quarantine=named)


def looked(rollout: Rollout, seen: Mapping[str, HostSeen]) -> Rollout:
    """Return the rollout after its hosts were looked at: what counted as served may have ended since."""
    return replace(rollout, members=tuple(_looked(m, seen.get(m.host), rollout.profile) for m in rollout.members))


def _looked(member: RolloutHost, seen: HostSeen | None, profile: str) -> RolloutHost:
    if seen is None:
        return member
    member = replace(member, now=seen.now)
    if seen.maintenance:
        waits = member.verdict in (HostVerdict.WAITING, HostVerdict.UNMEASURED)
        result = replace(member.result, verdict=HostVerdict.MAINTENANCE, profile=seen.profile, why=seen.maintenance)
        return replace(member, result=result) if waits else member
    if member.verdict not in SERVES | {HostVerdict.UNMEASURED} or (seen.ready and seen.profile == profile):
        return member
    verdict = HostVerdict.LOST if seen.reached else HostVerdict.UNREACHABLE
    why = f"it serves {seen.profile or 'nothing'} now" if seen.reached and seen.profile != profile else seen.why
    return replace(member, result=replace(member.result, verdict=verdict, profile=seen.profile, why=why))


def at_the_end(rollout: Rollout, seen: Mapping[str, HostSeen]) -> Rollout:
    """Return the rollout as its hosts are at its end. What was decided before stays; nobody is taken back any more."""
    found = looked(rollout, seen)
    if rollout.status not in (Status.RUNNING, Status.FINISHED):
        return found
    return replace(decide(found).rollout, back=())


def _to_measure(rollout: Rollout, switched: Collection[str]) -> RolloutHost | None:
    """Return the host whose figures stand for the wave, so that clients wait for one host and not for all."""
    verified = (m for m in rollout.inside if m.host in switched and m.verdict is HostVerdict.VERIFIED)
    return next(verified, None) if rollout.gate is WaveGate.PERFORMANCE else None


def _stop(rollout: Rollout) -> str:
    """Return why the rollout stops, or nothing."""
    failed = [member for member in rollout.inside if member.failed]
    # Where one host stands for all, or a decision could not be carried out, max_fail does not apply.
    for member in failed:
        if member.verdict is HostVerdict.HELD:
            return f"the gate holds it at {member.host}: {member.result.why}"
        if member.verdict is HostVerdict.EXPOSED:
            return f"{member.host} disagrees and could not be put into quarantine: {member.result.why}"
        if member.verdict is HostVerdict.DISPUTED:
            return f"the hosts contradict each other and no answer has a majority: {member.result.why}"
    if rollout.canary.failed:
        return f"the canary host {rollout.canary.host} failed: {rollout.canary.verdict}"
    limit = allowed(rollout.max_fail, len(rollout.inside))
    if len(failed) > limit:
        names = listed([member.host for member in failed])
        return f"{len(failed)} of {len(rollout.inside)} hosts failed, max_fail allows {limit}: {names}"
    return ""


def _back(rollout: Rollout) -> tuple[str, ...]:
    """Return the hosts that go back.

    A host that failed has gone back by itself or is left for a person. A host that could not be reached may serve the
    new profile by now. A host that served this profile before cannot go back to anything. A run takes back none of the
    hosts outside of it; a run over all hosts does.
    """
    if rollout.on_failure is RolloutOnFailure.STOP:
        return ()
    done = [member for member in rollout.inside if member.verdict not in (HostVerdict.WAITING, HostVerdict.ALREADY)]
    if rollout.on_failure is RolloutOnFailure.ROLLBACK_WAVE:
        # A host that an earlier run switched and nobody judged is in a wave that is still to come.
        last = max((member.wave for member in done if member.verdict is not HostVerdict.UNMEASURED), default=0)
        done = [member for member in done if member.wave == last]
    return tuple(
        member.host
        for member in done
        if member.verdict in (HostVerdict.VERIFIED, HostVerdict.UNREACHABLE, *UNPASSED)
        and member.before != rollout.profile
    )


def after_rollback(rollout: Rollout) -> Rollout:
    """Return the rollout after its hosts have gone back. It is over if no host serves the new profile because of it."""
    serves = {HostVerdict.VERIFIED, HostVerdict.STRANDED, *UNPASSED}
    left = [member for member in rollout.members if member.verdict in serves]
    went = [member for member in rollout.members if member.verdict is HostVerdict.RETURNED]
    return replace(rollout, status=Status.ROLLED_BACK) if went and not left else rollout
