# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is to serve and which stacks it needs, from the shipped catalogue and what was read of the host."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import Here, choose, nearest, recommended
from ansible_collections.arcpro.b70.plugins.plugin_utils._slots import slot_places
from unit import shipped
from unit.shipped import load_inline

ROOT = "/opt/b70/stacks"
MODELS = "/mnt/fast-ai/llm-models"
STACKS = load_stacks()
RECORD = {"source": "an owner", "runtime": "26.35.39758.10", "firmware": "GuC 70.72.1 on kernel 7.2.7"}
# One small recipe for each number of cards, beside the shipped ones.
OURS: dict[str, dict[str, Any]] = {
    name: {
        "name": name,
        "status": status,
        "status_reason": "no kernel",
        "stack": stack,
        "cards": cards,
        "model": {"directory": name, "size_gb": 20, "hf_repo": f"owner/{name}"},
        "engine": {"settings": {"max_model_len": 2048}},
        **({"recommended": {"cards": counts, "reason": f"{name} is good.", "record": RECORD}} if counts else {}),
        "evidence": {"source": "an owner", "quality": {"verdict": "passed"}},
    }
    for name, status, stack, cards, counts in [
        ("on-none", "candidate", "cpu", 0, [0]),
        ("on-one", "production", "xpu", 1, [1]),
        ("on-two", "candidate", "xpu", 2, [2]),
        ("on-four", "candidate", "lab-minimax", 4, [4]),
        ("spare-one", "experiment", "xpu", 1, []),
        ("stuck", "experiment", "lab-2.11", 1, []),
        ("parked", "blocked", "xpu", 1, []),
    ]
}
CATALOGUE = {name: profile | {"recommended": None} for name, profile in shipped.profiles().items()} | {
    name: profile for name, profile in load_inline(OURS, stacks=STACKS).items() if name in OURS
}


def host(cards: int = 4, served: str = "", **more: Any) -> dict[str, Any]:
    """What b70_host_info returns, as far as the choice reads it."""
    free = {"exists": False, "is_dir": False, "free_mib": 900_000}
    profiles = [{"name": served, "stack": "xpu", "stack_id": "xpu-0123456789"}] if served else []
    return {
        "system": {"id": "ubuntu", "version": "24.04", "machine": "x86_64"},
        "python": "3.12.3",
        "cards": [{"address": f"0000:0{number}:00.0"} for number in range(cards)],
        "stacks": [],
        "paths": {ROOT: free, **{f"{MODELS}/{name}": free for name in OURS}},
        "problems": [],
        "slot": {"profile": served or None, "profiles": profiles},
        **more,
    }


def chosen(found: dict[str, Any], requested: str = "", default: str = "") -> dict[str, Any]:
    return choose(CATALOGUE, Here(STACKS, found, ROOT, MODELS), requested, default)


def installed(name: str) -> dict[str, Any]:
    return {"id": stack_id(STACKS[name]), "complete": True}


def test_what_was_asked_for_brings_its_stack_and_no_other() -> None:
    found = chosen(host(), "on-one")
    assert (found["profile"], found["reason"], found["problems"]) == ("on-one", "it was asked for", [])
    assert (found["stacks"], found["compiles"], found["cards"]) == (["xpu"], False, 4)


def test_what_is_served_keeps_its_stack_beside_that_of_the_new_one() -> None:
    found = chosen(host(served="on-one"), "on-four")
    assert (found["profile"], found["stacks"], found["compiles"]) == ("on-four", ["lab-minimax", "xpu"], True)


def test_without_a_word_what_is_served_stays() -> None:
    found = chosen(host(served="on-one"), default="on-four")
    assert (found["profile"], found["stacks"]) == ("on-one", ["xpu"])
    assert found["reason"].startswith("the slot serves it, or served it last")


def test_what_boots_keeps_its_stack_too() -> None:
    slot = {
        "profile": "on-one",
        "profiles": [{"name": name, "stack": "?", "stack_id": "?"} for name in ("on-one", "on-none")],
    }
    assert chosen(host(slot=slot))["stacks"] == ["xpu", "cpu"]


def test_what_is_served_and_is_in_no_catalogue_any_more_stays() -> None:
    found = chosen(host(served="gone"))
    assert (found["profile"], found["stacks"], found["problems"]) == ("gone", ["xpu"], [])


