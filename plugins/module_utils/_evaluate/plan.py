# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmarks that a host can run, their commands, and the reading of their output. Pure: data in, data out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._slot.model import peer_access
from . import parse

GROUPS = ("network", "memory", "p2p", "collectives", "gemm", peer_access.GROUP)
ON_REQUEST = (peer_access.GROUP,)  # hosts lost their cards by it
# Without these ze_peak measures compression instead of memory.
UNCOMPRESSED = {"NEOReadDebugKeys": "1", "RenderCompressedBuffersEnabled": "0"}
_ACTIONS = {"p2p": "copy"}  # of the script for torch, where they are not named like the group
_CCL_SIZE = 64 * 1024 * 1024  # elements of two bytes: 128 MiB


@dataclass(frozen=True)
class Bench:
    """One command.

    ``read`` turns its output into measures by id; ``reason`` says why it can't run; ``fault`` says what is wrong with a
    measure, whatever the reference is.
    """

    id: str
    group: str
    tool: str
    argv: tuple[str, ...] = ()
    read: Callable[[str], dict[str, float]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    reason: str = ""
    fault: Callable[[float], str] = lambda _value: ""


@dataclass(frozen=True)
class HostTools:
    """The abilities of the host.

    tools: name to path; python: of a stack with torch for ``device``; script: bench_torch.py; serves: an engine runs.
    """

    cards: int
    tools: Mapping[str, str]
    python: str
    device: str
    script: str
    serves: bool = False


def unit_of(name: str) -> str:
    if name.startswith("network"):
        return "us" if name.endswith(".latency") else "GB/s"
    return "TFLOP/s" if name.startswith("gemm") else "GB/s"


def plan(
    host: HostTools, only: Sequence[str] = (), skip: Sequence[str] = (), network: Sequence[Bench] = ()
) -> list[Bench]:
    """Return every benchmark: those of the network first, then the vendor's tools, then torch.

    Those of ON_REQUEST are left out unless ``only`` names them. Those that can't run carry the reason. Raise ValueError
    if a group is unknown.
    """
    unknown = sorted({*only, *skip} - {*GROUPS})
    if unknown:
        raise ValueError(f"there is no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    benches = [*network, *_vendor(host), *_torch(host)]
    wanted = {*(only or (group for group in GROUPS if group not in ON_REQUEST))} - {*skip}
    return [bench for bench in benches if bench.group in wanted]


def concerning(benches: Sequence[Bench], reference: Mapping[str, float]) -> dict[str, float]:
    """Return the part of a reference that these benchmarks could measure.

    What was left out on request is not missing, nor are the links between other nodes.
    """
    groups = {bench.group for bench in benches}
    links = tuple(bench.id for bench in benches if bench.group == "network")
    return {
        name: value
        for name, value in reference.items()
        if (group := name.partition(".")[0]) in groups and (group != "network" or name.startswith(links))
    }


def _vendor(host: HostTools) -> list[Bench]:
    found = []
    for card in range(max(1, host.cards)):
        for name, test in (("transfer", "transfer_bw"), ("memory", "global_bw")):
            path = host.tools.get("ze_peak", "")
            found.append(
                Bench(
                    id=f"memory.card{card}.{name}",
                    group="memory",
                    tool="ze_peak",
                    argv=(path, "-d", str(card), "-t", test),
                    read=prefixed(f"memory.card{card}.", parse.ze_peak),
                    environment=UNCOMPRESSED,
                    directory=path.rpartition("/")[0],  # it loads its kernels from its working directory
                    reason=_lacks(host, "ze_peak", cards=1),
                )
            )
    for kind in ("write", "read"):
        for mode in ((), ("-b",)):
            path = host.tools.get("ze_peer", "")
            found.append(
                Bench(
                    id=f"p2p.{'bidirectional' if mode else 'unidirectional'}.{kind}",
                    group="p2p",
                    tool="ze_peer",
                    argv=(path, "-o", kind, "-t", "transfer_bw", *mode),
                    read=prefixed("p2p.", parse.ze_peer),
                    directory=path.rpartition("/")[0],
                    reason=_lacks(host, "ze_peer", cards=2),
                )
            )
    mpirun, benchmark = host.tools.get("mpirun", ""), host.tools.get("1ccl_benchmark", "")
    for collective in ("allreduce", "allgather", "alltoall"):
        arguments = (
            f"-a gpu -m usm -u device -l {collective} -i 50 -w 20 -f 512 -t {_CCL_SIZE} -j off -p 0 -d float16 -q 0"
        )
        found.append(
            Bench(
                id=f"collectives.ccl.{collective}",
                group="collectives",
                tool="1ccl_benchmark",
                argv=(mpirun, "-np", str(host.cards), benchmark, *arguments.split()),
                read=_one(f"collectives.ccl.{collective}", collective, host.cards),
                reason=_lacks(host, "1ccl_benchmark", cards=2) or _lacks(host, "mpirun", cards=2),
            )
        )
    return found


def _torch(host: HostTools) -> list[Bench]:
    lacks = "" if host.python else "no installed stack has a torch for this host: site.yml --tags stack"
    found = []
    for group in ("memory", "gemm", "p2p", "collectives", peer_access.GROUP):
        cards = {"p2p": 2, peer_access.GROUP: 2, "collectives": 2 if host.device == "xpu" else 0}.get(group, 0)
        served = host.serves and group in ON_REQUEST
        here = "needs two cards" if host.cards < cards else "may cost the cards that an engine uses" if served else ""
        found.append(
            Bench(
                id=f"{group}.torch",
                group=group,
                tool=f"torch ({host.device})",
                argv=(host.python, host.script, _ACTIONS.get(group, group), host.device, str(host.cards)),
                read=parse.torch,
                environment=peer_access.VARIABLES if group == peer_access.GROUP else {},
                reason=lacks or here,
            )
        )
    return found


def _lacks(host: HostTools, tool: str, cards: int) -> str:
    if host.cards < cards:
        return "needs a card" if cards == 1 else "needs two cards"
    return "" if tool in host.tools else f"{tool} is not on the host: see evaluate_tool_dirs"


def prefixed(prefix: str, read: Callable[[str], dict[str, float]]) -> Callable[[str], dict[str, float]]:
    """Return the same reader with this prefix before its names."""
    return lambda text: {f"{prefix}{name}": value for name, value in read(text).items()}


def _one(name: str, collective: str, ranks: int) -> Callable[[str], dict[str, float]]:
    return lambda text: {name: parse.ccl(text, collective, ranks)}


def rows_of(bench: Bench, text: str, error: str) -> list[dict[str, Any]]:
    """Return what one command gave, as rows without a verdict; a command that failed is one row with FAIL."""
    if bench.reason:
        return [_row(bench, bench.id, None, "SKIP", bench.reason)]
    try:
        if error:
            # the script for torch and iperf3 say themselves what was wrong
            raise parse.ParseError(_own_words(bench, text) or error)
        found = bench.read(text) if bench.read else {}
    except parse.ParseError as said:
        return [_row(bench, bench.id, None, "FAIL", str(said))]
    rows = []
    for name, value in sorted(found.items()):
        figure = 0 < value < math.inf
        fault = bench.fault(value) if figure else f"{value} is no measure"
        rows.append(_row(bench, name, round(value, 4) if figure else None, "FAIL" if fault else "", fault))
    return rows


def _own_words(bench: Bench, text: str) -> str:
    if bench.read is None or not bench.tool.startswith(("torch", "iperf3")):
        return ""
    try:
        bench.read(text)
    except parse.ParseError as said:
        return "" if "printed nothing" in str(said) else str(said)
    return ""


def _row(bench: Bench, name: str, value: float | None, level: str, note: str) -> dict[str, Any]:
    return {"id": name, "value": value, "unit": unit_of(name), "tool": bench.tool, "level": level, "note": note}
