# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the nodes of a group: the leader measures it, and each follower runs a server meanwhile.

iperf3 measures the bandwidth, both ways at once, as the parts of an engine send. ping measures the latency: the round
trips that iperf3 reports are those of a full link, which are longer because packets wait in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _transient
from .._slot.host.processes import listeners
from .._slot.model.network import LinkMeasurement, links_text, parse_links
from .._slot.model.nodes import Group, Node
from . import parse
from .host import EvaluateError, save
from .plan import Bench, prefixed

SERVER, CLIENT = "b70-evaluate-server.service", "b70-evaluate-client.service"
LACKS = "{} is not on {}: site.yml --tags host installs it for hosts in b70_nodes"
REMEDY = "look at the link (ethtool), its cable and switch, or set the floor lower"
SECONDS, WARM_UP_S = 10, 1
PINGS, PING_EVERY_S, PING_LIMIT_S = 100, 0.05, 20
# A client ends long before its limit, and a server waits for the measures of all other followers.
CLIENT_LIMIT_S, SERVER_LIMIT_S = 60, 120
_START_LIMIT_S = 10.0
_PAUSE_S = 0.1
_SYSTEMD = _transient.TransientUnits(EvaluateError, "a measure of the network")


def port_of(group: Group) -> int:
    """Return the port of the servers, after the ports of the nodes and of their engines."""
    return group.port + 2


def benches(group: Group, tools: Mapping[str, str], servers: Mapping[str, str], limit_s: int) -> list[Bench]:
    """Return what this host measures as a node of its group: the leader each follower, a follower nothing.

    :param servers: by follower, why it does not listen; empty if it does.
    """
    if group.rank:
        note = f"{group.leader.name}, which leads the nodes, measures it"
        return [Bench(id="network", group="network", tool="", reason=note)]
    return [bench for node in group.hosts[1:] for bench in _to(group, node, tools, servers, limit_s)]


def _to(group: Group, node: Node, tools: Mapping[str, str], servers: Mapping[str, str], limit_s: int) -> list[Bench]:
    own, link = group.own, f"network.{group.own.name}-{node.name}"
    here = {tool: "" if tool in tools else LACKS.format(tool, own.name) for tool in ("iperf3", "ping")}
    there = servers.get(node.name, f"{node.name} is no host of the inventory")
    client = _transient.Task(
        unit=CLIENT,
        description=f"Measure of the network to {node.name}",
        argv=(tools.get("iperf3", ""), "--client", node.address, "--bind", own.address, "--port", str(port_of(group)),
              "--json", "--bidir", "--time", str(SECONDS), "--omit", str(WARM_UP_S), "--connect-timeout", "5000"),
        limit_s=min(limit_s, CLIENT_LIMIT_S),
        properties=_transient.sealed([node.address]),
    )  # fmt: skip
    ping = (tools.get("ping", ""), "-n", "-q", "-c", str(PINGS), "-i", str(PING_EVERY_S), "-w", str(PING_LIMIT_S))
    return [
        Bench(
            id=f"{link}.bandwidth",
            group="network",
            tool="iperf3",
            argv=client.piped_argv(),
            read=prefixed(f"{link}.bandwidth.", parse.iperf3),
            reason=here["iperf3"] or there,
            fault=_advised(group.floor.bandwidth_fault),
        ),
        Bench(
            id=f"{link}.latency",
            group="network",
            tool="ping",
            argv=(*ping, "-I", own.address, node.address),
            read=lambda text: {f"{link}.latency": parse.ping(text)},
            reason=here["ping"],
            fault=_advised(group.floor.latency_fault),
        ),
    ]


def _advised(fault: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: f"{said}; {REMEDY}" if (said := fault(value)) else ""


def links_of(group: Group, rows: Sequence[Mapping[str, Any]], at: str) -> dict[str, LinkMeasurement]:
    """Return the links to the followers for which everything was measured."""
    found, values = {}, {row["id"]: row["value"] for row in rows if row["value"] is not None}
    for node in group.hosts[1:]:
        link = f"network.{group.own.name}-{node.name}"
        names = ("bandwidth.sent", "bandwidth.received", "latency")
        sent, received, latency = (values.get(f"{link}.{name}") for name in names)
        if sent is not None and received is not None and latency is not None:
            found[node.name] = LinkMeasurement((group.own.address, node.address), sent, received, latency, at)
    return found


def remember(file: Path, links: Mapping[str, LinkMeasurement]) -> None:
    """Save these links beside those measured before. The guard of a switch reads them."""
    before = parse_links(file.read_text(encoding="utf-8") if file.exists() else None)
    save(file, links_text({**before, **links}))


def listen(group: Group, node: Node, iperf3: str) -> None:
    """Start the server of this host for one measure by the leader. It ends after that, or at its limit."""
    close()
    port = port_of(group)
    task = _transient.Task(
        unit=SERVER,
        description=f"Server for a measure of the network from {group.leader.name}",
        argv=(iperf3, "--server", "--one-off", "--bind", node.address, "--port", str(port)),
        limit_s=SERVER_LIMIT_S * len(group.hosts),
        properties=_transient.sealed([group.leader.address]),
    )
    _SYSTEMD.start(task)
    end = time.monotonic() + _START_LIMIT_S
    while _SYSTEMD.state(SERVER).running and time.monotonic() < end:
        if any(listeners(_read(f"/proc/net/{name}"), port) for name in ("tcp", "tcp6")):
            return
        time.sleep(_PAUSE_S)
    close()
    raise EvaluateError(
        f"iperf3 does not listen at {node.address}, port {port}: that is no address of {node.name}, or another process "
        f"has the port (journalctl -u {SERVER}, b70_nodes)"
    )


def close() -> None:
    """Stop the server, and forget its result."""
    if _SYSTEMD.state(SERVER).running:
        _SYSTEMD.stop(SERVER)
    _SYSTEMD.forget(SERVER)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
