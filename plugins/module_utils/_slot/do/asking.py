# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases that ask the engine: its first token, and the canary with its baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ask import canary as canaries
from ..ask import pooling, transcription
from ..ask.baseline import SCHEMA, Baseline, Recorded, baseline_file, expected_of, parse_baseline
from ..ask.canary import CanaryResult
from ..decide.machine import record_action
from ..model.profile import POOLING, CanaryCase, Profile
from ..words.decode import document
from ..words.effects import Upload
from ..words.types import Direction, Reply, SlotFault
from . import burst
from .phases import current_engine
from .run import EngineRun, Run


def first_token(run: Run) -> None:
    """Ask each engine for one token: it proves that the engine computes, which /health does not."""
    for _engine in run.each():
        _first_token(run)


def _first_token(run: Run) -> None:
    engine, _unit = current_engine(run)
    if engine.profile.engine.task in POOLING:
        _first_numbers(run, engine)
        return
    if engine.profile.engine.task == "transcription":
        transcription.text_of(_sent(run, engine, transcription.PROBE)[0])
        return
    reply, _seconds = _posted(run, engine, canaries.first_token_payload(engine.profile, logprobs=True))
    if canaries.nan_logprob(reply):
        raise SlotFault(canaries.NAN, expected="finite log probabilities", got=canaries.refusal(reply))
    if reply.status == 400:
        # Not every engine offers log probabilities; that alone is no failure.
        reply, _seconds = _posted(run, engine, canaries.first_token_payload(engine.profile, logprobs=False))
    canaries.answer(reply, engine.profile)


def _first_numbers(run: Run, engine: EngineRun) -> None:
    """Ask an engine that writes no text for any finite numbers."""
    case = pooling.PROBES[engine.profile.engine.task]
    reply, seconds = _sent(run, engine, case)
    result = pooling.check_answer(engine.profile, case, reply, seconds, 1)
    if result.problem:
        raise SlotFault(result.problem, expected="finite numbers", got=result.got)


def canary(run: Run) -> None:
    """Ask each engine every case as often as wanted; a wrong answer fails the phase after all cases were asked.

    Engines are asked one after the other: each gets as many requests at once as a profile says, and what is read of one
    that computes alone says nothing about its neighbours. The slow part, the load, goes on in all of them together.

    With `record_baseline` the cases that are compared with a baseline are not judged by one: when all cases have passed
    and all repeats agreed, their answers become the baseline. Of several engines, the others are judged by the answers
    of the first one.
    """
    # Only of what was asked for: the way back is judged by what is recorded.
    recording = run.request.record_baseline and run.direction is Direction.FORWARD
    profile = run.profile
    needed = [case.name for case in profile.canary.cases if case.compare == "baseline"]
    file = baseline_file(run.layout, profile.name)
    baseline = None if recording or not needed else parse_baseline(run.fx.files.read(file), str(file), profile.name)
    failed: list[tuple[EngineRun, SlotFault]] = []
    for engine in run.each():
        asked = len(run.evidence.canary)
        try:
            answers = _canary(run, baseline)
        except SlotFault as fault:
            if not run.rechecking:
                raise
            # The others are served too, so they are asked as well.
            failed.append((engine, fault))
            continue
        finally:
            run.evidence.canary[asked:] = [
                replace(result, replica=engine.profile.replica) for result in run.evidence.canary[asked:]
            ]
        if recording and baseline is None and answers:
            now = run.fx.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            baseline = Baseline(profile.name, profile.fingerprint, now, run.request.who, answers)
    if failed:
        run.wrong = tuple(engine for engine, _fault in failed)
        for engine, other in failed[1:]:
            run.warn(f"replica {engine.profile.replica}: {other.message}")
        run.engine, first = failed[0]
        raise first
    if recording and baseline is not None:
        try:
            run.fx.files.write(file, document(baseline, SCHEMA))
        except OSError as error:
            # The engine is not to blame, and is served; what was asked for is told to have failed by the caller.
            run.warn(f"the baseline could not be written to {file}: {error}")
        else:
            run.evidence.recorded_cases = tuple(baseline.cases)
            run.did(record_action(profile.name, run.evidence.recorded_cases))
    elif recording:
        run.warn(f"nothing to record: no canary case of {profile.name} has compare: baseline")
    run.canary_passed = True