@pytest.mark.parametrize("profile", ["stuck", None])
def test_a_request_for_what_runs_now_is_not_refused_for_what_only_an_installation_needs(profile: str | None) -> None:
    slot = {"profile": profile, "profiles": [{"name": "stuck", "stack": "?", "stack_id": "lab-2.11-0123456789"}]}
    found = chosen(host(slot=slot), "stuck")
    assert (found["profile"], found["stacks"], found["problems"]) == ("stuck", [], [])
    assert found["notes"][0].startswith("stuck keeps the stack that it runs on")
    assert chosen(host(), "stuck")["problems"]


def test_what_is_served_on_a_stack_that_cannot_be_installed_any_more_goes_on() -> None:
    slot = {
        "profile": "old",
        "profiles": [{"name": "old", "stack": "lab-2.11", "stack_id": "lab-2.11-0123456789"}],
    }
    found = chosen(host(slot=slot))
    assert (found["profile"], found["stacks"], found["problems"]) == ("old", [], [])
    (note,) = found["notes"]
    assert note.startswith("old keeps the stack that it runs on (lab-2.11-0123456789): Stack lab-2.11 cannot be inst")


def test_an_empty_slot_gets_what_the_inventory_names() -> None:
    found = chosen(host(), default="on-two")
    assert (found["profile"], found["reason"]) == (
        "on-two",
        "the slot is empty, and b70_profile in the inventory names it",
    )


@pytest.mark.parametrize(
    ("cards", "name", "stacks"),
    [
        (0, "on-none", ["cpu"]),
        (1, "on-one", ["xpu"]),
        (2, "on-two", ["xpu"]),
        (3, "on-two", ["xpu"]),
        (4, "on-four", ["lab-minimax"]),
        (8, "on-four", ["lab-minimax"]),
    ],
)
def test_an_empty_slot_gets_what_is_recommended_for_its_cards(cards: int, name: str, stacks: list[str]) -> None:
    found = chosen(host(cards))
    assert (found["profile"], found["stacks"], found["problems"]) == (name, stacks, [])
    for words in (f"{name} is good", "-e profile=NAME", f"ansible-playbook arcpro.b70.show_models -e cards={cards}"):
        assert words in found["reason"]


def test_where_the_recommended_cannot_be_served_the_next_is_taken_or_nobody() -> None:
    small = host(4)
    small["paths"][ROOT] = {"exists": True, "is_dir": True, "free_mib": 10}
    small["stacks"] = [installed("xpu")]
    assert chosen(small)["profile"] == "on-two", "its stack is there already"
    small["stacks"] = []
    found = chosen(small)
    assert (found["profile"], found["stacks"], found["problems"]) == ("", [], [])
    assert "nothing that is recommended for 4 cards can be served here; choose with -e profile=NAME" in found["reason"]
    assert "10 MiB are free" in found["reason"]


def test_a_host_with_cards_is_never_given_what_needs_none() -> None:
    only = {"on-none": CATALOGUE["on-none"]}
    assert recommended(only.values(), 2) == []
    found = choose(only, Here(STACKS, host(2), ROOT, MODELS))
    assert (found["profile"], found["stacks"]) == ("", [])
    assert "nothing that is recommended for 2 cards is in the catalogue" in found["reason"]


@pytest.mark.parametrize(
    ("name", "found", "why"),
    [
        ("on-four", host(2), "on-four needs 4 cards, this host has 2 cards."),
        ("on-one", host(0), "on-one needs 1 card, this host has no card."),
        ("gemma4-12b-it-int4-autoround-c12", host(), "is rejected: 2026-06-07, device lost"),
        ("parked", host(), "parked is blocked: no kernel"),
        ("stuck", host(), "Stack lab-2.11 cannot be installed: The patches of the lab cannot be composed"),
        ("on-one", host(system={"machine": "aarch64"}), "Stack xpu is for x86_64, this host is aarch64"),
        ("on-one", host(problems=["The system is 'Fedora': use Debian."]), "The system is 'Fedora': use Debian."),
    ],
)
def test_a_host_that_cannot_serve_it_is_refused_with_the_reason(name: str, found: dict[str, Any], why: str) -> None:
    refused = chosen(found, name)
    assert why in " ".join(refused["problems"])
    assert refused["advice"]


