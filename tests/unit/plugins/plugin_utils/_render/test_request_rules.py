# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile wants of requests, from the catalogue over the host's files to the body that the engine is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.state_file import SlotState, profile_part
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from frontdoor.config import Routing, from_table
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies
from frontdoor.slot.state import parse
from unit.plugins.plugin_utils._render.test_rendering import C8, SETTINGS
from unit.shipped import load_inline

STACKS = load_stacks()
CHAT = "/v1/chat/completions"
OPERATOR = {"sampling_defaults": {"temperature": 1.5, "seed": 3}, "model_policy": "rewrite", "model_aliases": ["ours"]}


def catalogue(frontdoor: dict[str, Any]) -> dict[str, Any]:
    mine = {"extends": C8, "status": "experiment", "engine": {"cache_key": "mine"}, "frontdoor": frontdoor}
    return load_inline({"mine": mine}, stacks=STACKS)


def sent(frontdoor: dict[str, Any], body: str) -> str | Refusal:
    files = rendering.render_slot({"mine": catalogue(frontdoor)["mine"]}, SETTINGS)
    text = next(item["content"] for item in files if Path(item["path"]).name == "mine.json")
    state = SlotState(slot="main", sequence=1, updated_at="", phase="serving", **profile_part(parse_profile(text, "x")))
    read = parse(state.to_json().encode(), from_table({"request": OPERATOR}))
    result = policies(read.rules, read.profile)[CHAT].apply(Document(body.encode()))
    return result if isinstance(result, Refusal) else result.decode()


def test_a_profile_s_word_wins_over_the_operator_s():
    mine = {"sampling_defaults": {"temperature": 0.2}, "model_policy": "reject", "model_aliases": ["mine"]}
    served = catalogue(mine)["mine"]["engine"]["served_model_name"]
    sampled = sent(mine, '{"model":"mine","x": 1.0}')
    assert sampled == '{"model":"SERVED","x":1.0,"temperature":0.2}'.replace("SERVED", served)
    own = sent(mine, '{"model":"mine","temperature":0}')
    assert own == '{"model":"SERVED","temperature":0}'.replace("SERVED", served)
    refusal = sent(mine, '{"model":"ours"}')
    assert isinstance(refusal, Refusal)
    assert refusal.details == {"param": "model", "models": [served, "mine"]}


def test_the_operator_s_counts_where_the_profile_has_none():
    served = catalogue({})["mine"]["engine"]["served_model_name"]
    assert sent({}, '{"model":"ours"}') == '{"model":"SERVED","temperature":1.5,"seed":3}'.replace("SERVED", served)
    # nothing at all is a word of the profile's as well
    assert sent({"sampling_defaults": {}, "model_policy": "pass", "model_aliases": []}, '{"model":"ours"}') == (
        '{"model":"ours"}'
    )


@pytest.mark.parametrize(
    ("frontdoor", "said"),
    [
        ({"sampling_defaults": {"temprature": 1}}, "temperature"),
        ({"sampling_defaults": {"temperature": "hot"}}, "frontdoor.sampling_defaults.temperature"),
        ({"sampling_defaults": {"top_p": 2}}, "frontdoor.sampling_defaults.top_p"),
        ({"model_policy": "maybe"}, "frontdoor.model_policy"),
        ({"model_aliases": "gpt"}, "frontdoor.model_aliases"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(frontdoor, said):
    with pytest.raises(CatalogueError) as error:
        catalogue(frontdoor)
    assert said in json.dumps(str(error.value))


def routed(frontdoor: dict[str, Any], replicas: int) -> Any:
    """What the frontdoor reads of how requests find their replica."""
    profile = {**catalogue(frontdoor)["mine"], "replicas": replicas}
    files = rendering.render_slot({"mine": profile}, SETTINGS)
    text = next(item["content"] for item in files if Path(item["path"]).name == "mine.json")
    part = profile_part(parse_profile(text, "x"))
    state = SlotState(slot="main", sequence=1, updated_at="", phase="serving", **part)
    return part["routing"], parse(state.to_json().encode(), from_table({})).routing


def test_how_requests_find_their_replica_reaches_the_frontdoor():
    usual, read = routed({}, 2)
    assert usual == {"sticky": "prefer", "prefix_affinity": True, "headers": None, "json_fields": None}
    assert read == Routing()
    own = {"sticky": "strict", "prefix_affinity": False, "headers": ["x-mine"], "json_fields": []}
    told, read = routed({"routing": own}, 2)
    assert told == own
    assert read == Routing("strict", False, ("x-mine",), ())


def test_a_profile_with_one_engine_says_nothing_of_it():
    assert routed({"routing": {"sticky": "strict"}}, 1) == (None, Routing())


@pytest.mark.parametrize(
    ("routing", "where"),
    [
        ({"sticky": "always"}, "frontdoor.routing.sticky"),
        ({"headers": ["a b"]}, "frontdoor.routing.headers"),
        ({"json_fields": ["a..b"]}, "frontdoor.routing.json_fields"),
        ({"weights": []}, "frontdoor.routing.weights"),
    ],
)
def test_a_wrong_routing_is_refused(routing: dict[str, Any], where: str):
    with pytest.raises(CatalogueError, match=where):
        catalogue({"routing": routing})
