# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine may fetch, reach and write: from the catalogue to the unit and to the frontdoor."""

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
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.launch import folders
from frontdoor.config import from_table
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies
from frontdoor.slot.state import parse
from unit.plugins.plugin_utils._render.test_rendering import C8, CATALOGUE, SETTINGS
from unit.shipped import load_inline

STACKS = load_stacks()
FLAG = "--allowed-media-domains"


def profile(**engine: Any) -> dict[str, Any]:
    mine = {"extends": C8, "status": "experiment", "engine": {"cache_key": "mine", **engine}}
    return load_inline({"mine": mine}, stacks=STACKS)["mine"]


def files(found: dict[str, Any], **settings: Any) -> dict[str, str]:
    rendered = rendering.render_slot({"mine": found}, {**SETTINGS, **settings})
    return {Path(item["path"]).name: item["content"] for item in rendered}


def resolved(found: dict[str, Any], **settings: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files(found, **settings)["mine.json"])
    return data


def network(found: dict[str, Any], **settings: Any) -> list[str]:
    unit = files(found, **settings)["b70-slot-main-mine.service"].splitlines()
    lines = [line for line in unit if line.startswith("IPAddress")]
    # a host that is given another rule starts its engine anew
    assert [line for line in resolved(found, **settings)["engine"]["directives"] if line in lines] == lines
    return lines


def domains(argv: list[str]) -> list[str]:
    at = argv.index(FLAG) + 1
    end = next(index for index in range(at, len(argv)) if argv[index].startswith("--"))
    return argv[at:end]


@pytest.mark.parametrize(
    ("given", "flag"), [([], ["none.invalid"]), (None, ["none.invalid"]), (["a.b", "c"], ["a.b", "c"])]
)
def test_no_domain_is_said_by_one_that_is_nobody_s(given, flag):
    engine = resolved(profile(allowed_media_domains=given))["engine"]
    assert domains(engine["argv"]) == flag
    assert engine["allowed_media_domains"] == (given or [])
    assert engine["env"]["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"


def test_every_shipped_profile_fetches_nothing():
    for name, found in CATALOGUE.items():
        data, _environment = rendering.resolve(found, rendering.check_settings(SETTINGS))
        # Every unit is kept from other hosts; vLLM is told so too.
        assert "IPAddressDeny=any" in data["engine"]["directives"], name
        if data["engine"]["kind"] == "vllm":
            assert domains(data["engine"]["argv"]) == ["none.invalid"], name


def test_what_may_be_fetched_changes_no_token():
    assert resolved(profile())["fingerprint"] == resolved(profile(allowed_media_domains=["a.b"]))["fingerprint"]


@pytest.mark.parametrize("wrong", ["https://a.b", "*.a.b", "A.b", "a.b:80", ""])
def test_only_whole_names_of_hosts_are_domains(wrong):
    with pytest.raises(CatalogueError) as error:
        profile(allowed_media_domains=[wrong])
    assert "engine.allowed_media_domains[0]" in str(error.value)


def test_the_flag_has_one_home():
    with pytest.raises(CatalogueError) as error:
        profile(settings={"allowed_media_domains": ["a.b"]})
    assert "is given twice: engine.allowed_media_domains sets it as well" in str(error.value)


@pytest.mark.parametrize(
    ("given", "settings", "rules"),
    [
        ([], {}, ["IPAddressDeny=any", "IPAddressAllow=localhost"]),
        ([], {"engine_ip_allow": ["10.0.0.0/8"]}, ["IPAddressDeny=any", "IPAddressAllow=localhost 10.0.0.0/8"]),
        ([], {"backend_host": "10.0.0.7"}, ["IPAddressDeny=any", "IPAddressAllow=localhost 10.0.0.7"]),
        (["a.b"], {}, ["IPAddressDeny=link-local multicast", "IPAddressAllow=localhost"]),
        (["a.b"], {"engine_ip_allow": ["any"]}, ["IPAddressDeny=any", "IPAddressAllow=localhost any"]),
        (["a.b"], {"engine_ip_allow": ["fd00::1"]}, ["IPAddressDeny=any", "IPAddressAllow=localhost fd00::1"]),
    ],
)
def test_an_engine_reaches_this_host_and_what_is_named(given, settings, rules):
    assert network(profile(allowed_media_domains=given), **settings) == rules


@pytest.mark.parametrize("wrong", ["proxy.example.org", "10.0.0.0/33", "", 7])
def test_an_address_that_systemd_would_not_read_is_refused(wrong):
    with pytest.raises(ValueError, match="engine_ip_allow wants an address"):
        files(profile(), engine_ip_allow=[wrong])


def test_addresses_are_a_list():
    with pytest.raises(ValueError, match="engine_ip_allow is a list, not"):
        files(profile(), engine_ip_allow="10.0.0.1")


def test_workers_on_another_interface_need_addresses():
    with pytest.raises(
        ValueError, match=r"profile mine: engine.collectives.interface is eth1, so .* slot_engine_ip_allow"
    ):
        files(profile(collectives={"interface": "eth1"}))
    assert network(profile(collectives={"interface": "eth1"}), engine_ip_allow=["10.1.0.2"])


def answer(found: dict[str, Any], url: str) -> Any:
    read = parse_profile(files(found)["mine.json"], "mine.json")
    state = SlotState(slot="main", sequence=1, updated_at="", phase="serving", **profile_part(read))
    told = parse(state.to_json().encode(), from_table({}))
    body = {"messages": [{"content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    return policies(told.rules, told.profile)["/v1/chat/completions"].apply(Document(json.dumps(body).encode()))


def test_the_frontdoor_is_told():
    refusal = answer(profile(), "http://10.0.0.1/")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "remote_media_refused"
    assert not isinstance(answer(profile(), "data:image/png;base64,AA=="), Refusal)
    assert not isinstance(answer(profile(allowed_media_domains=["a.b"]), "http://a.b/"), Refusal)


def test_every_folder_that_a_variable_names_is_there_before_the_engine_starts():
    for name, found in CATALOGUE.items():
        data, _environment = rendering.resolve(found, rendering.check_settings(SETTINGS))
        env = data["engine"]["env"]
        if data["engine"].get("remote"):
            assert sorted(env) == ["B70_RELAY_BIND", "B70_REMOTE_URL"], name  # a relay has no folders
            continue
        made = folders(env, ["/mnt/fast-ai/vllm-cache-exp", "/mnt/fast-ai/llm-cache/hf"])
        assert env["HOME"] in made, name
        weights = data["model"]["path"]
        for variable, value in env.items():
            # What is beside the weights comes with them.
            if value.startswith("/mnt/fast-ai/") and not value.startswith(f"{weights}/") and variable != "HF_HOME":
                assert value in made, f"{name}: {variable}={value} is not made"


def test_only_folders_below_the_writable_ones_are_made():
    env = {"HOME": "/c/k/home", "A_DIR": "/c/a", "B_DIR": "/etc/b", "C_FILE": "/c/f", "D_CACHE": "/c/d", "E_DIR": "/c"}
    assert folders(env, ["/c"]) == ["/c/a", "/c/d", "/c/k/home"]
