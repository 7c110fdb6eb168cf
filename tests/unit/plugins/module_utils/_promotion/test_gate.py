# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate on a host in memory: what passes, what each fault fails, and that nothing passes by default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._promotion import items
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.asking import Expected, cache_hits, pictures
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import ITEMS, NAMES, PromotionPlan, conclude
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import Profile
from unit.plugins.module_utils._promotion.doors import METRICS, Door, profile, run
from unit.plugins.module_utils._slot.fake_host import profile_data


def bent(changes: Mapping[str, Any] | None = None, **faults: Any) -> Door:
    """A host with these faults; changes: to its profile."""
    door = Door(profile(**(changes or {})))
    for name, value in faults.items():
        assert hasattr(door, name), name
        setattr(door, name, value)
    return door


def rows(seen: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {row["item"]: (row["verdict"], row["reason"]) for row in seen["rows"]}


def verdicts(seen: Mapping[str, Any]) -> dict[str, str]:
    return {name: verdict for name, (verdict, _reason) in rows(seen).items()}


def test_a_sound_profile_passes_with_its_figures() -> None:
    door = bent()
    seen = run(door)
    found = verdicts(seen)
    assert tuple(found) == NAMES
    assert {name for name, verdict in found.items() if verdict != "passed"} == {"same_answers"}
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert (verdict, reasons) == ("passed", ["13 of 14 items passed, 1 do not apply"])
    assert (seen["before"], seen["after"]) == (seen["after"], seen["before"])
    assert seen["served"] == {"profile": "a", "verified": True, "open": True}
    by = {row["item"]: row["observed"] for row in seen["rows"]}
    assert [row["status"] for row in by["overload"]["requests"]] == [200, 200, 503]
    assert [row["tokens"] for row in by["ttft"]["prompts"]] == [480]
    assert [step["streams"] for step in by["ladder"]["steps"]] == [1, 2]
    assert by["canary"]["repeats"] == 8
    assert door.saved > len(NAMES)


@pytest.mark.parametrize(
    ("item", "words", "fault"),
    [
        ("models", "the id is 'another', expected 'a'", {"served_id": "another"}),
        ("models", "the context length is 99, expected 512", {"length": 99}),
        ("models", "the context length is None", {"length": None}),
        ("image", "red_image: expected 'contains: red', got 'It is blue.'", {"picture": "It is blue."}),
        ("canary", "sum: expected", {"answers": {"say OK": "OK", "3 + 4": "slh"}}),
        ("logprobs", "the engine computes NaN", {"logprob": math.nan}),
        ("logprobs", "the log probability of 'A' is None", {"logprob": None}),
        ("limit", "answers 500, expected 400", {"wrong_limit_status": 500}),
        ("limit", "511 tokens are within the limit: frontdoor answers 400", {"limit": 500}),
        ("limit", "without naming the limit", {"limit": 513}),
        ("limit", "without naming the limit", {"named_limit": 1512}),
        ("limit", "without naming the limit", {"named_limit": 5120}),
        ("overload", "3 were admitted and 0 refused; expected 2 and 1", {"admits": 3}),
        ("overload", "1 were admitted and 2 refused; expected 2 and 1", {"admits": 1}),
        ("overload", "refused after 1.4 s, expected within 1 s", {"refusal_s": 1.4}),
        ("overload", "with the code 'queue_timeout'", {"refusal_code": "queue_timeout"}),
        ("overload", "did not end as expected", {"refuses_by": 502}),
        ("cancel", "after 10 s 1 permits are still taken", {"leaks": True}),
        ("prefix_cache", "took 0% of the warm prompts", {"caches": False}),
        ("prefix_cache", "the engine counts no hits", {"caches": False, "counts_hits": False}),
        ("restart", "answers differ after the restart: sum", {"after_restart": {"3 + 4": "It is 7."}}),
        ("restart", "phase health: it is silent", {"restarts": False}),
        ("accuracy", "0.5 over 40 questions, at least 0.9 is wanted", {"score": 0.5}),
        ("text", "the engine did not answer", {"broken": "/v1/chat"}),
    ],
)
def test_a_fault_fails_its_item_and_says_why(item: str, words: str, fault: dict[str, Any]) -> None:
    seen = run(bent(**fault))
    verdict, reason = rows(seen)[item]
    assert verdict == "failed"
    assert words in reason
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"])[0] == "failed"


@pytest.mark.parametrize(
    ("item", "words", "fault"),
    [
        ("overload", "ended before the last request came", {"late_s": 60.0}),
        ("accuracy", "no score came", {"score": None}),
        ("ttft", "could not be measured: the engine counts no tokens", {"broken": "/tokenize"}),
        ("ladder", "other clients use the host", {"strangers": 1}),
        ("restart", "no answer can be compared", {"varying": ("exact_ok", "sum")}),
    ],
)
def test_what_could_not_be_measured_shows_nothing_against_the_profile(
    item: str, words: str, fault: dict[str, Any]
) -> None:
    """It promotes nothing, and takes nothing away."""
    seen = run(bent(**fault), PromotionPlan(quiet_s=2.0))
    verdict, reason = rows(seen)[item]
    assert (verdict, words in reason) == ("failed", True)
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert verdict == "unfinished"
    assert any(reason.startswith(f"{item}: could not be measured: ") for reason in reasons)
    seen["rows"][0]["verdict"] = "failed"
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"])[0] == "failed"


@pytest.mark.parametrize("item", ["overload", "cancel", "ttft", "prefix_cache", "ladder"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"strangers": 1}, "other clients use the host"),
        ({"stranger_active": 1}, "other clients use the host (1 generations before"),
        ({"tells_counts": False}, "did not tell whether other clients use the host"),
    ],
)
def test_what_other_clients_disturb_is_judged_by_nobody(item: str, fault: dict[str, Any], words: str) -> None:
    door = bent(**fault)
    verdict, reason = rows(run(door, PromotionPlan(items=(item,), quiet_s=2.0)))[item]
    assert (verdict, words in reason) == ("failed", True)


