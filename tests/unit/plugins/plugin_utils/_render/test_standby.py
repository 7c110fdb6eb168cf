# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles whose engine may sleep: their ports, their units, and who reaches their requests for sleep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot_paths import SlotPaths, drop_ins
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from frontdoor.policy.routes import Kind, classify
from unit.plugins.plugin_utils._render.test_rendering import C8, SETTINGS
from unit.shipped import load_inline

STACKS = load_stacks()
SLEEPY = {"settings": {"enable_sleep_mode": True}}


def profiles(**engines: dict[str, Any]) -> dict[str, Any]:
    mine = {
        name: {"extends": C8, "status": "experiment", "engine": {"cache_key": name, **engine}}
        for name, engine in engines.items()
    }
    found = load_inline(mine, stacks=STACKS)
    return {name: found[name] for name in engines}


def files(found: dict[str, Any], **settings: Any) -> dict[str, str]:
    rendered = rendering.render_slot(found, {**SETTINGS, **settings})
    return {Path(item["path"]).name: item["content"] for item in rendered}


def resolved(texts: dict[str, str], name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(texts[f"{name}.json"])
    return data


def test_each_one_has_a_port_of_its_own_and_all_others_the_slot_s():
    texts = files(profiles(one=SLEEPY, plain={}, two=SLEEPY), standby=1)
    known = {name: resolved(texts, name) for name in ("one", "plain", "two")}
    ports = {name: data["engine"]["backend_url"].rpartition(":")[2] for name, data in known.items()}
    assert ports == {"one": "18096", "plain": "18080", "two": "18097"}
    assert [known[name].get("standby") for name in known] == [True, None, True]
    assert json.loads(texts["slot.json"])["standby"] == 1
    assert "--enable-sleep-mode" in known["one"]["engine"]["argv"]
    assert known["one"]["engine"]["env"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in known["plain"]["engine"]["env"]


def test_it_may_be_named_profiles():
    texts = files(profiles(one=SLEEPY, two=SLEEPY), standby=["two"])
    slot = json.loads(texts["slot.json"])
    assert (slot["standby"], slot["sleepers"]) == (1, ["two"])
    # The other one does not sleep, and leaves a sleeper its port and its peace.
    assert [resolved(texts, name)["standby"] for name in ("one", "two")] == [True, True]


def test_it_is_off_unless_the_slot_says_so():
    texts = files(profiles(one=SLEEPY))
    data = resolved(texts, "one")
    assert (data["engine"]["backend_url"], data.get("standby")) == ("http://127.0.0.1:18080", None)
    assert "standby" not in json.loads(texts["slot.json"])
    assert "ExecCondition" not in texts["b70-slot-main-one.service"]


def test_evidence_without_sleep_mode_does_not_count_for_it():
    found = profiles(one={"cache_key": "x"}, two={"cache_key": "x", **SLEEPY})
    texts = files(found)
    assert resolved(texts, "one")["fingerprint"] != resolved(texts, "two")["fingerprint"]
    # Neither the slot's setting nor the port changes a token.
    assert resolved(texts, "two")["fingerprint"] == resolved(files(found, standby=2), "two")["fingerprint"]


def test_a_profile_that_wants_graphs_has_to_give_them_up():
    settings = {"enable_sleep_mode": True, "compilation_config": {"cudagraph_mode": "PIECEWISE"}}
    with pytest.raises(CatalogueError, match="captures no graphs"):
        profiles(one={"settings": settings})


def test_the_unit_keeps_users_from_the_requests_and_starts_nothing_beside_one_that_serves():
    unit = files(profiles(one=SLEEPY), standby=1)["b70-slot-main-one.service"].splitlines()
    (guard,) = [line for line in unit if line.startswith("ExecStartPre=+/usr/sbin/nft ")]
    assert 'oifname "lo" tcp dport 18096 meta skuid != { 0, "b70", 61184-65519 } reject' in guard
    assert "ExecStopPost=-+/usr/sbin/nft delete table inet b70_18096" in unit
    assert "ExecCondition=+/usr/bin/test ! -e /run/b70/main/standby/%n" in unit
    # The mode opens them, whether any engine sleeps or not.
    assert any("dport 18080" in line for line in files(profiles(one=SLEEPY))["b70-slot-main-one.service"].splitlines())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend_host": "0.0.0.0"}, "slot_backend_host must be 127.0.0.1"),
        ({"standby": -1}, "slot_standby is -1"),
        ({"standby": "one"}, "slot_standby is one"),
        ({"standby": ["one", "two"]}, "slot_standby names two"),
        ({"standby": 1, "power_cap_w": 210}, "profile one has a power cap"),
        ({"standby": 1, "slots": {"main": {"cards": [0]}, "b": {"cards": [], "port": 18090}}}, "needs a port for each"),
    ],
)
def test_what_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        files(profiles(one=SLEEPY), **settings)


def test_systemd_keeps_all_apart_but_those_that_may_sleep(tmp_path):
    texts = files(profiles(one=SLEEPY, plain={}, two=SLEEPY), standby=1)
    place = SlotPaths("main", tmp_path, tmp_path, tmp_path)
    units = {name: place.unit(name) for name in ("one", "plain", "two")}
    found = {
        item.path.parent.name: item.content
        for item in drop_ins(place, units.values(), (), [texts[f"{name}.json"] for name in units])
    }
    assert f"Conflicts={units['one'].name}" in found[f"{units['plain'].name}.d"]
    both = found[f"{units['two'].name}.d"]
    assert f"Conflicts={units['plain'].name}" in both
    assert f"Conflicts={units['one'].name}" not in both
    # A text of before may still be in use.
    older = [*(texts[f"{name}.json"] for name in units), texts["one.json"].replace('"standby": true,', "")]
    again = [item.content for item in drop_ins(place, units.values(), (), older)]
    assert any(f"Conflicts={units['one'].name}" in text for text in again if f"Conflicts={units['plain'].name}" in text)


def test_the_frontdoor_proxies_none_of_them():
    sleep = KINDS["vllm"].sleep
    assert sleep is not None
    posts = [path for levels in (sleep.fall, sleep.rise) for posts in levels.values() for path, _body in posts]
    assert "/collective_rpc" in posts
    for path in (*posts, sleep.asks[0], "/reset_prefix_cache", "/v1/../sleep"):
        assert classify(path.partition("?")[0]).kind is Kind.UNKNOWN, path
