# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that the templates of a slot's systemd units are rendered with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import MASK, NODES_LIMIT_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.power import FOLDER
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import NODE_KEY, Layout, Which

from .._nodes import NodePlace
from .._quoting import quote
from .launch import Launch
from .program import PACKAGE
from .relay import relay_credentials, relay_name, relay_network


def unit_name(name: str, slot: str = "main", which: Which = None) -> str:
    """Return the unit of a profile in a slot, or that of one of its engines."""
    return Layout(slot=slot).unit(name, which)


def network_directives(profile: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the directives for the IP addresses of an engine: this host, and what ``engine_ip_allow`` names.

    A profile that may fetch media reaches every address except link-local and multicast ones, unless that list names
    some. One of several nodes reaches the others.
    """
    host, named = settings["backend_host"], list(settings["engine_ip_allow"])
    if profile.get("node"):
        named += profile["node"].addresses
    own = [] if host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::") else [host]
    domains, interface = profile["engine"]["allowed_media_domains"], profile["engine"]["collectives"].get("interface")
    if profile["engine"].get("remote"):
        return relay_network(profile["engine"]["remote"], own)
    if interface not in (None, "lo") and not named:
        raise ValueError(
            f"profile {profile['name']}: engine.collectives.interface is {interface}, so the setting "
            "slot_engine_ip_allow must name the addresses that the workers use there"
        )
    denied = "link-local multicast" if domains and not named else "any"
    node = profile.get("node")
    # Another host that takes an address of a node is not on the node's interface.
    tied = [f"RestrictNetworkInterfaces=lo {node.interface}"] if node and not settings["engine_ip_allow"] else []
    return [f"IPAddressDeny={denied}", f"IPAddressAllow={' '.join(['localhost', *own, *named])}", *tied]


def power_directives(watts: int | None) -> list[str]:
    """Return the directive that marks units with this power cap; systemd ignores keys that begin with X-."""
    return [] if watts is None else [f"X-PowerCapWatts={watts}"]


def unit_data(resolved: Mapping[str, Any], settings: Mapping[str, Any], launch: Launch) -> dict[str, Any]:
    """Return what the unit of a resolved profile is rendered with. A drop-in keeps it exclusive, see `b70_slot_files`.

    :param resolved: as the host gets it; for a replica, with the unit and the engine of that replica.
    :param settings: the slot's settings (see ``arcpro.b70.render_slot``), with the profile's ``kill_signal``, its own
        ``directives``, its ``env_file``, its ``guarded_port``, and the ``program`` of the slot.
    :param launch: how the program of its stack is started.
    """
    engine, layout = resolved["engine"], Layout(slot=resolved["slot"])
    package = f"{settings['lib_dir']}/{PACKAGE}"
    data = {
        **settings,
        "profile": resolved,
        "controller_unit": layout.controller_unit,
        "success_statuses": kind_of(engine["kind"]).success_statuses,
    }
    if remote := engine.get("remote"):
        return {
            **data,
            "credentials": relay_credentials(remote),
            "runtime_dir": relay_name(resolved["slot"]),
            "relay_program": f"{package}/relay.py",
        }
    node, mask = resolved.get("node"), engine["env"].get(MASK, "")
    launched = launch.data(resolved, settings)
    models = [resolved["model"]["path"], *resolved["model"].get("companions", [])]
    return {
        **data,
        **launched,
        "mounts": list(dict.fromkeys([*models, *launched["mounts"], settings["cache_dir"], settings["hf_home"]])),
        "command": " \\\n    ".join(_grouped(launched["argv"])),
        "start_after_s": engine.get("start_after_s", 0),
        "node_unit": layout.node_unit if node else "",
        "follows": bool(node and node["rank"]),
        "nodes_start_s": f"{NODES_LIMIT_S + 90:g}",
        "asleep": resolved.get("standby", False),
        "watts": resolved.get("power_cap_w"),
        "power_program": f"{package}/power.py",
        "power_dir": f"{settings['run_dir']}/{FOLDER}",
        "power_cards": mask if re.fullmatch(r"\d+(,\d+)*", mask) else "",
    }


def node_data(place: NodePlace, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the unit is rendered with that makes a host part of a group of nodes.

    :param settings: the slot's settings (see ``arcpro.b70.render_slot``).
    """
    frontdoor = urlsplit(settings["frontdoor_url"]).hostname or ""
    own = [frontdoor] if re.fullmatch(r"[0-9.]+|[0-9a-f:]+", frontdoor) else []
    return {
        **settings,
        "rank": place.rank,
        "leader": place.hosts[0][0],
        "key": NODE_KEY,
        "addresses": list(dict.fromkeys(["localhost", *own, *place.addresses])),
    }


def _grouped(argv: Sequence[str]) -> list[str]:
    """Return the quoted arguments, one flag with its values per line, so that a diff shows what changed."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            rows.append([])
        rows[-1].append(quote(word))
    return [" ".join(row) for row in rows if row]