def test_nothing_passes_by_default() -> None:
    for item in ITEMS:
        found = items.row(item, profile(), PromotionPlan(), {})
        assert (found["item"], found["verdict"]) == (item.name, "failed")
        assert found["reason"]


def test_a_queue_takes_one_request_too_many() -> None:
    door = bent({"frontdoor__queue_timeout_s": 60})
    found = rows(run(door))["overload"]
    assert found == ("passed", "3 at once for 2 permits were all answered, 1 queued")
    door = bent({"frontdoor__queue_timeout_s": 60}, admits=3)
    assert rows(run(door))["overload"] == ("failed", "all were answered, and none was seen in the queue")


def test_a_picture_without_an_answer_of_its_own_is_no_proof_of_sight() -> None:
    """compare: baseline takes any answer while there is no baseline; the gate's own pictures are asked in its place."""
    case = {"name": "picture", "prompt": "What is this?", "max_tokens": 8, "compare": "baseline", "expected": ""}
    own = {**case, "image": {"colour": "red", "width": 64, "height": 64}}
    cases = [*profile_data("a")["canary"]["cases"], own]
    one = profile(canary__cases=cases)
    assert [asked.name for asked in pictures(one)] == ["red_image", "blue_image"]
    named = {**own, "compare": "contains", "expected": "red"}
    assert [asked.name for asked in pictures(profile(canary__cases=[*cases, {**named, "name": "ours"}]))] == ["ours"]


def test_items_that_do_not_apply_say_why() -> None:
    found = rows(run(bent({"modalities": ["text"], "canary__cached": False})))
    assert found["image"] == ("not_applicable", "the profile accepts no pictures")
    assert found["prefix_cache"] == ("not_applicable", "the profile has no prefix cache")
    assert found["same_answers"][0] == "not_applicable"


def test_a_model_that_writes_no_text_has_what_is_left() -> None:
    one = profile(engine__task="embed")
    assert {item.name for item in ITEMS if not item.applies(one)} == {"models", "canary", "restart"}


def twin(**changes: Any) -> tuple[Profile, Expected]:
    """A profile that claims the answers of another one, and what that one answers."""
    one = profile(canary__same_answers_as="b")
    sha = {case.name: canary.digest({"exact_ok": "OK", "sum": "7"}[case.name]) for case in one.canary.cases}
    requests = {case.name: canary.request_hash(one, case) for case in one.canary.cases}
    return one, Expected("its baseline of 2026-06-07T09:00:00Z", {**sha, **changes}, requests)


def test_the_claim_to_answer_as_another_profile_is_held_to_every_hash() -> None:
    one, others = twin()
    door = Door(one)
    door.others = others
    seen = run(door)
    assert rows(seen)["same_answers"] == ("passed", "2 cases answered as by b (its baseline of 2026-06-07T09:00:00Z)")
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"])[0] == "passed"
    door = Door(one)
    door.others = twin(sum=canary.digest("It is 7."))[1]
    assert rows(run(door))["same_answers"] == (
        "failed",
        "answers otherwise than b (its baseline of 2026-06-07T09:00:00Z): sum",
    )


def test_what_an_engine_answers_differently_by_itself_is_held_to_no_hash() -> None:
    """Sums in another order give other tokens on a card; the repeats of such a case differ."""
    one, others = twin(sum=canary.digest("It is 7."))
    door = Door(one)
    door.others, door.varying, door.after_restart = others, ("sum",), {"3 + 4": "It is 7."}
    seen = run(door)
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"])[0] == "passed"
    by = {row["item"]: row["observed"] for row in seen["rows"]}
    assert ([row["case"] for row in by["same_answers"]["cases"]], by["same_answers"]["not_compared"]) == (
        ["exact_ok"],
        ["sum"],
    )
    assert by["restart"]["unsteady"] == ["sum"]
    assert set(seen["before"]["hashes"]) == set(seen["after"]["hashes"]) == {"exact_ok"}


def test_a_case_that_varies_only_after_the_restart_is_not_compared() -> None:
    seen = run(bent(varying_after=("sum",), after_restart={"3 + 4": "It is 7."}))
    assert rows(seen)["restart"][0] == "passed"


