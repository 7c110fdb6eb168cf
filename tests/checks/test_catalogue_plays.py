# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays about the catalogue, as a person calls them in a checkout."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def play(
    name: str, *extra: str, inventory: str = "localhost,", check: bool = False
) -> subprocess.CompletedProcess[str]:
    words = [*(word for item in extra for word in ("-e", item)), *(["--check"] if check else [])]
    return subprocess.run(
        ["ansible-playbook", "-i", inventory, str(ROOT / "playbooks" / f"{name}.yml"), *words],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )


@pytest.mark.parametrize("start", ["", "gemma4-12b-it-int4-autoround-c8", "embedding"])
def test_a_new_profile_is_valid_at_once(start: str, tmp_path: Path) -> None:
    done = play("new_profile", "profile=mine", f"b70_profile_dir={tmp_path}", f"b70_from={start}")
    assert done.returncode == 0, done.stdout
    file = tmp_path / "mine.yml"
    first, second, *_rest = file.read_text().splitlines()
    schema = second.removeprefix("# yaml-language-server: $schema=")
    assert first == "---"
    assert (tmp_path / schema).resolve().samefile(ROOT / "roles/profiles/files/schema/profile.schema.json")
    written = yaml.safe_load(file.read_text())
    assert written["name"] == "mine"
    assert start not in ("embedding",) or written["engine"]["task"] == "embed"
    lint = subprocess.run(["yamllint", "--strict", str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile=minimax-m27-c1"], "there is a profile minimax-m27-c1 already"),
        (["profile=Mine"], "a name is lower-case letters"),
        (["profile=mine", "b70_from=embeding"], "did you mean embedding"),
        ([], "name the profile: -e profile=NAME"),
    ],
)
def test_a_new_profile_is_refused_with_the_reason(words: list[str], message: str, tmp_path: Path) -> None:
    done = play("new_profile", *words, f"b70_profile_dir={tmp_path / 'none'}")
    assert done.returncode != 0
    assert message in " ".join(done.stdout.split())
    assert not (tmp_path / "none").exists()


def test_a_profile_of_the_inventory_is_explained_without_reaching_a_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "b70_hosts:\n  hosts: {h1: {ansible_host: 192.0.2.1}}\n  vars:\n    slot_env: {SITE: x}\n    b70_profiles:\n"
        "      mine: {extends: minimax-m27-c1, status: experiment, engine: {cache_key: mine}}\n"
    )
    done = play("show_profile", "profile=mine", inventory=str(inventory))
    assert done.returncode == 0, done.stdout
    for line in ("engine.cache_key: mine  <- b70_profiles[mine]", "SITE=x  <- site (slot_env)"):
        assert line in done.stdout


def test_known_models_are_listed() -> None:
    done = play("show_models", "b70_category=embedding", "b70_precision=int4")
    assert done.returncode == 0, done.stdout
    assert "BAAI/bge-m3 (embedding)" in done.stdout
    assert "4 of 85 models" in done.stdout


def test_what_so_many_cards_serve_is_listed_and_what_is_rejected_says_why() -> None:
    done = play("show_models", "cards=4", "b70_model=gemma4-12b")
    assert done.returncode == 0, done.stdout
    said = " ".join(done.stdout.split())
    assert "gemma4-12b-it-int4-autoround-c8: 4 cards, " in said
    assert "112.77 tok/s (1 stream, wall, 512 tokens out)" in said
    assert "with captured graphs, 2026-06-07, lab; host: upstream lab, four cards; on lab-2.11; quality mixed" in said
    assert "NOT SERVED: gemma4-12b-it-int4-autoround-c12 is rejected: 2026-06-07, device lost" in said
    one = play("show_models", "cards=1", "b70_model=gemma4-12b")
    assert "gemma4-12b-it-int4-autoround-c8:" not in one.stdout
    assert "14 more need more or other cards" in one.stdout
    wrong = play("show_models", "cards=two")
    assert "cards is a number, as -e cards=2, not 'two'" in " ".join(wrong.stdout.split())