def _canary(run: Run, baseline: Baseline | None) -> dict[str, Recorded]:
    """Return what one engine answered to the cases that are compared with a baseline. Raise SlotFault when it failed.

    baseline: None where there is none to be judged by.
    """
    engine, _unit = current_engine(run)
    profile = engine.profile
    repeats = run.request.canary_repeats or profile.canary.repeats
    recording = baseline is None and run.request.record_baseline and run.direction is Direction.FORWARD
    answers: dict[str, Recorded] = {}
    results: list[CanaryResult] = []
    for case in profile.canary.cases:
        result = _ask(run, engine, case, repeats, baseline, recording)
        results.append(result)
        run.evidence.canary.append(result)
        state = "passed" if result.passed else "failed"
        which = "" if profile.replica is None else f" of replica {profile.replica}"
        run.progress.say("hint", phase="canary", text=f"{case.name}{which} {state}")
        if result.note:
            run.warn(f"canary case {case.name} of {profile.name}: {result.note}")
        if case.compare == "baseline":
            asked = canaries.request_hash(profile, case)
            answers[case.name] = Recorded(result.sha256, result.got, asked)
    if all(result.passed for result in results):
        results += burst.ask(run, engine)
    current_engine(run)
    wrong = [result for result in results if not result.passed]
    if wrong:
        raise _failure(wrong)
    return answers


def _failure(wrong: list[CanaryResult]) -> SlotFault:
    first = wrong[0]
    why = f": {first.problem}" if first.problem else ""
    others = f"; also failed: {', '.join(result.name for result in wrong[1:])}" if len(wrong) > 1 else ""
    which = f"answer {first.attempt} of {first.attempts}"
    return SlotFault(
        f"canary case {first.name} of {first.profile} failed at {which}{why}{others}",
        expected=repr(first.expected),
        got=repr(first.got),
    )


def _ask(
    run: Run, engine: EngineRun, case: CanaryCase, repeats: int, baseline: Baseline | None, recording: bool
) -> CanaryResult:
    """Return the result of a case; raise SlotFault when no answer comes, because more requests would only wait."""
    profile = engine.profile
    asked = canaries.request_hash(profile, case)
    if case.texts or case.audio is not None:
        others: list[CanaryResult] = []
        for attempt in range(1, repeats + 1):
            others.append(_without_words(run, engine, case, attempt))
            if not others[-1].passed:
                break
        return replace(
            canaries.summed_up(others, must_agree=case.compare == "transcript"), attempts=repeats, request=asked
        )
    known, recorded = case, None
    if case.compare == "baseline" and not recording:
        recorded, problem = expected_of(baseline, profile.name, profile.fingerprint, case.name, asked)
        if recorded is None:
            return replace(canaries.unanswered(profile, case, problem), attempts=repeats)
        known = replace(case, expected=recorded.sha256)
    from_cache = profile.canary.cached and case.long is not None
    repeats = max(repeats, canaries.CACHED) if from_cache or case.stream else repeats
    results: list[CanaryResult] = []
    salt = f"canary-{run.fx.clock.monotonic():.6f}"
    for attempt in range(1, repeats + 1):
        results.append(_attempted(run, engine, known, attempt, salt))
        if recorded is not None:
            results[-1] = replace(results[-1], expected=f"baseline: {recorded.text}")
        if not results[-1].passed:
            break
    if from_cache and len(results) >= canaries.CACHED:
        results[canaries.CACHED - 1] = canaries.cached_answer(results[canaries.CACHED - 1])
    summary = canaries.summed_up(results, must_agree=case.compare == "baseline", sampled=bool(case.sampling))
    return replace(summary, attempts=repeats, request=asked)