def test_too_little_room_is_said_for_stack_and_weights() -> None:
    found = host(1)
    found["paths"][ROOT] = {"exists": True, "is_dir": True, "free_mib": 100}
    found["paths"][f"{MODELS}/on-one"] = {"exists": False, "is_dir": False, "free_mib": 5000}
    stack, weights = chosen(found, "on-one")["problems"]
    assert "Stack xpu needs 24000 MiB below /opt/b70/stacks, 100 MiB are free" in stack
    assert weights.startswith("The weights of on-one take 20 GB, and 5 GB are free for /mnt/fast-ai/llm-models/on-one")
    found["stacks"] = [installed("xpu")]
    found["paths"][f"{MODELS}/on-one"]["exists"] = True
    assert chosen(found, "on-one")["problems"] == [], "what is there already needs no room"


def test_a_revision_that_is_not_there_needs_room_unless_somebody_put_the_files_there() -> None:
    found, commit = host(1, stacks=[installed("xpu")]), "c" * 40
    own = CATALOGUE["on-one"]
    pinned = {**own, "model": {**own["model"], "revision": commit}}
    here = Here(STACKS, found, ROOT, MODELS)
    found["paths"][f"{MODELS}/on-one@{commit}"] = {"exists": False, "is_dir": False, "free_mib": 5000}
    assert [text[:33] for text in here.against(pinned)] == ["The weights of on-one take 20 GB,"]
    found["paths"][f"{MODELS}/on-one"] = {"exists": True, "is_dir": True, "free_mib": 5000}
    assert here.against(pinned) == []


def test_an_installed_stack_is_had_whatever_its_manifest_says() -> None:
    found = chosen(host(1, stacks=[installed("lab-2.11")]), "stuck")
    assert (found["problems"], found["stacks"]) == ([], ["lab-2.11"])


def test_a_status_that_the_site_accepts_is_served() -> None:
    found = choose(CATALOGUE, Here(STACKS, host(), ROOT, MODELS, ["blocked"]), "gemma4-12b-it-int4-autoround-c12")
    assert found["problems"] == []


def test_a_card_that_is_not_there_is_named() -> None:
    inline = {"far": OURS["on-one"] | {"name": "far", "engine": {"settings": {"max_model_len": 2048}, "devices": [3]}}}
    catalogue = load_inline(inline, stacks=STACKS)
    found = choose(catalogue, Here(STACKS, host(2), ROOT, MODELS), "far")
    assert found["problems"] == ["far uses card 3 (engine.devices), the last one of this host is card 1."]


def test_the_advice_names_the_nearest_that_can_be_served_here() -> None:
    assert "Nearest that can be served here: on-one (on-one);" in chosen(host(2), "on-four")["advice"]
    assert (
        "Nearest that can be served here: gemma4-12b-it-int4-autoround"
        in (chosen(host(4), "gemma4-12b-it-int4-autoround-c12")["advice"])
    )
    nothing = choose({"on-four": CATALOGUE["on-four"]}, Here(STACKS, host(2), ROOT, MODELS), "on-four")
    models = "ansible-playbook arcpro.b70.show_models -e cards=2"
    assert nothing["advice"].startswith(f"No profile of the catalogue can be served here; {models}")


def test_the_nearest_has_the_same_weights_before_anything_else() -> None:
    c12 = CATALOGUE["gemma4-12b-it-int4-autoround-c12"]
    found = nearest(c12, CATALOGUE.values())
    assert found is not None
    assert found["model"]["hf_repo"] == c12["model"]["hf_repo"]


def test_a_recommendation_that_its_own_cards_contradict_is_a_fault() -> None:
    wrong = OURS["on-two"] | {"name": "x", "recommended": {"cards": [1], "reason": "why not"}}
    with pytest.raises(CatalogueError, match=r"recommended.cards\[0\]: 1 does not go with cards: 2"):
        load_inline({"x": wrong}, stacks=STACKS)
    wrong = OURS["on-none"] | {"name": "x", "recommended": {"cards": [1], "reason": "why not"}}
    with pytest.raises(CatalogueError, match="1 does not go with cards: 0"):
        load_inline({"x": wrong}, stacks=STACKS)


