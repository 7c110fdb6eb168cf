# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find hosts that run the same thing but answer differently.

Hosts with the same fingerprint are compared case by case, if they were asked the same question and their own repeats
agreed. The answer that more hosts gave than any other is trusted, and the others disagree. On a tie nobody is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .model import CanaryAnswer, HostVerdict, RolloutHost, listed

_SHOWN = 12  # characters of a hash


@dataclass(frozen=True)
class Agreement:
    """Hosts whose answers are not trusted, each with the reason.

    outvoted: most hosts gave another answer. tied: no answer has a majority, so nobody knows which is right.
    """

    outvoted: Mapping[str, str]
    tied: Mapping[str, str]


def agreement(members: Iterable[RolloutHost]) -> Agreement:
    """Compare the answers of the members of a rollout."""
    asked: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for member in members:
        for answer in _comparable(member):
            key = (member.result.fingerprint, answer.name, answer.request)
            asked.setdefault(key, {}).setdefault(answer.sha256, []).append(member.host)
    outvoted: dict[str, list[str]] = {}
    tied: dict[str, list[str]] = {}
    for (_fingerprint, case, _request), sides in asked.items():
        if len(sides) < 2:
            continue
        first, second = sorted(sides, key=lambda sha256: -len(sides[sha256]))[:2]
        tie = len(sides[first]) == len(sides[second])
        reason = f"canary case {case}: {_answers(sides)} ({'a tie' if tie else 'the majority is trusted'})"
        for sha256, hosts in sides.items():
            for host in hosts if tie or sha256 != first else ():
                (tied if tie else outvoted).setdefault(host, []).append(reason)
    return Agreement(_joined(outvoted), {host: why for host, why in _joined(tied).items() if host not in outvoted})


def _comparable(member: RolloutHost) -> Iterable[CanaryAnswer]:
    # A host that is closed because of its answers has no vote in a run that leaves it out.
    result = member.result
    voteless = member.outside and member.verdict in (HostVerdict.DISAGREES, HostVerdict.DISPUTED, HostVerdict.EXPOSED)
    # The result of a burst names no question, because it is any of several answers.
    return (
        answer
        for answer in result.answers
        if result.fingerprint and answer.request and answer.steady and answer.sha256 and not voteless
    )


def _answers(sides: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{listed(hosts)} answered {sha256[:_SHOWN]}" for sha256, hosts in sides.items())


def _joined(reasons: Mapping[str, list[str]]) -> dict[str, str]:
    return {host: "; ".join(found) for host, found in reasons.items()}