def test_a_profile_that_breaks_a_rule_of_its_stack_is_refused_without_reaching_a_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.json"
    mine = {"extends": "_b70-xpu", "status": "experiment", "cards": 2, "model": {"directory": "m"}}
    graphs = {"cudagraph_mode": "PIECEWISE"}
    settings = {"max_model_len": 2048, "tensor_parallel_size": 2, "compilation_config": graphs}
    engine = {"devices": [0, 1], "settings": settings}
    profiles = {"mine": {**mine, "engine": engine}}
    hosts = {"b70_hosts": {"hosts": {"h1": {"ansible_host": "192.0.2.1"}}, "vars": {"b70_profiles": profiles}}}
    inventory.write_text(json.dumps(hosts))
    done = play("site", "profile=mine", inventory=str(inventory))
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert 'breaks the rule "graphs-on-several-cards" of the stack xpu' in said
    assert "cudagraph_mode: NONE" in said
    assert "accepts_rules: [graphs-on-several-cards]" in said
    assert "UNREACHABLE" not in done.stdout
    profiles["mine"]["accepts_rules"] = ["graphs-on-several-cards"]
    inventory.write_text(json.dumps(hosts))
    shown = play("show_profile", "profile=mine", inventory=str(inventory))
    assert shown.returncode == 0, shown.stdout
    assert "breaks the rule graphs-on-several-cards of the stack on purpose" in " ".join(shown.stdout.split())


IMAGE = {
    "extends": "qwen38-27b-int4-image",
    "stack": "vllm-openai-xpu-0.30.0",
    "cards": 2,
    "engine": {"devices": [0, 1], "settings": {"tensor_parallel_size": 2}},
}
LLAMA = {
    "extends": "qwen38-27b-q8-gguf",
    "engine": {"kind": "llama-server", "settings": {"split_mode": "row"}},
}


@pytest.mark.parametrize(
    ("profile", "rule", "stack", "reason", "remedy"),
    [
        (
            IMAGE,
            "two-cards-hang",
            "vllm-openai-xpu-0.30.0",
            "two cards hang in the all-reduce of oneCCL",
            "Use the stack vllm-openai-xpu-0.30.0-runtime-26.35, or one card.",
        ),
        (
            LLAMA,
            "rows-over-cards",
            "llama-sycl",
            "Rows that are split over cards gave broken answers.",
            "Set split_mode to layer",
        ),
    ],
    ids=["image", "llama.cpp"],
)
def test_a_switch_in_check_mode_refuses_what_is_known_to_be_bad_in_the_words_of_the_rule(
    tmp_path: Path, profile: dict[str, Any], rule: str, stack: str, reason: str, remedy: str
) -> None:
    inventory = tmp_path / "hosts.json"
    mine = {"title": "Mine", "status": "experiment", "status_reason": "a trial", **profile}
    hosts = {"hosts": {"h1": {"ansible_host": "192.0.2.1"}}, "vars": {"b70_profiles": {"mine": mine}}}
    inventory.write_text(json.dumps({"b70_hosts": hosts}))
    done = play("switch", "profile=mine", inventory=str(inventory), check=True)
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert f'breaks the rule "{rule}" of the stack {stack}' in said
    assert reason in said
    assert remedy in said
    assert "UNREACHABLE" not in done.stdout


def chosen(tmp_path: Path, **words: str) -> subprocess.CompletedProcess[str]:
    """What the module says of a host with two cards, as the role calls it."""
    free = {"exists": False, "is_dir": False, "free_mib": 900_000}
    host: dict[str, Any] = {
        "system": {"id": "ubuntu", "version": "24.04", "machine": "x86_64"},
        "python": "3.12.3",
        "cards": [{"address": "0000:03:00.0"}, {"address": "0000:04:00.0"}],
        "stacks": [],
        "paths": {"/opt/b70/stacks": free},
        "problems": [],
        "slot": {"profile": None, "profiles": []},
    }
    catalogue = {
        "catalogue": "{{ lookup('arcpro.b70.catalogue') }}",
        "stacks": "{{ lookup('arcpro.b70.catalogue', kind='stacks') }}",
    }
    task = {"arcpro.b70.b70_profile_choice": {"host": host, **catalogue, **words}, "register": "made"}
    tasks = [
        task,
        {"ansible.builtin.debug": {"msg": "{{ made.profile }} on {{ made.stacks | join(' ') }}: {{ made.msg }}"}},
    ]
    file = tmp_path / "choose.yml"
    file.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    return play(str(file.with_suffix("")))


def test_the_choice_is_registered_or_refused_with_the_nearest(tmp_path: Path) -> None:
    done = chosen(tmp_path, requested="qwen36-27b-int4-autoround")
    assert done.returncode == 0, done.stdout
    said = " ".join(done.stdout.split())
    assert "qwen36-27b-int4-autoround on xpu: localhost: qwen36-27b-int4-autoround; it was asked for." in said
    refused = chosen(tmp_path, initial="minimax-m27-c1")
    said = " ".join(refused.stdout.split())
    assert refused.returncode != 0
    assert (
        "localhost cannot serve minimax-m27-c1 (the slot is empty, and b70_profile in the inventory names it)" in said
    )
    assert "minimax-m27-c1 needs 4 cards, this host has 2 cards." in said
    assert "Nearest that can be served here: " in said