@pytest.mark.parametrize(
    ("kind", "body", "hits"),
    [
        ("vllm", {"model": "a", "prompt": "x", "add_special_tokens": False}, 96.0),
        ("llama-server", {"content": "x", "add_special": False}, None),
    ],
)
def test_each_kind_counts_tokens_and_hits_in_its_own_words(kind: str, body: dict[str, Any], hits: float | None) -> None:
    assert kind_of(kind).tokenize("a", "x") == body
    assert cache_hits(profile(engine__kind=kind), METRICS.format(hits=96.0)) == hits


def test_a_warm_answer_may_differ_from_the_cold_one() -> None:
    seen = run(bent(warm_text="1"))
    assert rows(seen)["prefix_cache"][0] == "passed"
    (first, *_more) = next(row["observed"]["rounds"] for row in seen["rows"] if row["item"] == "prefix_cache")
    assert first["cold_sha256"] != first["warm_sha256"]


@pytest.mark.parametrize(
    "others", [None, Expected("", {}, {}), Expected("its record", {"sum": "0"}, {"sum": "another"})]
)
def test_a_claim_that_nothing_can_be_compared_with_fails(others: Expected | None) -> None:
    door = Door(twin()[0])
    door.others = others
    assert rows(run(door))["same_answers"][0] == "failed"


@pytest.mark.parametrize("fault", [{"served_id": "another"}, {"answers": {"say OK": "no", "3 + 4": "7"}}])
def test_what_makes_the_rest_meaningless_ends_the_gate(fault: dict[str, Any]) -> None:
    seen = run(bent(**fault))
    assert seen["ended"]["how"] == "vital"
    assert "restart" not in rows(seen)
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert verdict == "failed"
    assert "not run: " in reasons[-1]
    # What is served was asked once more, and left.
    assert seen["after"] is not None


def test_chosen_items_promote_nothing() -> None:
    plan = PromotionPlan(items=("overload", "cancel"))
    seen = run(bent(), plan)
    assert verdicts(seen) == {"overload": "passed", "cancel": "passed"}
    verdict, reasons = conclude(plan, seen["rows"], seen["ended"])
    assert verdict == "unfinished"
    assert reasons[0].startswith("this is no promotion: models, text")
    # Nor do they take anything away: only a whole gate does.
    seen = run(bent(admits=3), plan)
    verdict, reasons = conclude(plan, seen["rows"], seen["ended"])
    assert (verdict, reasons[0]) == ("unfinished", "overload: 3 were admitted and 0 refused; expected 2 and 1")
    seen = run(bent(gone_after=9, gone_how=("lost", "a card was lost")), plan)
    verdict, reasons = conclude(plan, seen["rows"], seen["ended"])
    assert (verdict, reasons[0]) == ("unfinished", "a card was lost")
    with pytest.raises(ValueError, match="the gate has no item overlod; its items are models, text"):
        items.chosen(PromotionPlan(items=("overlod",)))


def test_the_restart_alone_asks_the_canary_first() -> None:
    seen = run(bent(), PromotionPlan(items=("restart",)))
    assert verdicts(seen) == {"restart": "passed"}
    seen = run(bent(answers={"say OK": "no", "3 + 4": "7"}), PromotionPlan(items=("restart",)))
    assert rows(seen)["restart"] == ("failed", "could not be measured: the canary does not pass")


LOOKS = 60


@pytest.mark.parametrize("after", range(LOOKS))
def test_a_switch_ends_the_gate_at_every_look(after: int) -> None:
    door = bent(gone_after=after)
    seen = run(door)
    if seen["ended"]["how"] == "complete":
        assert door.looks <= after
        return
    assert seen["ended"]["how"] == "replaced"
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"]) == ("unfinished", [door.gone_how[1]])
    asked = door.requests
    assert door.looks == after + 1, "nothing is looked at or asked after that"
    assert door.requests == asked


@pytest.mark.parametrize("how", ["lost", "crashed"])
def test_an_engine_that_ends_by_itself_has_failed(how: str) -> None:
    seen = run(bent(gone_after=9, gone_how=(how, "it ended by itself")))
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert (verdict, reasons[0]) == ("failed", "it ended by itself")


def test_a_gate_that_is_told_to_end_keeps_what_it_saw() -> None:
    seen = run(bent(told_after=9))
    assert seen["ended"]["how"] == "told"
    assert rows(seen)["models"][0] == "passed"
    assert conclude(PromotionPlan(), seen["rows"], seen["ended"])[0] == "unfinished"


def test_a_restart_that_fails_is_no_switch_of_somebody_else() -> None:
    seen = run(bent(restarts=False))
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert (verdict, reasons) == ("failed", ["restart: phase health: it is silent", "not run: accuracy"])
    assert seen["served"]["verified"] is False


def test_an_engine_that_is_not_served_afterwards_fails_the_gate() -> None:
    seen = run(bent(serves_after=False))
    verdict, reasons = conclude(PromotionPlan(), seen["rows"], seen["ended"])
    assert (verdict, reasons[0]) == ("failed", "a is not served, verified, after the gate")
