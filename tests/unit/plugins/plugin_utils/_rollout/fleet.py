# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet without hosts: what each host answers is a value, and a rollout over it takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import HostCheck, RolloutSettings, plan
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import Decision, decide
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import (
    CanaryAnswer,
    HostResult,
    HostVerdict,
    Rollout,
)

NEW, OLD = "new", "old"
NOW = "2026-06-07T09:00:00Z"


def names(count: int) -> list[str]:
    return [f"h{number}" for number in range(1, count + 1)]


def waiting(profile: str | None = OLD) -> HostCheck:
    return HostCheck(HostResult(HostVerdict.WAITING, profile))


def answered(*hashes: str, verdict: HostVerdict = HostVerdict.VERIFIED, fingerprint: str = "f") -> HostResult:
    """A verified host that gave these answers to the cases c0, c1 …"""
    answers = tuple(CanaryAnswer(f"c{number}", "asked", sha256) for number, sha256 in enumerate(hashes))
    return HostResult(verdict, NEW, fingerprint, answers, (("stop", 1.0), ("health", 2.0)))


GOOD = answered("a")


def failed(verdict: HostVerdict = HostVerdict.ROLLED_BACK) -> HostResult:
    return HostResult(verdict, OLD if verdict is HostVerdict.ROLLED_BACK else None, why="it did not work")


def began(hosts: Sequence[str], **settings: str) -> Rollout:
    return plan("r1", NOW, RolloutSettings(NEW, **settings), {host: waiting() for host in hosts})


def carried_out(
    rollout: Rollout, of: Callable[[str], HostResult], seen: Callable[[Decision], None] = lambda _decision: None
) -> tuple[Decision, list[tuple[str, ...]]]:
    """(the last decision, the waves that were taken)."""
    taken: list[tuple[str, ...]] = []
    decision = decide(rollout)
    while decision.next:
        seen(decision)
        taken.append(decision.next)
        results: Mapping[str, HostResult] = {host: of(host) for host in decision.next}
        decision = decide(decision.rollout.with_results(results))
    return decision, taken
