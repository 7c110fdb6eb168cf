# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed keys of a profile become flags, environment variables and directives of the unit. Pure.

``engine.task``, ``engine.allowed_media_domains`` and ``engine.online_quantization`` become settings, ``engine.devices``
and ``engine.collectives`` become environment, ``engine.numa`` becomes directives. Each result remembers the key
that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import peer_access
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.card_memory import WITHOUT_MIRROR

_NEWEST = (999,)
# With them oneCCL opens no memory handle of another card, which fails where cards have no direct way to each other
# (vllm 48953, llm-scaler 594).
WITHOUT_PEER_ACCESS = {
    **{f"CCL_SYCL_{name}_SIMPLE_THRESHOLD": "4294967296" for name in ("ALLGATHERV", "ALLREDUCE", "REDUCE_SCATTER")},
    "CCL_SYCL_ALLTOALL_TMP_BUF": "1",
}
_MEMORY = {"p2p": peer_access.VARIABLES, "usm": {"CCL_TOPO_P2P_ACCESS": "0", **WITHOUT_PEER_ACCESS}}
# Variables that only a key of the profile sets, with that key.
DERIVED_ENV = {
    "ONEAPI_DEVICE_SELECTOR": "engine.devices",
    "ZE_AFFINITY_MASK": "engine.devices",
    "GGML_VK_VISIBLE_DEVICES": "engine.devices",
    "CCL_ATL_TRANSPORT": "engine.collectives.transport",
    **dict.fromkeys(_MEMORY["usm"], "engine.collectives.memory"),
    "CCL_ZE_IPC_EXCHANGE": "engine.collectives.ipc_exchange",
    "CCL_KVS_IFACE": "engine.collectives.interface",
    "FI_TCP_IFACE": "engine.collectives.interface",
    "GLOO_SOCKET_IFNAME": "engine.collectives.interface",
    "VLLM_SERVER_DEV_MODE": "engine.settings.enable_sleep_mode",
    "VLLM_OFFLOAD_WEIGHTS_BEFORE_QUANT": "engine.online_quantization.offload_weights_first",
}


def release_of(manifest: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Return the release of a stack's engine, or one that is newer than all if it is not known."""
    version = ((manifest or {}).get("engine") or {}).get("version")
    return tuple(int(part) for part in version.split(".")) if version else _NEWEST


def derived_settings(engine: Mapping[str, Any], manifest: Mapping[str, Any] | None) -> dict[str, tuple[Any, str]]:
    """Return ``{setting: (value, the key it comes from)}`` of an engine section, for the release of its stack."""
    return kind_of_engine(engine).derived_settings(engine, release_of(manifest))


def derived_environment(
    engine: Mapping[str, Any], cards: int, manifest: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the variables that the typed sections of an engine set; ``DERIVED_ENV`` names their keys."""
    found: dict[str, str] = {}
    devices = engine.get("devices")
    if devices:
        found["ZE_AFFINITY_MASK"] = ",".join(map(str, devices))
        # The mask renumbers the cards that it leaves, from 0, and the selector counts by these numbers.
        found["ONEAPI_DEVICE_SELECTOR"] = "level_zero:" + ",".join(map(str, range(len(devices))))
        interface = (manifest or {}).get("card_interface") or ""
        if variable := kind_of_engine(engine).card_variables.get(interface):
            found[variable] = found["ZE_AFFINITY_MASK"]
    collectives = engine.get("collectives") or {}
    interface = collectives.get("interface")
    if interface:
        found["GLOO_SOCKET_IFNAME"] = interface
    if cards:
        pairs = {
            "CCL_ATL_TRANSPORT": collectives.get("transport"),
            "CCL_ZE_IPC_EXCHANGE": collectives.get("ipc_exchange"),
            "CCL_KVS_IFACE": interface,
            "FI_TCP_IFACE": interface,
        }
        found |= {name: value for name, value in pairs.items() if value}
        found |= _MEMORY.get(collectives.get("memory") or "", {})
    if cards > 1 and (mirror := engine.get("host_mirror")):
        found |= WITHOUT_MIRROR[mirror][0]
    kind = kind_of_engine(engine)
    if kind.sleep and kind.sleeps(engine.get("settings") or {}):
        found |= kind.sleep.variables
    offload = (engine.get("online_quantization") or {}).get("offload_weights_first")
    if offload is not None:
        found["VLLM_OFFLOAD_WEIGHTS_BEFORE_QUANT"] = "1" if offload else "0"
    return found


def of_first_engine(profile: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a profile with the cards of the first of its engines, which sees those of no other."""
    cards, engine = profile["cards"], profile["engine"]
    if profile["replicas"] == 1 or not cards:
        return profile
    return {**profile, "engine": {**engine, "devices": (engine["devices"] or list(range(cards)))[:cards]}}


def numa_directives(numa: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the directives of ``engine.numa``: memory by policy and nodes, processors by list or those of the nodes."""
    if not numa:
        return
    nodes = ",".join(map(str, numa.get("nodes") or []))
    if numa.get("policy"):
        yield f"NUMAPolicy={numa['policy']}"
    if nodes:
        yield f"NUMAMask={nodes}"
    if numa.get("cpus") or nodes:
        yield f"CPUAffinity={numa.get('cpus') or 'numa'}"


def expanded(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile whose settings and environment hold everything that its typed sections set."""
    engine, origins = profile["engine"], dict(profile["origins"])

    def author(path: str) -> str:
        name = origins.get(path) or next((who for key, who in origins.items() if key.startswith(f"{path}.")), "")
        return f"{name or profile['name']} ({path})"

    settings = dict(engine["settings"])
    for key, (value, path) in derived_settings(engine, manifest).items():
        settings[key] = value
        origins[f"engine.settings.{key}"] = author(path)
    environment = derived_environment(engine, profile["cards"], manifest)
    for name in environment:
        # Profiles may set the driver's own switches for other ends, too.
        origins[f"engine.env.{name}"] = author(DERIVED_ENV.get(name, "engine.host_mirror"))
    engine = {**engine, "settings": settings, "env": {**environment, **engine["env"]}}
    return {**profile, "engine": engine, "origins": origins}
