# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays about the catalogue, as a person calls them in a checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from checks.plays import ROOT, hosts, note, play, play_all, run_plays, said, write_notes

GRAPHS: dict[str, Any] = {
    "extends": "_b70-xpu",
    "status": "experiment",
    "cards": 2,
    "model": {"directory": "m"},
    "engine": {
        "devices": [0, 1],
        "settings": {
            "max_model_len": 2048,
            "tensor_parallel_size": 2,
            "compilation_config": {"cudagraph_mode": "PIECEWISE"},
        },
    },
}
IMAGE: dict[str, Any] = {
    "title": "Mine",
    "status": "experiment",
    "status_reason": "a trial",
    "extends": "qwen38-27b-int4-image",
    "stack": "vllm-openai-xpu-0.30.0",
    "cards": 2,
    "engine": {"devices": [0, 1], "settings": {"tensor_parallel_size": 2}},
}


def write_inventory(folder: Path, **variables: Any) -> str:
    """Write an inventory with a host that nobody can reach, and return its path."""
    file = folder / "unreachable.json"
    group = {"hosts": {"h1": {"ansible_host": "192.0.2.1"}}, "vars": variables}
    file.write_text(json.dumps({"b70_hosts": group}))
    return str(file)


def test_a_new_profile_is_valid_at_once(tmp_path: Path) -> None:
    starts = {"plain": "", "profile": "gemma4-12b-it-int4-autoround-c8", "example": "embedding"}
    done = play_all(
        tmp_path,
        *(
            ("new_profile", {"profile": "mine", "b70_profile_dir": str(tmp_path / name), "b70_from": start})
            for name, start in starts.items()
        ),
    )
    assert done.returncode == 0, done.stdout
    for name in starts:
        file = tmp_path / name / "mine.yml"
        first, second, *_rest = file.read_text().splitlines()
        schema = second.removeprefix("# yaml-language-server: $schema=")
        assert first == "---"
        assert (file.parent / schema).resolve().samefile(ROOT / "roles/profiles/files/schema/profile.schema.json")
        written = yaml.safe_load(file.read_text())
        assert written["name"] == "mine"
        assert name != "example" or written["engine"]["task"] == "embed"
    files = [str(tmp_path / name / "mine.yml") for name in starts]
    lint = subprocess.run(["yamllint", "--strict", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout


def test_a_compose_file_or_a_configuration_of_llama_swap_becomes_a_profile_and_everything_in_it_is_told(
    tmp_path: Path,
) -> None:
    folder, files = tmp_path / "profiles", ROOT / "tests/unit/plugins/plugin_utils/_imported/files"
    starts: dict[str, dict[str, str]] = {
        "two": {"from_compose": f"{files}/two-cards.yml", "service": "vllm-tp2"},
        "swap": {"from_llama_swap": f"{files}/llama-swap.yml", "model": "docker-llama"},
    }
    done = play_all(
        tmp_path,
        *(("new_profile", {"profile": name, "b70_profile_dir": str(folder), **of}) for name, of in starts.items()),
    )
    assert done.returncode == 0, done.stdout
    told = said(done.stdout)
    assert "services.vllm-tp2.command[1] --tensor-parallel-size: engine.settings.tensor_parallel_size: 2" in told
    assert "apiKeys: is a secret; use the role variable frontdoor_api_keys" in told
    assert f"{folder}/swap.yml is valid." in told
    assert yaml.safe_load((folder / "two.yml").read_text())["cards"] == 2
    assert yaml.safe_load((folder / "swap.yml").read_text())["model"]["directory"] == "/mnt/nvme/models"
    written = [str(folder / f"{name}.yml") for name in starts]
    lint = subprocess.run(["yamllint", "--strict", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout
    again = play("new_profile", "profile=other", f"b70_profile_dir={folder}", f"from_compose={files}/two-cards.yml")
    assert again.returncode != 0
    assert "several start an engine: name one of vllm, vllm-tp2, -e service=vllm" in said(again.stdout)
    assert not (folder / "other.yml").exists()


def test_a_new_profile_is_refused_with_the_reason(tmp_path: Path) -> None:
    role = {"name": "arcpro.b70.profiles", "tasks_from": "new"}
    cases: dict[str, dict[str, str]] = {
        "there is a profile minimax-m27-c1 already": {"profiles_new_name": "minimax-m27-c1"},
        "a name is lower-case letters": {"profiles_new_name": "Mine"},
        "did you mean embedding": {"profiles_new_name": "mine", "b70_from": "embeding"},
    }
    tasks = [
        {
            "block": [{"ansible.builtin.include_role": role, "vars": variables}],
            "rescue": [note(reason, "ansible_failed_result.msg")],
        }
        for reason, variables in cases.items()
    ]
    given = {"b70_profile_dir": str(tmp_path / "none")}
    plays = [{"hosts": "all", "gather_facts": False, "vars": given, "tasks": tasks}, write_notes(tmp_path)]
    done = run_plays(tmp_path, plays, inventory=hosts({"one": {}}))
    assert done.returncode == 0, done.stdout
    found = json.loads((tmp_path / "one.json").read_text())
    assert [reason for reason in cases if reason not in said(found[reason])] == []
    nameless = play("new_profile", f"b70_profile_dir={tmp_path / 'none'}")
    assert nameless.returncode != 0
    assert "name the profile: -e profile=NAME" in said(nameless.stdout)
    assert not (tmp_path / "none").exists()


def test_profiles_of_the_inventory_are_explained_without_reaching_a_host(tmp_path: Path) -> None:
    mine = {"extends": "minimax-m27-c1", "status": "experiment", "engine": {"cache_key": "mine"}}
    profiles = {"mine": mine, "warned": {**GRAPHS, "accepts_rules": ["graphs-on-several-cards"]}}
    inventory = write_inventory(tmp_path, slot_env={"SITE": "x"}, b70_profiles=profiles)
    shows = [("show_profile", {"profile": name}) for name in profiles]
    done = play_all(tmp_path, *shows, inventory=inventory)
    assert done.returncode == 0, done.stdout
    for line in ("engine.cache_key: mine  <- b70_profiles[mine]", "SITE=x  <- site (slot_env)"):
        assert line in done.stdout
    assert "breaks the rule graphs-on-several-cards of the stack on purpose" in said(done.stdout)


def test_known_models_and_what_so_many_cards_serve_are_listed_and_what_is_rejected_says_why(tmp_path: Path) -> None:
    part = {"b70_model": "gemma4-12b"}
    asked = (
        {"b70_category": "embedding", "b70_precision": "int4"},
        {"cards": 4, "b70_all": True, **part},
        {"cards": 1, "html": str(tmp_path / "profiles.html"), **part},
    )
    done = play_all(tmp_path, *(("show_models", variables) for variables in asked), ("show_models", {"cards": "two"}))
    _start, known, four, one, wrong = done.stdout.split("PLAY [")
    assert "BAAI/bge-m3 (embedding)" in known
    assert "4 of 85 models" in known
    four = said(four)
    assert "gemma4-12b-it-int4-autoround-c8: 4 cards, " in four
    assert "112.77 tok/s (1 stream, wall, 512 tokens out)" in four
    assert "with captured graphs, 2026-06-07, lab; host: upstream lab, four cards; on lab-2.11; quality mixed" in four
    assert "NOT SERVED: gemma4-12b-it-int4-autoround-c12 is rejected: 2026-06-07, device lost" in four
    assert "gemma4-12b-it-int4-autoround-c8:" not in one
    assert "14 more need more or other cards" in one
    assert "<strong>minimax-m27-c1</strong>" in (tmp_path / "profiles.html").read_text()
    assert done.returncode != 0
    assert "cards is a number, as -e cards=2, not 'two'" in said(wrong)


def test_a_profile_that_breaks_a_rule_of_its_stack_is_refused_without_reaching_a_host(tmp_path: Path) -> None:
    done = play("site", "profile=mine", inventory=write_inventory(tmp_path, b70_profiles={"mine": GRAPHS}))
    told = said(done.stdout)
    assert done.returncode != 0
    assert 'breaks the rule "graphs-on-several-cards" of the stack xpu' in told
    assert "cudagraph_mode: NONE" in told
    assert "accepts_rules: [graphs-on-several-cards]" in told
    assert "UNREACHABLE" not in done.stdout


def test_a_switch_in_check_mode_refuses_what_is_known_to_be_bad_in_the_words_of_the_rule(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, b70_profiles={"mine": IMAGE})
    done = play("switch", "profile=mine", inventory=inventory, check=True)
    told = said(done.stdout)
    assert done.returncode != 0
    assert 'breaks the rule "runtime-26-27-on-several-cards" of the stack vllm-openai-xpu-0.30.0' in told
    assert "hangs several cards in the all-reduce of oneCCL" in told
    assert "Use a stack with another runtime, such as vllm-openai-xpu-0.30.0-runtime-26.35" in told
    assert "UNREACHABLE" not in done.stdout


def test_the_choice_is_registered_or_refused_with_the_nearest(tmp_path: Path) -> None:
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
    asked = {"made": {"requested": "qwen36-27b-int4-autoround"}, "refused": {"initial": "minimax-m27-c1"}}
    tasks = []
    for name, words in asked.items():
        site = {"inline_profiles": "{{ own }}", "weights": {"revisions": "{{ revisions }}", "sources": "{{ sources }}"}}
        module = {"arcpro.b70.b70_profile_choice": {"host": host, **site, **words}}
        tasks += [{**module, "register": name, "ignore_errors": name == "refused"}, note(name, name)]
    given_there = "inline=own, weights={'revisions': revisions, 'sources': sources}"
    tasks.append(note("read", f"lookup('arcpro.b70.catalogue', 'mine', {given_there}).mine.title"))
    plays = [{"hosts": "all", "gather_facts": False, "tasks": tasks}, write_notes(tmp_path)]
    # As group_vars have them: mappings of templates.
    given = {
        "commit": "0123456789abcdef" * 2 + "01234567",
        "revisions": {"Qwen/Qwen3-0.6B": "{{ commit }}"},
        "sources": {"mine": {"repo": "someone/mine", "revision": "{{ commit }}"}},
        "own": {"mine": {"extends": "qwen36-27b-int4-autoround", "status": "experiment", "title": "{{ commit }}"}},
    }
    done = run_plays(tmp_path, plays, inventory=hosts({"localhost": given}))
    assert done.returncode == 0, done.stdout
    told = json.loads((tmp_path / "localhost.json").read_text())
    assert (told["made"]["profile"], told["made"]["stacks"]) == ("qwen36-27b-int4-autoround", ["xpu"])
    assert "localhost: qwen36-27b-int4-autoround; it was asked for." in told["made"]["msg"]
    assert told["read"] == given["commit"]
    assert told["refused"]["failed"]
    reason = said(told["refused"]["msg"])
    assert (
        "localhost cannot serve minimax-m27-c1 (the slot is empty, and b70_profile in the inventory names it)" in reason
    )
    assert "minimax-m27-c1 needs 4 cards, this host has 2 cards." in reason
    assert "Nearest that can be served here: " in reason
