# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The items of the gate: which profiles each applies to, and the verdict on what was observed. Pure.

A verdict is (whether the item passes, why). None in place of the first means that the observation can't be judged.
Nothing passes by default: an item whose observation lacks something fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._benchmark.completeness import lacks, others
from .._slot.model.profile import Profile

Observed = Mapping[str, Any]
Verdict = tuple["bool | None", str]

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not_applicable"
UNFINISHED = "unfinished"  # of a whole gate, never of an item
LONG = (16384, 32768)  # tokens of the prompts of the item ttft, besides one near the limit
NEAR = 32  # tokens that the prompt near the limit leaves free
BUSY = "busy"


@dataclass(frozen=True)
class PromotionPlan:
    """The choices of the operator. Times are seconds.

    :param items: names of the items to run; empty for all of them.
    :param canary_repeats: how often each case of the canary is asked.
    :param refusal_limit_s: one request too many must be refused within this time.
    :param cancel_limit_s: the permits of clients that left must be free within this time.
    :param warm_share: the most of a cold prompt's time to the first token that a warm one may take. It decides only if
        the engine does not count what it takes from its cache.
    :param prompt_tokens: of each request of the ladder, as far as the context has room; output_tokens likewise.
    :param quiet_s: how long an item that other clients would disturb waits for their requests to end.
    """

    items: tuple[str, ...] = ()
    canary_repeats: int = 8
    request_timeout_s: float = 600.0
    refusal_limit_s: float = 1.0
    cancel_limit_s: float = 10.0
    warm_share: float = 0.8
    prompt_tokens: int = 2048
    output_tokens: int = 128
    quiet_s: float = 60.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "items": list(self.items)}


@dataclass(frozen=True)
class GateItem:
    """One item.

    :param applies: returns why a profile has no such item; empty if it has.
    :param vital: if this item fails, the ones after it mean nothing.
    :param replaces: the item itself replaces the engine, so a new process after it is no disturbance.
    """

    name: str
    shows: str
    judge: Callable[[Profile, PromotionPlan, Observed], Verdict]
    applies: Callable[[Profile], str] = lambda profile: ""
    vital: bool = False
    replaces: bool = False


def _writes(profile: Profile) -> str:
    return "" if profile.engine.task == "generate" else f"the model writes no text (task {profile.engine.task})"


def _sees(profile: Profile) -> str:
    return _writes(profile) or ("" if "image" in profile.modalities else "the profile accepts no pictures")


def _caches(profile: Profile) -> str:
    return _writes(profile) or ("" if profile.canary.cached else "the profile has no prefix cache")


def _claims(profile: Profile) -> str:
    return (
        ""
        if profile.canary.same_answers_as
        else "the profile does not claim another profile's answers (canary.same_answers_as)"
    )