def _attempted(run: Run, engine: EngineRun, case: CanaryCase, attempt: int, salt: str) -> CanaryResult:
    """Return the result of one attempt: of the last turn of the conversation, or of the first with a wrong answer."""
    turns = canaries.turns(case)
    for number, turn in enumerate(turns, 1):
        body = canaries.repeated(engine.profile, turn, attempt, salt, follows=number > 1)
        result = canaries.in_shape(_answered(run, engine, turn, body, attempt), turn, body, number, len(turns))
        if not result.passed:
            break
    return result


def _answered(run: Run, engine: EngineRun, case: CanaryCase, body: dict[str, Any], attempt: int) -> CanaryResult:
    """Return the result of one request."""
    profile = engine.profile
    reply, seconds = _posted(run, engine, body)
    nan = canaries.nan_logprob(reply)
    if nan and case.long is None:
        return canaries.unanswered(profile, case, canaries.NAN, canaries.refusal(reply), seconds, attempt)
    if (nan or reply.status == 400) and body.pop("logprobs", False):
        # Without them then: not every engine offers them, and far back they may be NaN where the text is right.
        reply, seconds = _posted(run, engine, body)
    try:
        got = canaries.answer(reply, profile, case, body=body)
    except SlotFault as fault:
        raise _no_answer(run, profile, case, fault, seconds, attempt) from fault
    result = canaries.evaluate(profile, case, got, seconds, attempt)
    if nan:
        passed = result.passed
        result = replace(result, note=canaries.NAN_FAR_BACK) if passed else replace(result, problem=canaries.NAN)
    return result


def _without_words(run: Run, engine: EngineRun, case: CanaryCase, attempt: int) -> CanaryResult:
    """Return the result of one attempt at a case that is answered in numbers, or with a transcript."""
    profile = engine.profile
    reply, seconds = _sent(run, engine, case)
    try:
        check = transcription.check_answer if case.audio is not None else pooling.check_answer
        return check(profile, case, reply, seconds, attempt)
    except SlotFault as fault:
        raise _no_answer(run, profile, case, fault, seconds, attempt) from fault


def _no_answer(
    run: Run, profile: Profile, case: CanaryCase, fault: SlotFault, seconds: float, attempt: int
) -> SlotFault:
    run.evidence.canary.append(canaries.unanswered(profile, case, fault.message, fault.got or "", seconds, attempt))
    wanted = pooling.expectation(case) if case.texts else canaries.expectation(case)
    text = f"canary case {case.name} of {profile.name} got no answer: {fault.message}"
    return SlotFault(text, expected=repr(wanted), got=fault.got)


def _sent(run: Run, engine: EngineRun, case: CanaryCase) -> tuple[Reply, float]:
    """Return the engine's reply to texts or to a sound, and the seconds that it took."""
    if case.audio is None:
        return _posted(run, engine, pooling.payload(engine.profile, case))
    run.give_way()
    begun, profile = run.fx.clock.monotonic(), engine.profile
    file = Upload("canary.wav", transcription.sound(case.audio), "audio/wav")
    url = f"{profile.engine.backend_url}{transcription.PATH}"
    reply = run.fx.http.upload(url, transcription.fields(profile), file, profile.canary.timeout_s)
    return reply, run.fx.clock.monotonic() - begun


def _posted(run: Run, engine: EngineRun, body: dict[str, Any]) -> tuple[Reply, float]:
    """Return the engine's reply to a body, and the seconds that it took."""
    run.give_way()
    begun = run.fx.clock.monotonic()
    url = f"{engine.profile.engine.backend_url}{pooling.PATHS.get(engine.profile.engine.task, canaries.PATH)}"
    reply = run.fx.http.post(url, body, engine.profile.canary.timeout_s)
    return reply, run.fx.clock.monotonic() - begun
