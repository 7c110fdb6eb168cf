# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every shipped profile and example, parsed by the command line of the release that its stack pins."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.engines import table, versions
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from tools import engines

STACKS = load_stacks()
FOLDERS = [engines.ROOT / "inventory" / "lab_profiles", engines.ROOT / "roles" / "profiles" / "files" / "examples"]
# Those of llama.cpp are read by the program that tests/system/test_llama.py builds.
CATALOGUE = {
    name: profile
    for name, profile in load_catalogue(FOLDERS, stacks=STACKS).items()
    if profile["engine"]["kind"] == "vllm"
}
SLOT = {
    **dict.fromkeys(("config_dir", "unit_dir", "tmpfiles_dir", "run_dir", "state_dir", "lib_dir", "bin_dir"), "/d"),
    **dict.fromkeys(("models_dir", "stacks_dir", "cache_dir", "hf_home"), "/data"),
    "frontdoor_url": "u",
    "user": "b70",
    "group": "b70",
    "backend_port": 18080,
    "stacks": STACKS,
}
# What the releases must refuse, so that a parser that takes everything would be noticed.
BROKEN = {
    "unknown": ["--async-engine"],
    "old form": ["--limit-mm-per-prompt", "image=4"],
    "type": ["--max-num-seqs", "eight"],
    "choice": ["--dtype", "bfloat"],
    "together": ["--enable-auto-tool-choice"],
    "removed": ["--task", "embed"],
}


def arguments(name: str) -> list[str]:
    """Return what a profile's unit gives to ``vllm serve``."""
    resolved, _environment = rendering.resolve(CATALOGUE[name], rendering.check_settings(SLOT))
    argv = resolved["engine"]["argv"]
    assert argv[1] == "serve"
    return list(argv[2:])


def version_of(name: str) -> str:
    """The release that a profile's stack pins; empty for an image whose owner does not tell it."""
    engine: dict[str, str] = STACKS[CATALOGUE[name]["stack"]].get("engine") or {}
    return engine.get("version", "")


def pinned(version: str) -> list[str]:
    return [name for name in CATALOGUE if version_of(name) == version]


def only_in_its_image(name: str) -> bool:
    """Is the engine a fork that exists only as an image, or not at all? Then nobody can ask it here."""
    stack = STACKS[CATALOGUE[name]["stack"]]
    return version_of(name) not in engines.VERSIONS and ("image" in stack or not stack["installable"])


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """What each release says to its profiles, to broken arguments, and about itself."""
    engines.prepare()
    found = {}
    for version in engines.VERSIONS:
        argv = {name: arguments(name) for name in pinned(version)}
        argv |= {f"broken {name}": ["/model", *words] for name, words in BROKEN.items()}
        found[version] = engines.ask(version, {"argv": argv, "describe": True})
    return found


def test_every_profile_is_asked_about():
    """A stack that pins a release nobody can ask would leave its profiles unchecked."""
    asked = sorted(name for version in engines.VERSIONS for name in pinned(version))
    assert asked == sorted(name for name in CATALOGUE if not only_in_its_image(name))
    assert list(engines.VERSIONS) == versions()


def test_the_release_takes_every_profile_of_its_stacks(answers):
    for version, answer in answers.items():
        complaints = {name: words for name, words in answer["complaints"].items() if words and name in CATALOGUE}
        assert not complaints, f"vLLM {version} refuses: {complaints}"


def test_the_release_refuses_what_is_broken(answers):
    for version, answer in answers.items():
        taken = [name for name in BROKEN if not answer["complaints"][f"broken {name}"]]
        assert not taken, f"vLLM {version} takes {taken}"
        assert "--async-engine" in answer["complaints"]["broken unknown"]


def test_the_tables_say_what_the_releases_say(answers):
    for version, answer in answers.items():
        recorded = table("vllm", version)
        assert recorded is not None
        assert recorded["options"] == answer["described"]["options"], version
        assert recorded["environment"] == answer["described"]["environment"], version
