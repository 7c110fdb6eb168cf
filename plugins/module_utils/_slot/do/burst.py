# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary's questions asked at once: what goes wrong only between neighbours in a batch shows here."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from ..ask import canary as canaries
from ..ask import stream
from ..ask.canary import CanaryResult
from ..model.profile import BURST, CanaryCase, Profile
from ..words.types import SlotFault
from .phases import current_engine
from .run import EngineRun, Run

FEWEST = 2


def questions(profile: Profile, count: int) -> list[tuple[CanaryCase, bool]]:
    """Return the cases to ask, in turn, as often as there is room, each with whether it is streamed. Pure.

    They are as mixed as the requests of clients. Slow cases are left out, and those that need an answer recorded on
    this host.
    """
    mixed = [case for case in profile.canary.cases if case.compare != "baseline" and case.long is None and case.prompt]
    if profile.engine.task != "generate" or not mixed or count < FEWEST:
        return []
    asked = ((mixed[index % len(mixed)], index + index // len(mixed)) for index in range(count))
    return [(case, case.stream and place % 2 == 1) for case, place in asked]


def _room(run: Run, profile: Profile) -> int:
    """Return how many may be asked. Of an engine that clients use meanwhile only what they leave free."""
    if not run.rechecking:
        return profile.canary.burst
    active = (run.front.status() or {}).get("active_generations")
    free = profile.frontdoor.max_active_generations - active if isinstance(active, int) else 0
    return min(profile.canary.burst, free)


def ask(run: Run, engine: EngineRun) -> list[CanaryResult]:
    """Return one result for all answers, or none where nothing was asked; raise SlotFault when an answer does not come.

    The first wrong answer ends the burst, and so does an engine that is no longer the one that was asked.
    """
    profile = engine.profile
    cases = questions(profile, _room(run, profile))
    if not cases:
        return []
    run.give_way()
    salt = f"canary-{run.fx.clock.monotonic():.6f}-burst"
    # A salt each: every prompt is computed, beside the others.
    bodies = [
        {
            **canaries.salted(profile, canaries.payload(profile, case), f"{salt}-{index}"),
            **(stream.STREAMED if streamed else {}),
        }
        for index, (case, streamed) in enumerate(cases)
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
            case, body = cases[index][0], bodies[index]
            try:
                got = canaries.answer(reply, profile, case, body=body)
            except SlotFault as fault:
                text = f"answer {index + 1} of {len(cases)} at once of {profile.name} ({case.name}) did not come"
                fault = SlotFault(f"{text}: {fault.message}", expected=repr(case.expected), got=fault.got)
                failed = canaries.unanswered(profile, case, fault.message, fault.got or "", seconds, index + 1)
                run.evidence.canary.append(replace(failed, name=BURST, attempts=len(cases)))
                raise fault from None
            result = canaries.evaluate(profile, case, got, seconds, index + 1)
            results.append(canaries.in_shape(result, case, body))
            run.progress.say("hint", phase="canary", text=f"{BURST} {len(results)} of {len(cases)}")
            if not results[-1].passed:
                break
    summary = _summary(results, len(cases))
    run.evidence.canary.append(summary)
    return [summary]


def _summary(results: list[CanaryResult], count: int) -> CanaryResult:
    last, slowest = results[-1], max(result.seconds for result in results)
    if last.passed:
        return replace(last, name=BURST, attempts=count, attempt=count, seconds=slowest)
    problem = f"asked at once, {last.name}" + (f": {last.problem}" if last.problem else "")
    return replace(last, name=BURST, attempts=count, problem=problem)
