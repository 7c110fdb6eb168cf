# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find hosts that run the same thing but answer differently.

Hosts with the same fingerprint are compared case by case, if they were asked the same question and their own repeats
agreed. The answer that most hosts gave is trusted. On a tie between the most frequent answers, the canary host's is
trusted, else that of the host that comes first in the rollout. Every other host disagrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .model import Answer, Member, listed

_SHOWN = 12  # characters of a hash


def disagreements(members: Iterable[Member]) -> dict[str, str]:
    """Return each host that disagrees, with the reason. members: in the order of the rollout, the canary host first."""
    asked: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for member in members:
        for answer in _comparable(member):
            key = (member.result.fingerprint, answer.name, answer.request)
            asked.setdefault(key, {}).setdefault(answer.sha256, []).append(member.host)
    found: dict[str, list[str]] = {}
    for (_fingerprint, case, _request), sides in asked.items():
        for host, reason in _outvoted(case, sides).items():
            found.setdefault(host, []).append(reason)
    return {host: "; ".join(reasons) for host, reasons in found.items()}


def _comparable(member: Member) -> Iterable[Answer]:
    # The result of a burst names no question, because it is any of several answers.
    result = member.result
    return (
        answer for answer in result.answers if result.fingerprint and answer.request and answer.steady and answer.sha256
    )


def _outvoted(case: str, sides: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the hosts that disagree in one case. Sides are in the order of their first hosts: `max` settles a tie."""
    trusted = max(sides, key=lambda sha256: len(sides[sha256]))
    tied = [sha256 for sha256 in sides if sha256 != trusted and len(sides[sha256]) == len(sides[trusted])]
    found: dict[str, str] = {}
    for sha256, hosts in sides.items():
        if sha256 == trusted:
            continue
        these = f"{listed(hosts)} answered {sha256[:_SHOWN]}"
        those = f"{listed(sides[trusted])} answered {trusted[:_SHOWN]}"
        how = f"a tie, and {sides[trusted][0]} comes first" if sha256 in tied else "the majority"
        found |= dict.fromkeys(hosts, f"canary case {case}: {these}, {those} ({how})")
    return found
