# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person is told of profiles: figures with their conditions, who says so, and why one is not served."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import examined
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.offers import offers, provenance, rate, summary
from unit import shipped
from unit.plugins.module_utils._evidence.records import record
from unit.shipped import load_inline

STACKS = load_stacks()
# A recipe with evidence as owners give it.
RECIPE: dict[str, Any] = {
    "name": "recipe",
    "status": "candidate",
    "recommended": {
        "cards": [1],
        "reason": "It is quick.",
        "record": {"source": "its owner", "runtime": "26.35", "firmware": "GuC 70.72.1"},
    },
    "stack": "xpu",
    "cards": 1,
    "model": {"hf_repo": "RedHatAI/Qwen3.8-27B-INT4", "directory": "recipe"},
    "engine": {"settings": {"max_model_len": 2048}},
    "evidence": {
        "source": "bklinkradt/arc-b70-llm-stack",
        "date": "2026-10-01",
        "grade": "community",
        "host_class": "two cards, slow processor",
        "stack": "image v0.30.0 with runtime 26.35",
        "tok_s": [
            {"value": 54, "measure": "decode", "note": "prose, 3 draft tokens"},
            {"value": 71, "measure": "decode", "note": "code, 3 draft tokens"},
            {"value": 220, "up_to": 843, "streams": 32, "cards": 2, "prompt_tokens": 2048, "ttft_s": 1.5},
        ],
        "quality": {"verdict": "passed", "detail": "0 of 40 replies were corrupt"},
    },
}


def load(**change: Any) -> dict[str, dict[str, Any]]:
    profiles = load_inline({"recipe": {**RECIPE, **change}}, stacks=STACKS)
    return {"recipe": profiles["recipe"]}


def test_a_figure_carries_its_conditions() -> None:
    first, _second, third = RECIPE["evidence"]["tok_s"]
    assert rate(first) == "54 tok/s (1 stream, decode, prose, 3 draft tokens)"
    assert rate(third) == "220 to 843 tok/s (32 streams, on 2 cards, 2,048 tokens loaded, first token after 1.5 s)"
    assert summary(RECIPE["evidence"]) == "54 tok/s with 1 stream, up to 843 with 32 streams"
    assert summary({"tok_s": [first]}) == "54 tok/s with 1 stream"
    assert summary({"source": "none recorded"}) == ""


def test_a_profile_is_told_with_all_that_makes_its_figures_worth_something() -> None:
    who, what = "bklinkradt/arc-b70-llm-stack, 2026-10-01, community", "on image v0.30.0 with runtime 26.35"
    assert offers(load(), STACKS, 1, everything=True) == [
        "recipe: 1 card, candidate, stack xpu, recommended for 1 card; model RedHatAI/Qwen3.8-27B-INT4",
        "  54 tok/s (1 stream, decode, prose, 3 draft tokens)",
        "  71 tok/s (1 stream, decode, code, 3 draft tokens)",
        "  220 to 843 tok/s (32 streams, on 2 cards, 2,048 tokens loaded, first token after 1.5 s)",
        f"  {who}; host: two cards, slow processor; {what}; quality passed (0 of 40 replies were corrupt)",
        "1 of 1 profiles can be served on 1 card; a host's own check comes with site.yml",
    ]


def test_the_overview_is_a_table_of_what_can_be_served_with_the_recommended_first() -> None:
    shipped_, other = load()["recipe"], load(status="experiment", recommended=None, evidence={"source": "a forum"})
    refused = load(status="rejected", status_reason="It fails.")["recipe"]
    profiles = {name: {**one, "name": name} for name, one in (("a", other["recipe"]), ("b", shipped_), ("c", refused))}
    about = "  model RedHatAI/Qwen3.8-27B-INT4; stack xpu"
    assert offers(profiles, STACKS, 1) == [
        "PROFILE  CARDS  STATUS                  SPEED",
        "b        1      candidate, recommended  54 tok/s with 1 stream, up to 843 with 32 streams",
        about,
        "  bklinkradt/arc-b70-llm-stack, 2026-10-01, community",
        "a        1      experiment              not measured",
        about,
        "  a forum",
        "2 of 3 profiles can be served on 1 card; a host's own check comes with site.yml",
        "All that is known of them, and why the others are not served: -e b70_all=true",
    ]


def test_a_profile_of_several_nodes_says_how_many_cards_each_has() -> None:
    graphs = {"cudagraph_mode": "NONE"}
    settings = {"max_model_len": 2048, "pipeline_parallel_size": 2, "compilation_config": graphs}
    told = offers(load(nodes=2, engine={"settings": settings}), STACKS, 1, everything=True)
    assert told[0].startswith("recipe: 1 card on each of 2 nodes, candidate")


def test_a_figure_without_its_host_says_so() -> None:
    assert provenance({"source": "a forum", "tok_s": [{"value": 3}]}) == "a forum; host: unknown; quality not recorded"
    assert provenance({"source": "none recorded"}) == "none recorded"


def test_what_is_not_served_is_there_with_its_reason() -> None:
    told = offers(
        load(status="rejected", status_reason="It fails the arithmetic canary (30 instead of 14)."),
        STACKS,
        1,
        everything=True,
    )
    assert "  NOT SERVED: recipe is rejected: It fails the arithmetic canary (30 instead of 14)." in told
    told = offers(load(stack="lab-2.11"), STACKS, 1, everything=True)
    assert told[1].startswith("  NOT SERVED: Stack lab-2.11 cannot be installed: ")
    assert told[-1].startswith("0 of 1 profiles can be served on 1 card")


