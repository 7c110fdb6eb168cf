# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a switch and an engine's unit ask the other nodes of a group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from . import nodes
from .effects import Effects, poll
from .network import parse_links
from .nodes import RUNS, Group, Part, Report, Wish
from .profile import NODES_LIMIT_S, Profile
from .slot_file import read_slot_file
from .types import Layout, SlotFault

INTERVAL_S = 1.0
ASK_LIMIT_S = 3.0
NOTICED_S = 3.0  # an engine may end before the node that it lost says so, which looks once a second
GUARD_LIMIT_S = 10.0  # a node whose service was just started anew answers by then


def mapping(text: str | None) -> dict[str, Any]:
    """The mapping in a JSON text; empty if the text has none."""
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def ask(fx: Effects, group: Group, names: Sequence[nodes.Node]) -> dict[str, Report | str]:
    """The report of each of these nodes, or a text that says why there is none."""
    found: dict[str, Report | str] = {}
    for node in names:
        reply = fx.http.get(group.url(node), ASK_LIMIT_S)
        try:
            if reply.status != 200:
                raise SlotFault(reply.error or f"status {reply.status}")
            found[node.name] = nodes.parse_report(reply.text, f"node {node.name}")
        except SlotFault as fault:
            found[node.name] = fault.message
    return found


def heard(answers: Mapping[str, Report | str]) -> dict[str, Report]:
    """The reports of the nodes that answered."""
    return {name: answer for name, answer in answers.items() if isinstance(answer, Report)}


def group_of(fx: Effects, layout: Layout, profile: Profile) -> Group:
    """The group of a profile over several nodes. Raises SlotFault if this host is in no group, or is not the leader."""
    group, node = read_slot_file(fx, layout).group, profile.node
    if group is None or node is None or len(group.hosts) < node.count:
        count = 1 if node is None else node.count
        raise SlotFault(f"profile {profile.name} needs {count} nodes, but this host has no such group (b70_nodes)")
    if group.rank:
        raise SlotFault(
            f"profile {profile.name} is led by node {group.leader.name}; run the switch there, and this host follows"
        )
    return group


def check_group(fx: Effects, layout: Layout, profile: Profile) -> list[str]:
    """The guard of a profile over several nodes: each of the others can take part over a fast enough network.

    Returns warnings. Raises SlotFault.
    """
    group, count = group_of(fx, layout, profile), 0 if profile.node is None else profile.node.count
    fault = SlotFault("no node was asked")
    for _waited in poll(fx.clock, GUARD_LIMIT_S, INTERVAL_S):
        answers = ask(fx, group, group.followers(count))
        try:
            nodes.check_others(group, profile, answers, fx.clock.now().timestamp())
        except SlotFault as found:
            fault = found
        else:
            return nodes.check_network(group, profile, parse_links(fx.files.read(layout.network_file)))
    raise fault


def check_free(fx: Effects, layout: Layout) -> None:
    """The guard of all other profiles: checks that the slot runs no part of another node's engine. Raises SlotFault."""
    part, group = read_part(fx, layout), read_slot_file(fx, layout).group
    if part is not None and part.state == RUNS and group is not None:
        raise SlotFault(
            f"slot {layout.slot} runs a part of {part.profile}, which node {group.leader.name} leads; switch there to "
            "another profile first"
        )


def await_nodes(fx: Effects, layout: Layout, profile: Profile, epoch: str) -> None:
    """Waits until the other nodes run their parts of the engine that is about to start. Raises SlotFault.

    epoch: the invocation id of its unit.
    """
    group = group_of(fx, layout, profile)
    count = 0 if profile.node is None else profile.node.count
    wish = Wish(profile.name, profile.fingerprint, count, epoch)
    waits = ""
    for _waited in poll(fx.clock, NODES_LIMIT_S, INTERVAL_S):
        waits = nodes.awaited(group, wish, heard(ask(fx, group, group.followers(count))))
        if not waits:
            return
    raise SlotFault(f"node {waits} has not started its part of {profile.name} within {NODES_LIMIT_S:.0f} s")


def lost_part(fx: Effects, layout: Layout, profile: Profile, epoch: str) -> str:
    """Which node runs no part of this engine process, and why; empty: all do, or the engine is on one host."""
    if profile.node is None or not epoch:
        return ""
    group = group_of(fx, layout, profile)
    wish, why = Wish(profile.name, profile.fingerprint, profile.node.count, epoch), ""
    for _waited in poll(fx.clock, NOTICED_S, INTERVAL_S):
        why = nodes.lost(group, wish, heard(ask(fx, group, group.followers(wish.count))), {})
        if why:
            break
    return why


def read_part(fx: Effects, layout: Layout) -> Part | None:
    """The part of another node's engine that this host started last, on this boot."""
    with suppress(OSError, TypeError):
        data = mapping(fx.files.read(layout.part_file))
        return Part(**data) if data else None
    return None