def _models(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if observed.get("problem"):
        return False, observed["problem"]
    sides = [("id", "id"), ("max_model_len", "context length")]
    wrong = [
        f"the {words} is {observed.get(key)!r}, expected {observed.get(f'expected_{key}')!r}"
        for key, words in sides
        if observed.get(key) is None or observed.get(key) != observed.get(f"expected_{key}")
    ]
    return not wrong, "; ".join(wrong) or f"{observed['id']} with {observed['max_model_len']} tokens"


def _text(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if observed.get("problem") or not (observed.get("passed") and observed.get("got")):
        return False, observed.get("problem") or f"the answer is {observed.get('got')!r}"
    return True, f"answered {observed['got'][:60]!r}"


def _cases(observed: Observed) -> Verdict:
    cases = observed.get("cases") or []
    wrong = [case for case in cases if not case["passed"]]
    if wrong:
        one = wrong[0]
        said = f": {one['problem']}" if one["problem"] else ""
        others_too = f"; also wrong: {', '.join(case['case'] for case in wrong[1:])}" if wrong[1:] else ""
        return False, f"{one['case']}: expected {one['expected']!r}, got {one['got']!r}{said}{others_too}"
    if observed.get("problem") or not cases:
        return False, observed.get("problem") or "nothing was answered"
    return True, ""


def _image(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    right, why = _cases(observed)
    return right, why or f"{len(observed['cases'])} pictures were named rightly"


def _canary(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    right, why = _cases(observed)
    return right, why or f"{len(observed['cases'])} cases, each asked {observed['repeats']} times at least"


def _same_answers(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    rows = observed.get("cases") or []
    if not rows:
        return None, f"no case of {observed.get('profile')} can be compared"
    differ = [row["case"] for row in rows if not row["sha256"] or row["sha256"] != row["expected_sha256"]]
    if differ:
        return False, f"answers otherwise than {observed['profile']} ({observed['source']}): {', '.join(differ)}"
    return True, f"{len(rows)} cases answered as by {observed['profile']} ({observed['source']})"


def _logprobs(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    wrong = observed.get("wrong") or []
    if wrong:
        return False, f"{len(wrong)} of {observed['answers']} answers: {wrong[0]['case']}: {wrong[0]['problem']}"
    if not observed.get("values"):
        return False, "no log probability was seen"
    return True, f"{observed['values']} log probabilities in {observed['answers']} answers are finite numbers"


def _limit(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    """Check that the limit is where the profile says.

    A prompt one token over the limit is refused on both ways, with a 400 that names the limit. A prompt that leaves
    room for one token of an answer is answered.
    """
    rows, limit = observed.get("requests") or [], observed.get("max_model_len") or 0
    inside = [row for row in rows if row["prompt_tokens"] == limit - 1]
    outside = [row for row in rows if row["prompt_tokens"] == limit + 1]
    if not inside or {row["way"] for row in outside} != {"frontdoor", "engine"}:
        return False, "the limit was not asked for on both ways"
    for row in inside:
        if row["status"] != 200:
            return (
                False,
                f"{limit - 1} tokens are within the limit: {row['way']} answers {row['status']}: {row['error']}",
            )
    for row in outside:
        over = f"{limit + 1} tokens, one over the limit: {row['way']} answers {row['status']}"
        if row["status"] != 400:
            return False, f"{over}, expected 400: {row['error']}"
        if not row["type"] or not re.search(rf"(?<!\d){limit}(?!\d)", row["error"].replace(",", "")):
            return False, f"{over} without naming the limit: {row['error']}"
    return True, f"prompts of {limit - 1} tokens are answered, of {limit + 1} refused with 400"


def _overload(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if why := others(observed.get("others")):
        return None, why
    rows, permits = observed.get("requests") or [], profile.frontdoor.max_active_generations
    queues = profile.frontdoor.queue_timeout_s > 0
    admitted = [row for row in rows if row["status"] == 200 and not row["error"]]
    refused = [row for row in rows if row["status"] == 503]
    if len(rows) != permits + 1 or len(admitted) + len(refused) != len(rows):
        odd = next((row for row in rows if row not in admitted and row not in refused), None)
        return False, f"{len(rows)} requests at once for {permits} permits did not end as expected: {odd}"
    if queues:
        if refused:
            return False, f"{len(refused)} requests were refused although the profile queues: {refused[0]['code']}"
        if not observed.get("queued_most"):
            return False, "all were answered, and none was seen in the queue"
        return True, f"{len(rows)} at once for {permits} permits were all answered, {observed['queued_most']} queued"
    if len(admitted) != permits or len(refused) != 1:
        return False, f"{len(admitted)} were admitted and {len(refused)} refused; expected {permits} and 1"
    if not observed.get("overlapped"):
        return None, "the first answers ended before the last request came, so this shows nothing"
    one = refused[0]
    if one["code"] != BUSY or not one["retry_after"]:
        return False, f"refused with the code {one['code']!r} and Retry-After {one['retry_after']!r}, expected {BUSY!r}"
    if not _within(one["seconds"], plan.refusal_limit_s):
        return False, f"refused after {one['seconds']} s, expected within {plan.refusal_limit_s:g} s"
    return True, f"{permits} admitted, one refused after {one['seconds']:.3f} s"


def _within(seconds: Any, limit: float) -> bool:
    return isinstance(seconds, (int, float)) and math.isfinite(seconds) and 0 <= seconds <= limit


def _cancel(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if why := others(observed.get("others")):
        return None, why
    streams = observed.get("streams") or 0
    if not streams or observed.get("interrupted") != streams or observed.get("active_before") != streams:
        return None, (
            f"{observed.get('interrupted')} of {streams} streams were left in the middle, with "
            f"{observed.get('active_before')} permits taken: this shows nothing"
        )
    if not _within(observed.get("freed_s"), plan.cancel_limit_s):
        return False, f"after {plan.cancel_limit_s:g} s {observed.get('active_after')} permits are still taken"
    if observed.get("status_after") != 200:
        return False, f"a new request was answered with {observed.get('status_after')}: {observed.get('error_after')}"
    return True, f"{streams} streams were left, their permits were free after {observed['freed_s']:.3f} s"


def lengths(context: int) -> list[int]:
    """Return the tokens of the long prompts that fit: 16K, 32K and one near the limit."""
    near = context - NEAR
    return [*(length for length in LONG if length < near), near] if near > 0 else []


def _ttft(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if why := others(observed.get("others")):
        return None, why
    rows = observed.get("prompts") or []
    wanted = lengths(observed.get("max_model_len") or 0)
    if not rows or [row["tokens"] for row in rows] != wanted:
        return False, f"prompts of {[row['tokens'] for row in rows]} tokens were answered, expected {wanted}"
    for row in rows:
        if row["error"] or row["ttft_s"] is None:
            return False, f"{row['tokens']} tokens: {row['error'] or 'no first token came'}"
        if row["counted_tokens"] != row["tokens"]:
            return False, f"{row['tokens']} tokens: the engine counted {row['counted_tokens']}"
    return True, ", ".join(f"{row['tokens']} tokens: {row['ttft_s']:.3f} s" for row in rows)


def _prefix_cache(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if why := others(observed.get("others")):
        return None, why
    rounds = observed.get("rounds") or []
    if not rounds:
        return False, "nothing was measured"
    for row in rounds:
        if row["error"] or row["cold_s"] is None or row["warm_s"] is None:
            return False, row["error"] or "no first token came"
    cold, warm = (sum(row[key] for row in rounds) / len(rounds) for key in ("cold_s", "warm_s"))
    shown = f"first token after {cold:.3f} s cold and {warm:.3f} s warm"
    counted = [row["hits_warm"] for row in rounds]
    if None not in counted:
        taken = sum(counted) / (len(rounds) * observed["prompt_tokens"])
        if taken < 0.5:
            return False, f"{shown}, and the engine took {taken:.0%} of the warm prompts from its cache"
        return True, f"{shown}; {taken:.0%} of the warm prompts came from the cache"
    if warm > plan.warm_share * cold:
        return False, f"{shown}: warm takes more than {plan.warm_share:g} of cold, and the engine counts no hits"
    return True, shown


def _ladder(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if why := others(observed.get("others")):
        return None, why
    steps: Sequence[Observed] = observed.get("steps") or []
    if not steps or steps[0]["streams"] != 1 or steps[-1]["streams"] != profile.frontdoor.max_active_generations:
        return False, "not all numbers of streams were measured, from 1 to what the profile admits"
    for step in steps:
        for words in lacks(f"{step['streams']} streams", step["streams"] * observed["rounds"], step):
            return False, words
        if not step["wall_tok_s"] or not step["ttft_s"]:
            return False, f"{step['streams']} streams: the requests give no figure"
    return True, ", ".join(f"{step['streams']} streams: {step['wall_tok_s']:.1f} tok/s" for step in steps)


def _restart(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    if observed.get("problem"):
        return False, observed["problem"]
    if not observed.get("verified") or observed.get("before") == observed.get("after"):
        return False, "no other engine process is served, verified"
    rows = observed.get("cases") or []
    if not rows:
        return None, "no answer can be compared: each case is answered differently from one time to the next"
    differ = [row["case"] for row in rows if not row["after"] or row["before"] != row["after"]]
    if differ:
        return False, f"answers differ after the restart: {', '.join(differ)}"
    return True, f"restarted and verified in {observed['seconds']:.1f} s, {len(rows)} cases answered as before"


def _accuracy(profile: Profile, plan: PromotionPlan, observed: Observed) -> Verdict:
    score, least, asked = (observed.get(key, math.nan) for key in ("score", "threshold", "questions"))
    if not asked or not all(isinstance(one, (int, float)) and math.isfinite(one) for one in (score, least, asked)):
        return None, observed.get("problem") or "no score came"
    shown = f"{score:.4g} over {asked} questions, at least {least:.4g} is wanted"
    return score >= least, shown


# Items whose failure makes the rest meaningless come first, slow ones last.
ITEMS = (
    GateItem("models", "the models endpoint shows the id and the context length of the profile", _models, vital=True),
    GateItem("text", "a question is answered with text", _text, _writes),
    GateItem("image", "real pictures are named", _image, _sees),
    GateItem("canary", "the canary passes in all repeats, against the recorded baseline", _canary, vital=True),
    GateItem(
        "same_answers",
        "the answers are exactly those of the profile that it claims to answer as",
        _same_answers,
        _claims,
    ),
    GateItem("logprobs", "no log probability is NaN", _logprobs, _writes),
    GateItem("limit", "one token over the limit is refused, on both ways", _limit, _writes),
    GateItem("overload", "one request too many is refused at once, or queued", _overload, _writes),
    GateItem("cancel", "clients that leave free their permits", _cancel, _writes),
    GateItem("ttft", "long prompts get their first token", _ttft, _writes),
    GateItem("prefix_cache", "a prompt in the prefix cache is not computed again", _prefix_cache, _caches),
    GateItem("ladder", "all numbers of streams are answered completely", _ladder, _writes),
    GateItem("restart", "after a restart the answers are the same", _restart, replaces=True),
    GateItem("accuracy", "the score of the accuracy set reaches its threshold", _accuracy, _writes),
)
NAMES = tuple(item.name for item in ITEMS)


def chosen(plan: PromotionPlan) -> list[GateItem]:
    """Return the items to run, in order; raise ValueError, which lists the known names, if one is unknown."""
    unknown = [name for name in plan.items if name not in NAMES]
    if unknown:
        raise ValueError(f"the gate has no item {', '.join(unknown)}; its items are {', '.join(NAMES)}")
    return [item for item in ITEMS if not plan.items or item.name in plan.items]


def row(item: GateItem, profile: Profile, plan: PromotionPlan, observed: Observed) -> dict[str, Any]:
    """Judge what was observed of an item, and return its row for the record."""
    passed, why = item.judge(profile, plan, observed)
    if passed is None:
        return unmeasured(item, why, observed)
    return {"item": item.name, "verdict": PASSED if passed else FAILED, "reason": why, "observed": dict(observed)}


def left_out(item: GateItem, reason: str) -> dict[str, Any]:
    return {"item": item.name, "verdict": NOT_APPLICABLE, "reason": reason, "observed": {}}


def unmeasured(item: GateItem, reason: str, observed: Observed) -> dict[str, Any]:
    """Return the row of an item that was not measured: it has failed, but shows nothing against the profile."""
    why = f"could not be measured: {reason}"
    return {"item": item.name, "verdict": FAILED, "reason": why, "measured": False, "observed": dict(observed)}


def conclude(plan: PromotionPlan, rows: Sequence[Observed], ended: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return a gate's verdict (passed, failed or unfinished) and the reasons, one sentence each.

    Only a gate with all items can pass or fail, and it fails only if it has shown something against the profile. The
    last gate that passed or failed decides what is production.
    """
    wrong = [f"{one['item']}: {one['reason']}" for one in rows if one["verdict"] == FAILED]
    against = any(one["verdict"] == FAILED and one.get("measured", True) for one in rows)
    if ended["how"] in ("lost", "crashed", "unserved"):
        against = True
        wrong.insert(0, ended["why"])
    missing = [name for name in NAMES if name not in {one["item"] for one in rows}]
    broke_off = [] if wrong or ended["how"] == "complete" else [ended["why"]]
    if len(chosen(plan)) < len(ITEMS):
        return UNFINISHED, [*wrong, *broke_off, f"this is no promotion: {', '.join(missing)} did not run"]
    if wrong:
        not_run = [f"not run: {', '.join(missing)}"] if missing else []
        return FAILED if against else UNFINISHED, [*wrong, *not_run]
    if broke_off:
        return UNFINISHED, broke_off
    return PASSED, [summary(rows)]


def summary(rows: Sequence[Observed]) -> str:
    """Return one line for lists of records."""
    found = {name: sum(one["verdict"] == name for one in rows) for name in (PASSED, FAILED, NOT_APPLICABLE)}
    parts = [f"{found[PASSED]} of {len(NAMES)} items passed"]
    parts += [f"{found[FAILED]} failed"] if found[FAILED] else []
    parts += [f"{found[NOT_APPLICABLE]} do not apply"] if found[NOT_APPLICABLE] else []
    return ", ".join(parts)