def test_no_two_shipped_profiles_are_recommended_for_the_same_number_of_cards() -> None:
    profiles = [profile for profile in shipped.profiles().values() if profile["recommended"]]
    counts = [count for profile in profiles for count in profile["recommended"]["cards"]]
    assert len(counts) == len(set(counts))
    for profile in profiles:
        assert profile["status"] not in ("rejected", "blocked")
        assert STACKS[profile["stack"]]["installable"]


def test_several_slots_choose_within_their_cards() -> None:
    slots = slot_places({"main": {"cards": [0, 1]}, "aux": {"cards": [2], "port": 1, "profile": "spare-one"}}, 18080)
    found = choose(CATALOGUE, Here(STACKS, host(3), ROOT, MODELS), slots=slots)
    assert (found["profile"], found["cards"]) == ("on-two", 2)
    assert found["profiles"] == ["on-two", "spare-one"]
    assert found["slots"] == [
        {"name": "aux", "requested": "", "initial": "spare-one"},
        {"name": "main", "requested": "", "initial": "on-two"},
    ]
    assert not found["problems"]


def test_the_profiles_of_two_empty_slots_do_not_share_a_card() -> None:
    given = {"main": {"cards": [0, 1]}, "aux": {"cards": [1], "port": 1, "profile": "spare-one"}}
    here = Here(STACKS, host(2), ROOT, MODELS)
    found = choose(CATALOGUE, here, slots=slot_places(given, 18080))
    (problem,) = found["problems"]
    assert problem.startswith("b70_slots: on-two in main and spare-one in aux both use card 1; one slot at a time has")
    assert not choose(CATALOGUE, here, requested="spare-one", slots=slot_places(given, 18080))["problems"]


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("on-two", "b70_slots.aux: on-two needs 2 cards, this host has 1 card."),
        ("on-tow", 'b70_slots.aux: there is no profile "on-tow"; did you mean "on-two"?.'),
        ("parked", "b70_slots.aux: parked is blocked: no kernel"),
    ],
)
def test_the_profile_of_another_slot_has_to_fit_its_cards(profile: str, problem: str) -> None:
    slots = slot_places({"main": {"cards": [0, 1]}, "aux": {"cards": [2], "port": 1, "profile": profile}}, 18080)
    assert choose(CATALOGUE, Here(STACKS, host(3), ROOT, MODELS), slots=slots)["problems"] == [problem]


B60 = {"number": 0, "model": "Arc Pro B60", "address": "0000:01:00.0"}


def beside_a_b60(count: int) -> dict[str, Any]:
    cards = [{"number": number + 1, "address": f"0000:0{number + 2}:00.0"} for number in range(count)]
    return host(0) | {"cards": cards, "other_cards": [B60]}


def test_a_card_of_another_model_is_no_card_of_a_profile() -> None:
    assert chosen(beside_a_b60(1), "on-one")["problems"] == []
    (problem,) = chosen(beside_a_b60(1), "on-two")["problems"]
    assert problem == "on-two needs 2 cards, this host has 1 card."
    assert chosen(beside_a_b60(2))["profile"] == "on-two"
    assert chosen(beside_a_b60(0))["profile"] == "on-none"


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([1], ""),
        ([0], "would use card 0 (engine.devices), which is an Arc Pro B60 at 0000:01:00.0: name B70 cards only."),
        ([2], "uses card 2 (engine.devices), the last one of this host is card 1."),
    ],
)
def test_the_numbers_of_a_profile_count_all_cards_of_the_family(devices: list[int], words: str) -> None:
    profile = CATALOGUE["on-one"] | {"engine": CATALOGUE["on-one"]["engine"] | {"devices": devices}}
    found = choose(CATALOGUE | {"on-one": profile}, Here(STACKS, beside_a_b60(1), ROOT, MODELS), "on-one")
    assert found["problems"] == ([f"on-one {words}"] if words else [])


def test_a_slot_with_a_card_of_another_model_is_refused_by_name() -> None:
    def problems(cards: list[int]) -> list[str]:
        slots = slot_places({"main": {"cards": cards}, "aux": {"cards": [], "port": 1}}, 18080)
        return list(choose(CATALOGUE, Here(STACKS, beside_a_b60(2), ROOT, MODELS), "on-one", slots=slots)["problems"])

    assert problems([1]) == problems([2, 1]) == []
    assert "would use card 0 (b70_slots), which is an Arc Pro B60" in problems([0, 1])[0]
