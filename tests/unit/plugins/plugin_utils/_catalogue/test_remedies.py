# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every rule has a remedy that helps, and no other rule, schema or check refuses what it writes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import schema
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.rules import common, left_for_proof
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.schema import faults
from unit.shipped import STACKS, load_inline

# An image that no shipped stack has.
B3_1 = {
    "name": "b3-1",
    "engine": {"kind": "vllm"},
    "device": "xpu",
    "installable": False,
    "image": {"name": "docker.io/intel/llm-scaler-vllm", "tag": "0.21.0-b3.1", "program": "/usr/local/bin/vllm"},
}
ALL = {**STACKS, "b3-1": B3_1}
COMMON_ON = {
    "runtime-26-27-on-several-cards": "vllm-openai-xpu-0.30.0",
    "llm-scaler-0-26-0-b2-on-several-cards": "exl3xpu",
    "llm-scaler-0-21-0-b3-1-on-several-cards": "b3-1",
    "llm-scaler-0-21-0-b2-on-several-cards": "llm-scaler-0.21",
    "sleep-mode-without-graphs": "xpu-0.32",
}
SAMPLES = {
    "mtp$": "mtp",
    "(?i)qwen3(\\.[5-9]|-next)": "Qwen/Qwen3.8-27B",
    "(?i)gemma-4": "google/gemma-4-26B-A4B-it",
    "/intel/oneapi": "/opt/intel/oneapi/lib",
    "^(q|iq)": "q8_0",
    "^(FULL|PIECEWISE)": "PIECEWISE",
    "^(?!NONE$|0$)": None,
}
# What a profile writes where a rule reads what is made of it.
WRITTEN = {
    "engine.workers": "engine.settings.tensor_parallel_size",
    "engine.env.CCL_*": "engine.env.CCL_ALLREDUCE",
    "engine.env.VK_*": "engine.env.VK_LOADER_DISABLE_SELECT",
    "engine.env.MESA_VK_*": "engine.env.MESA_VK_DEVICE_SELECT",
}


def rules() -> Iterator[tuple[str, str]]:
    """Yield each rule with each stack that has it."""
    for name, manifest in STACKS.items():
        kind = (manifest.get("engine") or {}).get("kind", "vllm")
        if kind in ("vllm", "llama-server") and manifest.get("device") != "none":
            for rule in manifest.get("rules") or []:
                # Where the engine reads no such variable there is nothing to break.
                if "engine.env.GGML_VK_VISIBLE_DEVICES" not in rule["when"] or "card_interface" in manifest:
                    yield name, rule["id"]
    yield from ((stack, rule) for rule, stack in COMMON_ON.items())


def rule_of(stack: str, identity: str) -> Mapping[str, Any]:
    every = [*(ALL[stack].get("rules") or []), *common()]
    return next(rule for rule in every if rule["id"] == identity)


