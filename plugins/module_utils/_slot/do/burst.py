# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary's exact questions asked at once: what goes wrong only between neighbours in a batch shows here."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from ..ask import canary as canaries
from ..ask.canary import CanaryResult
from ..model.profile import BURST, CanaryCase, Profile
from ..words.types import SlotFault
from .phases import current_engine
from .run import EngineRun, Run

FEWEST = 2


def questions(profile: Profile, count: int) -> list[CanaryCase]:
    """The cases that are asked, in turn, as often as there is room; none where nothing is exact. Pure."""
    exact = [case for case in profile.canary.cases if case.compare == "exact" and case.long is None and case.prompt]
    if profile.engine.task != "generate" or not exact or count < FEWEST:
        return []
    return [exact[index % len(exact)] for index in range(count)]


def _room(run: Run, profile: Profile) -> int:
    """How many may be asked. Of an engine that clients use meanwhile only what they leave free."""
    if not run.rechecking:
        return profile.canary.burst
    active = (run.front.status() or {}).get("active_generations")
    free = profile.frontdoor.max_active_generations - active if isinstance(active, int) else 0
    return min(profile.canary.burst, free)


def ask(run: Run, engine: EngineRun) -> list[CanaryResult]:
    """One result of all answers, or none where nothing was asked. Raises SlotFault when an answer does not come.

    The first wrong answer ends it, and so does an engine that is no longer the one that was asked.
    """
    profile = engine.profile
    cases = questions(profile, _room(run, profile))
    if not cases:
        return []
    run.give_way()
    salt = f"canary-{run.fx.clock.monotonic():.6f}-burst"
    # A salt each: every prompt is computed, beside the others.
    bodies = [
        canaries.salted(profile, canaries.payload(profile, case), f"{salt}-{index}") for index, case in enumerate(cases)
    ]
    results: list[CanaryResult] = []
    url = f"{profile.engine.backend_url}{canaries.PATH}"
    with closing(run.fx.http.post_together(url, bodies, profile.canary.timeout_s)) as replies:
        for come in replies:
            if come is None:
                current_engine(run)
                run.give_way()
                continue
            index, reply, seconds = come
            case = cases[index]
            try:
                got = canaries.answer(reply, profile, case)
            except SlotFault as fault:
                text = f"answer {index + 1} of {len(cases)} at once of {profile.name} ({case.name}) did not come"
                fault = SlotFault(f"{text}: {fault.message}", expected=repr(case.expected), got=fault.got)
                failed = canaries.unanswered(profile, case, fault.message, fault.got or "", seconds, index + 1)
                run.evidence.canary.append(replace(failed, name=BURST, attempts=len(cases)))
                raise fault from None
            results.append(canaries.evaluate(profile, case, got, seconds, index + 1))
            run.progress.say("hint", phase="canary", text=f"{BURST} {len(results)} of {len(cases)}")
            if not results[-1].passed:
                break
    summary = _summary(results, cases)
    run.evidence.canary.append(summary)
    return [summary]


def _summary(results: list[CanaryResult], cases: list[CanaryCase]) -> CanaryResult:
    last, slowest = results[-1], max(result.seconds for result in results)
    if last.passed:
        return replace(last, name=BURST, attempts=len(cases), attempt=len(cases), seconds=slowest)
    problem = f"asked at once, {last.name}" + (f": {last.problem}" if last.problem else "")
    return replace(last, name=BURST, attempts=len(cases), problem=problem)
