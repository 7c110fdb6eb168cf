# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several engines of one profile: what is checked of them, and what is rendered."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import against_cards
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from unit import contracts
from unit.plugins.plugin_utils._render.test_rendering import SETTINGS, STACKS
from unit.shipped import load_inline

ENGINE = {"settings": {"max_model_len": 4096, "max_num_seqs": 4}}
ONE = {
    "status": "candidate",
    "stack": "xpu",
    "cards": 1,
    "model": {"directory": "one"},
    "canary": {
        "cases": [{"name": "ok", "prompt": "OK?", "max_tokens": 4, "compare": "exact", "expected": "OK"}],
    },
}


def profile(**changes):
    engine = {**ENGINE, **changes.pop("engine", {})}
    return load_inline({"one": {**ONE, "engine": engine, **changes}}, stacks=STACKS)["one"]


def rendered(found, **settings):
    """File name -> content, without the program."""
    files = rendering.render_slot({"one": found}, {**SETTINGS, **settings})
    return {item["path"].rpartition("/")[2]: item["content"] for item in files if "/opt/b70" not in item["path"]}


def faults(**changes):
    with pytest.raises(CatalogueError) as caught:
        profile(**changes)
    return str(caught.value)


def test_replicas_on_vulkan_do_not_land_on_one_card():
    engine = {"kind": "llama-server", "settings": {"ctx_size": 4096}}
    model = {"directory": "one", "file": "one.gguf"}
    files = rendered(profile(replicas=3, stack="llama-vulkan", model=model, engine=engine))
    rows = json.loads(files["one.json"])["engine"]["replicas"]
    assert [row["env"]["GGML_VK_VISIBLE_DEVICES"] for row in rows] == ["0", "1", "2"]
    assert 'GGML_VK_VISIBLE_DEVICES="2"' in files["one@2.env"]


def test_each_engine_has_a_unit_a_port_and_cards_of_its_own():
    files = rendered(profile(replicas=3))
    data = json.loads(files["one.json"])
    contracts.check("resolved-profile", files["one.json"])
    rows = data["engine"]["replicas"]
    assert [row["unit"] for row in rows] == [f"b70-slot-main-one@{number}.service" for number in range(3)]
    assert [row["backend_url"] for row in rows] == [f"http://127.0.0.1:{18080 + number}" for number in range(3)]
    assert [row["argv"][row["argv"].index("--port") + 1] for row in rows] == ["18080", "18081", "18082"]
    assert [row["env"]["ZE_AFFINITY_MASK"] for row in rows] == ["0", "1", "2"]
    # The mask numbers what it leaves anew.
    assert {row["env"]["ONEAPI_DEVICE_SELECTOR"] for row in rows} == {"level_zero:0"}
    assert [row["cards"] for row in rows] == [[0], [1], [2]]
    assert data["frontdoor"]["max_active_generations"] == 12
    assert (data["unit"], data["unit_sha256"]) == (rows[0]["unit"], rows[0]["unit_sha256"])
    for number, row in enumerate(rows):
        text = files[row["unit"]]
        assert hashlib.sha256(text.encode()).hexdigest() == row["unit_sha256"]
        assert f"EnvironmentFile=/etc/b70-vllm-slot/profiles/one@{number}.env" in text
        assert f'ZE_AFFINITY_MASK="{number}"' in files[f"one@{number}.env"]
        assert f"Environment of {row['unit']};" in files[f"one@{number}.env"]
    assert "one.env" not in files
    assert "b70-slot-main-one.service" not in files
    assert parse_profile(files["one.json"], "x").units == tuple(row["unit"] for row in rows)


def test_starts_are_staggered_by_the_units_themselves():
    files = rendered(profile(replicas=3, engine={"start_stagger_s": 60}))
    first, second, third = (files[f"b70-slot-main-one@{number}.service"] for number in range(3))
    assert "/usr/bin/sleep" not in first
    assert "TimeoutStartSec=" not in first
    assert "ExecStartPre=/usr/bin/sleep 60\nTimeoutStartSec=150\n" in second
    assert "ExecStartPre=/usr/bin/sleep 120\nTimeoutStartSec=210\n" in third


def test_the_number_changes_no_fingerprint_and_nothing_that_was_examined():
    one, three = (json.loads(rendered(profile(replicas=count))["one.json"]) for count in (1, 3))
    assert one["fingerprint"] == three["fingerprint"]
    assert one["examined"] == three["examined"]


def test_one_replica_is_rendered_as_a_profile_without_the_word():
    assert rendered(profile(replicas=1)) == rendered(profile())
    assert "replicas" not in rendered(profile())["one.json"]


@pytest.mark.parametrize(("cards", "per_engine", "count"), [(4, 1, 4), (4, 2, 2), (3, 2, 1), (1, 2, 1), (0, 1, 1)])
def test_as_many_as_the_cards_allow(cards, per_engine, count):
    found = profile(cards=per_engine, replicas="per_card")
    assert rendering.replica_count(found, cards) == count
    data = json.loads(rendered(found, cards=cards)["one.json"])
    assert len(data["engine"].get("replicas", [None])) == count


def test_cards_that_a_profile_names_are_dealt_out():
    found = profile(cards=2, replicas=2, engine={"devices": [3, 0, 1, 2]})
    rows = json.loads(rendered(found)["one.json"])["engine"]["replicas"]
    assert [row["cards"] for row in rows] == [[3, 0], [1, 2]]
    assert [row["env"]["ZE_AFFINITY_MASK"] for row in rows] == ["3,0", "1,2"]


def test_an_unknown_number_of_cards_is_explained():
    with pytest.raises(ValueError, match=r"one: replicas is per_card, but the number of cards .* set slot_cards"):
        rendered(profile(replicas="per_card"))


def test_ports_end():
    with pytest.raises(ValueError, match="3 replicas need the ports from 65534 on"):
        rendered(profile(replicas=3), backend_port=65534)


def test_faulty_numbers_are_refused():
    assert "replicas" in faults(replicas=0)
    assert "a whole number, or per_card" in faults(replicas="per_host")
    assert "per_card needs cards, but cards is 0" in faults(cards=0, stack="cpu", replicas="per_card")
    assert "2 replicas of 1 need 2" in faults(replicas=2, engine={"devices": [0]})
    assert "replicas is per_card: write null here" in faults(replicas="per_card", engine={"devices": [0]})
    assert "2 does not go with cards: 1 and replicas: 3" in faults(
        replicas=3, recommended={"cards": [2], "reason": "x"}
    )


def test_a_host_needs_the_cards_of_all_replicas():
    assert against_cards(profile(replicas=4), 4) == []
    assert against_cards(profile(replicas=4), 2) == ["one needs 4 cards for 4 replicas, this host has 2 cards."]
    assert against_cards(profile(replicas="per_card"), 1) == []
    assert against_cards(profile(replicas="per_card"), 0) != []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    files = rendered(profile(replicas=2))
    units = [name for name in files if name.endswith(".service")]
    for name in units:
        (tmp_path / name).write_text(files[name])
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "b70-" in line and "is not executable" not in line]
    assert told == []
