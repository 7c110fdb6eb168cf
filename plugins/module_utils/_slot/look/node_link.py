# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The questions of a switch and of an engine's unit to the other nodes of a group."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..model import node_key, nodes, weights
from ..model.network import parse_links
from ..model.nodes import LEADER_GRACE_S, RUNS, FollowerPart, Group, Node, NodeReport, Wish
from ..model.profile import NODES_LIMIT_S, Profile
from ..model.slot_file import read_slot_file
from ..words.decode import decode_written
from ..words.effects import Effects, poll, text_of
from ..words.types import Layout, SlotFault

INTERVAL_S = 1.0
ASK_LIMIT_S = 3.0
NOTICED_S = 3.0  # an engine may end before the node that it lost says so, which looks once a second
GUARD_LIMIT_S = 15.0  # a node whose service was just started anew answers by then, and knows whom it hears


def mapping(text: str | None) -> dict[str, Any]:
    """Return the mapping in a JSON text; empty if the text has none."""
    try:
        data = json.loads(text or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def read_key(fx: Effects, path: PurePosixPath) -> str:
    """Return the key of the group in this file; raise SlotFault where there is none."""
    try:
        return node_key.checked(fx.files.read(path), str(path))
    except OSError as error:
        raise SlotFault(f"{path} can't be read ({error.strerror}); {node_key.REMEDY}") from error


def ask(fx: Effects, key_file: PurePosixPath, group: Group, names: Sequence[Node]) -> dict[str, NodeReport | str]:
    """Return the report of each of these nodes, all asked at once, or a text with why there is none."""
    try:
        key = read_key(fx, key_file)
    except SlotFault as fault:
        return {node.name: fault.message for node in names}
    nonces = [secrets.token_hex(16) for _node in names]
    urls = [
        group.url(node) + node_key.question(key, node.name, nonce) for node, nonce in zip(names, nonces, strict=True)
    ]
    found: dict[str, NodeReport | str] = {}
    for node, nonce, reply in zip(names, nonces, fx.http.get_each(urls, ASK_LIMIT_S), strict=True):
        try:
            if reply.status != 200:
                unknown = reply.error or f"status {reply.status}"
                raise SlotFault(node_key.OTHER_KEY if reply.status == 403 else unknown)
            text = node_key.believed(key, node.name, nonce, reply.text)
            report = nodes.parse_report(text, f"node {node.name}")
            if report.stale:
                raise SlotFault(f"its service has not looked at anything for {report.age:.0f} s")
            found[node.name] = report
        except SlotFault as fault:
            found[node.name] = fault.message
    return found


def heard(answers: Mapping[str, NodeReport | str]) -> dict[str, NodeReport]:
    """Return the reports of the nodes that answered."""
    return {name: answer for name, answer in answers.items() if isinstance(answer, NodeReport)}


def group_of(fx: Effects, layout: Layout, profile: Profile) -> Group:
    """Return the group of a profile over several nodes; raise SlotFault unless this host is its leader."""
    group, node = read_slot_file(fx, layout).nodes, profile.node
    if group is None or node is None or len(group.hosts) < node.count:
        count = 1 if node is None else node.count
        raise SlotFault(f"profile {profile.name} needs {count} nodes, but this host has no such group (b70_nodes)")
    if group.rank:
        raise SlotFault(
            f"profile {profile.name} is led by node {group.leader.name}; run the switch there, and this host follows"
        )
    return group


def check_group(fx: Effects, layout: Layout, profile: Profile) -> list[str]:
    """Check that each other node of a profile over several can take part over a fast enough network; return warnings.

    Raise SlotFault where one can't.
    """
    group, count = group_of(fx, layout, profile), 0 if profile.node is None else profile.node.count
    for holder in fx.processes.port_holders(group.rendezvous_port):
        if not holder.unit.startswith(layout.unit_prefix):
            raise SlotFault(
                f"port {group.rendezvous_port}, where the parts of {profile.name} meet (b70_nodes.port + 1), is held "
                f"by a process that is not ours: {holder.describe()}"
            )
    fault, recorded = SlotFault("no node was asked"), weights_of(fx, profile)
    for _waited in poll(fx.clock, GUARD_LIMIT_S, INTERVAL_S):
        answers = ask(fx, layout.node_key_file, group, group.followers(count))
        try:
            nodes.check_others(group, profile, answers, fx.clock.now().timestamp(), recorded)
        except SlotFault as found:
            fault = found
        else:
            return nodes.check_network(group, profile, parse_links(fx.files.read(layout.network_file)))
    raise fault


def weights_of(fx: Effects, profile: Profile) -> str:
    """Return a digest of the recorded weights of the profile: names, sizes and digests; empty without a record."""
    folders = (profile.model.path, *profile.model.companions)
    return weights.together(
        weights.digest(fx.files.read(PurePosixPath(folder) / weights.RECORDED)) for folder in folders
    )


def check_free(fx: Effects, layout: Layout) -> None:
    """Raise SlotFault if the slot runs a part of another node's engine: the guard of all other profiles."""
    part, group = read_part(fx, layout), read_slot_file(fx, layout).nodes
    if part is not None and part.state == RUNS and group is not None:
        raise SlotFault(
            f"slot {layout.slot} runs a part of {part.profile}, which node {group.leader.name} leads; switch there to "
            "another profile first"
        )


def waits_for(fx: Effects, layout: Layout, group: Group, wish: Wish, switching: Callable[[], bool]) -> str:
    """Return what an engine that is about to start waits for; empty if all nodes run their parts.

    Raise SlotFault where a switch had better go back.
    """
    own = fx.units.show([layout.node_unit])[0]
    if not own.settled:
        return f"{own.name} of this host, without which no node hears of it ({own.describe()})"
    answers = heard(ask(fx, layout.node_key_file, group, group.followers(wish.count)))
    return nodes.awaited(group, wish, answers, urgent=False) and nodes.awaited(group, wish, answers, urgent=switching())


def await_nodes(fx: Effects, layout: Layout, profile: Profile, epoch: str, switching: Callable[[], bool]) -> None:
    """Wait until the other nodes run their parts of the engine that is about to start; raise SlotFault at the limit.

    epoch: the invocation id of its unit. switching: whether a switch waits for it, and would rather go back.
    """
    group = group_of(fx, layout, profile)
    wish = Wish(profile.name, profile.fingerprint, 0 if profile.node is None else profile.node.count, epoch)
    waits = ""
    for _waited in poll(fx.clock, NODES_LIMIT_S, INTERVAL_S):
        waits = waits_for(fx, layout, group, wish, switching)
        if not waits:
            return
    raise SlotFault(f"{profile.name} has waited {NODES_LIMIT_S:.0f} s for {waits}")


def lost_part(fx: Effects, layout: Layout, profile: Profile, epoch: str) -> str:
    """Return which node runs no part of this engine process, and why; empty: all do, or the engine is on one host.

    A silent node is lost after the same time as while the engine is served.
    """
    if profile.node is None or not epoch:
        return ""
    group = group_of(fx, layout, profile)
    wish = Wish(profile.name, profile.fingerprint, profile.node.count, epoch)
    since: dict[str, float] = {}
    for waited in poll(fx.clock, LEADER_GRACE_S + NOTICED_S, INTERVAL_S):
        answers = ask(fx, layout.node_key_file, group, group.followers(wish.count))
        now = fx.clock.monotonic()
        since = {name: since.get(name, now) for name, answer in answers.items() if isinstance(answer, str)}
        why = nodes.lost(group, wish, heard(answers), {name: now - begun for name, begun in since.items()})
        if why or (not since and waited >= NOTICED_S):
            return why
    return ""


def read_part(fx: Effects, layout: Layout) -> FollowerPart | None:
    """Return the part of another node's engine that this host started last, on this boot."""
    return decode_written(FollowerPart, text_of(fx, layout.part_file), nodes.SCHEMA)
