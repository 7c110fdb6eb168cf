# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The typed sections of a profile -> settings, environment and directives."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.typed import (
    DERIVED_ENV,
    WITHOUT_PEER_ACCESS,
    derived_environment,
    derived_settings,
    expanded,
    numa_directives,
)

NEW: dict[str, Any] = {"name": "new", "engine": {"kind": "vllm", "version": "0.21.0"}}
OLD: dict[str, Any] = {"name": "old", "engine": {"kind": "vllm", "version": "0.11.1"}}


@pytest.mark.parametrize(
    ("task", "new", "old"),
    [
        (None, {}, {}),
        ("generate", {}, {}),
        ("transcription", {}, {}),
        ("embed", {"runner": "pooling", "convert": "embed"}, {"task": "embed"}),
        ("classify", {"runner": "pooling", "convert": "classify"}, {"task": "classify"}),
        ("score", {"runner": "pooling"}, {"task": "score"}),
    ],
)
def test_a_task_is_said_as_the_release_wants_it(task, new, old):
    for manifest, wanted in ((NEW, new), (OLD, old), (None, new), ({"name": "no engine"}, new)):
        found = derived_settings({"task": task}, manifest)
        assert {key: value for key, (value, _path) in found.items()} == wanted
        assert {path for _value, path in found.values()} <= {"engine.task"}


def test_online_quantization_is_a_flag_and_a_variable():
    engine = {"online_quantization": {"method": "fp8", "offload_weights_first": True}}
    assert derived_settings(engine, NEW) == {"quantization": ("fp8", "engine.online_quantization.method")}
    assert derived_environment(engine, 1) == {"VLLM_OFFLOAD_WEIGHTS_BEFORE_QUANT": "1"}
    engine["online_quantization"]["offload_weights_first"] = False
    assert derived_environment(engine, 1) == {"VLLM_OFFLOAD_WEIGHTS_BEFORE_QUANT": "0"}


@pytest.mark.parametrize(
    ("devices", "mask", "selector"),
    [([0, 1, 2, 3], "0,1,2,3", "level_zero:0,1,2,3"), ([0], "0", "level_zero:0"), ([2, 3], "2,3", "level_zero:0,1")],
)
def test_the_selector_counts_the_cards_that_the_mask_leaves(devices, mask, selector):
    found = derived_environment({"devices": devices}, len(devices))
    assert found == {"ZE_AFFINITY_MASK": mask, "ONEAPI_DEVICE_SELECTOR": selector}


def test_collectives():
    collectives = {"memory": "usm", "transport": "ofi", "interface": "lo", "ipc_exchange": "pidfd"}
    assert derived_environment({"collectives": collectives}, 4) == {
        "GLOO_SOCKET_IFNAME": "lo",
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_TOPO_P2P_ACCESS": "0",
        **WITHOUT_PEER_ACCESS,
        "CCL_ZE_IPC_EXCHANGE": "pidfd",
        "CCL_KVS_IFACE": "lo",
        "FI_TCP_IFACE": "lo",
    }
    assert derived_environment({"collectives": {"memory": "p2p"}}, 2) == {"CCL_TOPO_P2P_ACCESS": "1"}
    # Without cards nothing of oneCCL is in use.
    assert derived_environment({"collectives": collectives}, 0) == {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize(
    ("numa", "directives"),
    [
        (None, []),
        ({}, []),
        ({"policy": "bind", "nodes": [0]}, ["NUMAPolicy=bind", "NUMAMask=0", "CPUAffinity=numa"]),
        ({"policy": "interleave", "nodes": [0, 1]}, ["NUMAPolicy=interleave", "NUMAMask=0,1", "CPUAffinity=numa"]),
        (
            {"policy": "bind", "nodes": [0], "cpus": "0-17"},
            ["NUMAPolicy=bind", "NUMAMask=0", "CPUAffinity=0-17"],
        ),
        ({"policy": "local"}, ["NUMAPolicy=local"]),
        ({"cpus": "0-17,72-89"}, ["CPUAffinity=0-17,72-89"]),
    ],
)
def test_numa_binding_is_systemds(numa, directives):
    assert list(numa_directives(numa)) == directives


def test_everything_that_is_derived_remembers_who_said_it():
    profile: dict[str, Any] = {
        "name": "x",
        "cards": 2,
        "origins": {"engine.devices": "_base", "engine.task": "x", "engine.collectives.memory": "y"},
        "engine": {
            "task": "embed",
            "devices": [0, 1],
            "collectives": {"memory": "usm"},
            "settings": {"dtype": "auto"},
            "env": {"A": "1"},
        },
    }
    found = expanded(profile, NEW)
    assert found["engine"]["settings"] == {"dtype": "auto", "runner": "pooling", "convert": "embed"}
    assert found["origins"]["engine.settings.runner"] == "x (engine.task)"
    assert found["origins"]["engine.env.ZE_AFFINITY_MASK"] == "_base (engine.devices)"
    assert found["origins"]["engine.env.CCL_TOPO_P2P_ACCESS"] == "y (engine.collectives.memory)"
    assert found["engine"]["env"]["A"] == "1"
    assert profile["engine"]["settings"] == {"dtype": "auto"}, "the profile of the catalogue stays as it was"


def test_vulkan_heeds_a_variable_of_its_own():
    vulkan = {"card_interface": "vulkan"}
    found = derived_environment({"kind": "llama-server", "devices": [2, 3]}, 2, vulkan)
    assert found["GGML_VK_VISIBLE_DEVICES"] == found["ZE_AFFINITY_MASK"] == "2,3"
    assert "GGML_VK_VISIBLE_DEVICES" not in derived_environment({"kind": "llama-server", "devices": [2]}, 1, {})
    assert derived_environment({"kind": "llama-server"}, 1, vulkan) == {}


def test_every_derived_variable_names_its_key():
    everything = {
        "kind": "llama-server",
        "devices": [0],
        "collectives": {"memory": "usm", "transport": "ofi", "interface": "lo", "ipc_exchange": "pidfd"},
        "online_quantization": {"offload_weights_first": True},
    }
    found = derived_environment(everything, 1, {"card_interface": "vulkan"})
    found |= derived_environment({"kind": "vllm", "settings": {"enable_sleep_mode": True}}, 1)
    assert set(found) == set(DERIVED_ENV)