def put(profile: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    if path.startswith(("engine.settings.compilation_config.", "engine.settings.speculative_config.")):
        parents, last = path.split(".")[:3], path.split(".", 3)[3]
    node = profile
    for key in parents:
        node = node.setdefault(key, {})
    names = [key for key in node if key.startswith(last[:-1])] if last.endswith("*") else [last]
    for name in names:
        if value is None:
            node.pop(name, None)
        else:
            node[name] = value


def value_that_meets(condition: Mapping[str, Any]) -> Any:
    if "min_per" in condition:
        return condition["min_per"]["value"] * 8
    if "matches" in condition:
        return SAMPLES[condition["matches"]]
    if condition.get("not_power_of_two"):
        return [6]
    if "present" in condition:
        return 8 if condition["present"] else None
    if "default" in condition and "equals" not in condition:
        return None if condition["default"] >= condition.get("min", condition["default"]) else condition["min"]
    return condition.get("equals", condition.get("min", condition.get("one_of", [None])[0]))


def that_breaks(stack: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    llama = (ALL[stack].get("engine") or {}).get("kind") == "llama-server"
    settings: dict[str, Any] = {"ctx_size": 2048, "parallel": 2} if llama else {"max_model_len": 2048}
    if not llama and not any("cudagraph" in path or "compilation" in path for path in rule["when"]):
        settings["compilation_config"] = {"cudagraph_mode": "NONE"}
    profile: dict[str, Any] = {
        "name": "x",
        "status": "experiment",
        "stack": stack,
        "cards": 1,
        "model": {"directory": "m", **({"file": "m.gguf"} if llama else {})},
        "engine": {"kind": "llama-server" if llama else "vllm", "settings": settings},
    }
    for path, condition in rule["when"].items():
        if path.startswith(("runtime", "image")):
            continue
        value = value_that_meets(condition)
        if path == "engine.env.CCL_TOPO_P2P_ACCESS":
            put(profile, "engine.collectives", {"memory": "p2p"})
        elif path == "engine.env.GGML_VK_VISIBLE_DEVICES":
            put(profile, "engine.devices", [0])
        elif path == "engine.settings.quantization":
            put(profile, "engine.online_quantization", {"method": value})
        else:
            put(
                profile,
                WRITTEN.get(path, path),
                str(value) if path.startswith("engine.env.") and value is not None else value,
            )
    if "engine.settings.speculative_config.method" in rule["when"]:
        put(profile, "engine.settings.speculative_config.num_speculative_tokens", 3)
    profile["cards"] = settings.get("tensor_parallel_size", 1)
    return profile


def refusals(profile: dict[str, Any]) -> set[str]:
    """Return what refuses a profile: the catalogue, or else a host without the proof that it asks for."""
    try:
        loaded = load_inline({"x": profile}, stacks=ALL)["x"]
    except CatalogueError as error:
        return {str(problem) for problem in error.problems}
    left = left_for_proof(loaded, ALL[profile["stack"]])
    return {f'breaks the rule "{name.replace("_", "-")}" of the stack' for name in left}


@pytest.mark.parametrize(("stack", "identity"), list(rules()))
def test_each_remedy_helps_and_nothing_refuses_it(stack: str, identity: str) -> None:
    rule = rule_of(stack, identity)
    broken = that_breaks(stack, rule)
    before = refusals(broken)
    assert any(f'breaks the rule "{identity}"' in text for text in before), before
    assert rule["remedies"]
    for remedy in rule["remedies"]:
        repaired = copy.deepcopy(broken)
        for path, value in remedy.items():
            put(repaired, path, value)
        after = refusals(repaired)
        assert not {text for text in after if f'breaks the rule "{identity}"' in text}, remedy
        # Another stack may have other words against the same setting.
        new = {text.partition(" of the stack ")[0] for text in after} - {
            text.partition(" of the stack ")[0] for text in before
        }
        assert not new, remedy


@pytest.mark.parametrize("drafts", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("sizes", [[1, 2, 4, 8], [8, 16], [6, 12]])
@pytest.mark.parametrize("stack", ["xpu", "vllm-openai-xpu-0.30.0", "lumnus-flash-next"])
def test_drafts_in_graphs_have_a_way_out_on_every_stack(stack: str, drafts: int, sizes: list[int]) -> None:
    settings = {
        "max_model_len": 2048,
        "compilation_config": {"cudagraph_mode": "PIECEWISE"},
        "cudagraph_capture_sizes": sizes,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": drafts},
    }
    profile = {"name": "x", "status": "experiment", "stack": stack, "cards": 1, "model": {"directory": "m"}}
    told = refusals({**profile, "engine": {"settings": settings}})
    calm = refusals({**profile, "engine": {"settings": {**settings, "async_scheduling": False}}})
    assert not any("speculation-in-padded-graphs" in text for text in calm)
    if sizes != [6, 12]:
        assert not calm
    if any(size % (drafts + 1) for size in sizes):
        assert any("Set async_scheduling to false, or capture no graphs" in text for text in told)


def test_the_rules_for_all_stacks_are_rules() -> None:
    assert not list(faults([dict(rule) for rule in common()], schema("stack.schema.json")["properties"]["rules"]))
    assert {rule["id"] for rule in common()} == set(COMMON_ON)
