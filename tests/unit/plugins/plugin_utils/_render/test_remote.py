# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile of an engine elsewhere, from its file to its unit. The profile is the shipped example."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.state_file import profile_part
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import SHIPPED, read_folder
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.offers import offers
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import render_slot
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import planning
from unit.plugins.plugin_utils._render.test_rendering import SETTINGS, STACKS
from unit.shipped import load_inline

EXAMPLE = read_folder(SHIPPED / "examples", [])["remote"][1]


def loaded(**changes) -> dict[str, Any]:
    data: dict[str, Any] = copy.deepcopy(EXAMPLE)
    for dotted, value in changes.items():
        target = data
        *path, last = dotted.split("__")
        for key in path:
            target = target.setdefault(key, {})
        target[last] = value
    return load_inline({"remote": data}, stacks=STACKS)["remote"]


def files(settings=None, **changes) -> dict[str, str]:
    found = render_slot({"remote": loaded(**changes)}, {**SETTINGS, **(settings or {})})
    return {item["path"].rsplit("/", 1)[1]: item["content"] for item in found if "/opt/b70" not in item["path"]}


def unit(**changes) -> list[str]:
    return files(**changes)["b70-slot-main-remote.service"].splitlines()


def test_a_relay_has_a_user_of_its_own_and_gets_the_key_from_systemd():
    lines = unit()
    for line in (
        "DynamicUser=yes",
        "LoadCredential=key:/etc/b70-vllm-slot/keys/gpu2",
        "RuntimeDirectory=b70-relay-main",
        "RuntimeDirectoryMode=0700",
        "ExecStartPre=/usr/bin/python3 -I -B /opt/b70/lib/b70slot/relay.py",
        "ExecStart=/usr/sbin/haproxy -db -f /run/b70-relay-main/haproxy.cfg",
        "ExecStartPost=-+/usr/bin/systemctl kill --signal=URG --kill-whom=main b70-controller-main.service",
        "LimitCORE=0",
        "WantedBy=multi-user.target",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith(("User=", "ReadWritePaths=", "RequiresMountsFor="))]


def test_a_relay_to_an_address_reaches_nothing_else():
    lines = unit(engine__remote__base_url="http://10.0.0.2:8000/v1", engine__remote__allow_plain_http=True)
    assert lines[lines.index("IPAddressDeny=any") + 1] == "IPAddressAllow=localhost 10.0.0.2"
    assert "IPAddressDeny=link-local multicast" in unit()


def test_certificates_are_handed_over_like_the_key():
    assert "LoadCredential=ca.pem:/etc/ssl/own.pem" in unit(engine__remote__ca_file="/etc/ssl/own.pem")


def test_clients_and_the_remote_each_have_their_name_for_the_model():
    profile = parse_profile(files()["remote.json"], "remote.json")
    assert profile.engine.served_model_name == "gemma4-12b-it"
    assert profile.frontdoor.model_aliases == ("assistant",)
    assert (profile.cards, profile.stack.dir, profile.model.path) == (0, "", "")
    assert profile_part(profile)["profile"]["remote"] is True
    same = parse_profile(files(engine__served_model_name="gemma4-12b-it")["remote.json"], "remote.json")
    assert same.frontdoor.model_aliases is None


@pytest.mark.parametrize(("policy", "found"), [(None, "reject"), ("reject", "reject"), ("rewrite", "rewrite")])
def test_no_other_model_of_the_remote_is_asked_for(policy, found):
    told = parse_profile(files(frontdoor__model_policy=policy)["remote.json"], "remote.json")
    assert profile_part(told)["request"]["model_policy"] == found


def test_the_process_is_given_the_address_and_nothing_of_the_site():
    rendered = files({"env": {"ZE_AFFINITY_MASK": "0"}})
    assert json.loads(rendered["remote.json"])["engine"]["env"] == {
        "B70_RELAY_BIND": "127.0.0.1:18080",
        "B70_REMOTE_URL": "https://gpu2.example.org/v1",
    }