def test_a_rule_that_is_broken_on_purpose_is_told() -> None:
    engine = {"settings": {"max_model_len": 2048}, "env": {"VLLM_USE_V2_MODEL_RUNNER": ""}}
    changed = load(engine=engine, accepts_rules=["blank-model-runner"], recommended=None)
    (line,) = [line for line in offers(changed, STACKS, 1, everything=True) if "rule" in line]
    assert line.startswith("  breaks the rule blank-model-runner of its stack on purpose: The engine crashes")


@pytest.mark.parametrize(
    ("cards", "shown", "more"), [(0, False, False), (1, True, False), (4, True, False), (None, True, False)]
)
def test_profiles_go_by_cards(cards: int | None, shown: bool, more: bool) -> None:
    told = offers(load(), STACKS, cards, everything=True)
    assert (told[0].startswith("recipe:"), "more need" in told[-1]) == (shown, more)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("qwen38-27b-int4", None),
        ("qwen38-27b-int4-tp2", "59 GiB"),
        ("qwen38-27b-int4-tp2-image", "59 GiB"),
        ("qwen38-27b-fp8-tp4", "105 GiB"),
        # An engine on each card sees no other.
        ("qwen38-27b-int4-replicas", None),
    ],
)
def test_the_mirror_of_several_cards_is_told(name: str, told: str | None) -> None:
    lines = offers({name: shipped.profiles()[name]}, STACKS, 4, everything=True)
    line = f"  takes {told} of the host's memory, in which the driver mirrors what the cards hold"
    assert (line in lines) is bool(told)
    assert told or not any("mirrors" in text for text in lines)
    off = shipped.profiles()[name] | {
        "engine": {**shipped.profiles()[name]["engine"], "host_mirror": "no_deferred_backing"}
    }
    assert not any("mirrors" in text for text in offers({name: off}, STACKS, 4, everything=True))


def test_the_shipped_catalogue_is_told_by_cards_and_status() -> None:
    told = [
        line
        for line in offers(shipped.profiles(), STACKS, 4, "gemma4-12b", everything=True)
        if not line.startswith(" ")
    ]
    assert told[0].startswith("gemma4-12b-it-int4-autoround")
    assert "rejected" in told[-2]
    assert (
        offers(shipped.profiles(), STACKS, 1, "gemma4-12b", everything=True)[-1] == "14 more need more or other cards"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": ...}, "evidence.source: is missing"),
        ({"ladder": 1}, 'evidence.ladder: unknown key "ladder"'),
        ({"date": "June"}, "must be a day like"),
        ({"grade": "good"}, "is none of lab, community, reported, vendor"),
        ({"tok_s": [{"values": 3}]}, 'did you mean "value"?'),
        ({"quality": {"verdict": "fine"}}, "is none of passed, mixed, failed, unknown"),
    ],
)
def test_evidence_of_another_shape_is_refused(change: dict[str, Any], message: str) -> None:
    evidence = {key: value for key, value in {**RECIPE["evidence"], **change}.items() if value is not ...}
    with pytest.raises(CatalogueError) as caught:
        load(evidence=evidence)
    assert message in str(caught.value)


def test_what_the_operator_s_own_hosts_recorded_stands_with_the_profile():
    one = next(iter(load()))
    recorded = {
        "b70-01": [record("soak", "2026-11-21T20:00:00Z", profile=one, verdict="failed", reasons=["it fell silent"])],
        "b70-02": [
            record("benchmark", "2026-11-22T04:16:00Z", profile=one, data={"summary": "781 tok/s"}),
            record("soak", "2026-11-20T20:00:00Z", profile=one),
            record("soak", profile="another"),
        ],
    }
    rows = {host: [row(item) for item in records] for host, records in recorded.items()}
    assert [line for line in offers(load(), STACKS, 1, recorded=rows) if "recorded:" in line] == [
        "  recorded: benchmark passed on b70-02, 2026-11-22: 781 tok/s",
        "  recorded: soak failed on b70-01, 2026-11-21, and on 1 other host: it fell silent",
    ]


def test_a_profile_is_production_where_the_operator_s_hosts_say_so():
    one = next(iter(load()))

    def gate(day: int, parts: str = examined(load()[one]), **given: Any) -> dict[str, Any]:
        told = {"profile": one, "fingerprint": "sha256:1", "data": {"summary": "", "examined": parts}}
        return row(record("promotion", f"2026-11-2{day}T04:16:00Z", **{**told, **given}))

    rows = {
        "b70-01": [gate(2, verdict="failed"), gate(1)],
        "b70-02": [gate(1)],
        "b70-03": [gate(1, fingerprint="sha256:2"), gate(2, profile="another")],
        "b70-04": [gate(3)],
        "b70-05": [gate(3, parts="sha256:of other permits")],
    }
    assert [line for line in offers(load(), STACKS, 1, recorded=rows) if "production" in line] == [
        "  production on b70-02, b70-04, as fingerprint 1",
        "  production on b70-03, as fingerprint 2",
    ]
