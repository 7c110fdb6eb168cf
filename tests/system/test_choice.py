# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile decides the stack, on a bare host without cards: refused at once or chosen, and nothing is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from system.product import ROOT, play, words_of
from system.test_pristine import changed_files

SITE = ROOT / "site.yml"


def profile(name: str, **more: Any) -> dict[str, Any]:
    """A profile as an operator's inventory has it."""
    made = {"extends": "tiny-a", "status": "candidate", "engine": {"cache_key": name}, **more}
    return {"b70_profiles": {name: made}}


# What the host itself has to say; what the catalogue says is refused in the same words, as test_choose.py proves.
REFUSED = {
    "four-cards": (profile("four-cards", cards=4), "four-cards needs 4 cards, this host has no card."),
    "too-large": (
        profile("too-large", model={"directory": "too-large", "hf_repo": "a/b", "size_gb": 9e6}),
        "The weights of too-large take 9e+06 GB",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_host_cannot_serve_is_refused_before_anything_is_changed(host: Host, name: str) -> None:
    more, why = REFUSED[name]
    refused = play(SITE, "-e", f"profile={name}", "-e", json.dumps(more))
    assert refused.code != 0, refused.output
    said = words_of(refused.output)
    assert f"cannot serve {name} (it was asked for): {why}" in said
    assert "Nearest that can be served here: tiny-" in said
    assert "ansible-playbook arcpro.b70.show_models -e cards=0" in said
    assert refused.changed == 0
    assert changed_files(host) == []
    for path in ("/opt/b70", "/etc/b70-vllm-slot", "/var/lib/b70", "/mnt/fast-ai"):
        assert not host.file(path).exists, path


def test_a_rule_of_the_stack_is_refused_before_any_host_is_reached(host: Host, tmp_path: Path) -> None:
    (tmp_path / "ruled.yml").write_text(
        json.dumps(
            {
                "name": "ruled",
                "based_on": "cpu",
                "installable": True,
                "rules": [
                    {
                        "id": "short-contexts",
                        "when": {"engine.settings.max_model_len": {"max": 4096}},
                        "reason": "Short contexts loop.",
                        "remedy": "Raise max_model_len.",
                        "source": "this test",
                    }
                ],
            }
        )
    )
    more = {**profile("short", stack="ruled"), "b70_stack_dirs": [str(tmp_path)]}
    refused = play(SITE, "-e", "profile=short", "-e", json.dumps(more))
    assert refused.code != 0
    assert 'breaks the rule "short-contexts" of the stack ruled: Short contexts loop. Raise max_model_len.' in words_of(
        refused.output
    )
    more["b70_profiles"]["short"]["accepts_rules"] = ["short-contexts"]
    accepted = play(SITE, "--tags", "always", "-e", "profile=short", "-e", json.dumps(more))
    assert accepted.code == 0, accepted.output
    assert "short; it was asked for. Stacks on this host: ruled." in words_of(accepted.output)


BY_INVENTORY = "tiny-a; the slot is empty, and b70_profile in the inventory names it. Stacks on this host: cpu."
RECOMMENDED = (
    "qwen3-0.6b-cpu; nobody chose, and it is recommended for no card: It is small, and needs no card. To choose "
    "another: -e profile=NAME, or b70_profile in the inventory; "
    "ansible-playbook arcpro.b70.show_models -e cards=0 lists all. Stacks on this host: cpu."
)


@pytest.mark.parametrize(("variables", "said"), [({}, BY_INVENTORY), ({"b70_profile": ""}, RECOMMENDED)])
def test_an_empty_slot_gets_the_inventorys_profile_or_the_recommended_one(
    host: Host, variables: dict[str, Any], said: str
) -> None:
    done = play(SITE, "--tags", "always", "-e", json.dumps(variables))
    assert done.code == 0, done.output
    assert said in words_of(done.output)
    assert changed_files(host) == []