def test_the_fingerprint_is_of_what_is_asked_and_not_of_how():
    def fingerprint(settings=None, **changes):
        return json.loads(files(settings, **changes)["remote.json"])["fingerprint"]

    first = fingerprint()
    assert fingerprint(engine__remote__model="other") != first
    assert fingerprint(engine__remote__base_url="https://gpu3.example.org/v1") != first
    assert fingerprint(engine__settings__max_model_len=1024) != first
    assert fingerprint(engine__remote__api_key_file="/etc/b70-key") == first
    assert fingerprint(engine__settings__max_num_seqs=4) == first
    assert fingerprint({"env": {"ZE_AFFINITY_MASK": "0"}}) == first


def test_there_is_nothing_to_install_but_a_package():
    host = {"system": {"machine": "riscv64"}, "paths": {}}
    assert planning.problems(STACKS["relay"], host, "/opt/b70/stacks") == []


def test_lists_say_where_the_engine_is():
    profile = loaded()
    said = "remote: https://gpu2.example.org/v1 serves it as gemma4-12b-it"
    assert any(said in line for line in offers({"remote": profile}, STACKS))
    lines = explain(profile, STACKS["relay"], {"ZE_AFFINITY_MASK": "0"})
    assert "The engine is elsewhere: https://gpu2.example.org/v1 serves it as gemma4-12b-it." in lines
    assert not [line for line in lines if line.startswith("ZE_AFFINITY_MASK")]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("cards", 1, "cards of this host, but the engine is elsewhere: 0"),
        ("replicas", 2, "replicas: is 2, but the engine is elsewhere, and a slot has one relay to it: 1"),
        ("replicas", "per_card", "is per_card, but the engine is elsewhere"),
        ("stack", "cpu", "cannot be combined"),
        ("engine__env", {"A": "b"}, "applies to this host only"),
        ("engine__extra_args", ["--x"], "applies to this host only"),
        ("engine__remote__model", None, "is missing"),
        ("engine__remote__base_url", "http://10.0.0.2/v1", "is not encrypted: use https"),
        ("engine__remote__base_url", "https://10.0.0.2/v1", "names an address"),
        ("engine__remote__base_url", "https://a:secret@b/v1", "must not contain a user or password"),
        ("engine__remote__api_key_file", "no/where", "an absolute path, or a name of slot_remote_keys"),
        ("engine__allowed_media_domains", ["a.example.org"], "only data URLs reach it"),
        ("frontdoor__model_policy", "pass", "its other models: reject or rewrite"),
    ],
)
def test_what_cannot_work_is_refused(key, value, why):
    with pytest.raises(CatalogueError, match=why):
        loaded(**{key: value})


def test_one_relay_may_be_said():
    assert loaded(replicas=1)["replicas"] == 1


def test_what_replicas_need_of_cards_is_no_advice_for_an_engine_elsewhere():
    with pytest.raises(CatalogueError) as refused:
        loaded(replicas="per_card")
    assert "needs cards" not in str(refused.value)


def test_plain_http_is_for_private_networks_alone():
    allowed = {"engine__remote__allow_plain_http": True}
    loaded(engine__remote__base_url="http://192.168.1.2:8000/v1", **allowed)
    for host in ("8.8.8.8", "gpu2.example.org"):
        with pytest.raises(CatalogueError, match="no address of a private network"):
            loaded(engine__remote__base_url=f"http://{host}/v1", **allowed)


def test_an_engine_of_this_host_has_no_remote():
    data = {"extends": None, "status": "experiment", "stack": "cpu", "cards": 0, "model": {"directory": "m"}}
    engine = {"settings": {"max_model_len": 512}, "remote": {"base_url": "https://a/v1", "model": "m"}}
    with pytest.raises(CatalogueError, match=r"is for engine\.kind openai"):
        load_inline({"here": {**data, "engine": engine}}, stacks=STACKS)
