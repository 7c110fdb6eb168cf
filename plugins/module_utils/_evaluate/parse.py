# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read measures from what benchmarks print: text in, ``{id: value}`` out. Pure.

Values are GB/s, TFLOP/s for products, and microseconds for latencies.

Formats: ze_peak and ze_peer as their sources print them (oneapi-src/level-zero-tests, perf_tests), the collective
benchmark as its guide and source describe it (oneapi-src/oneCCL, examples/benchmark; builds with ``busbw`` too). iperf3
and ping were recorded.
"""

from __future__ import annotations

import json
import re

MIB = 1024 * 1024
_PEAK_ROW = re.compile(r"^\s*([A-Za-z][\w ]*?)\s*:\s*([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*GBPS\s*$")
_PEER_MODE = re.compile(r"\b(Unidirectional|Bidirectional)\b")
_PEER_HEAD = re.compile(r"Bandwidth\s+(?:P2P\s+)?(Write|Read)\s*:\s*Device\((\d+)\)\s*([<>-]+)\s*Device\((\d+)\)")
_PEER_ROW = re.compile(r"BW \[GBPS\]:\s*(\d+)\s*(B|KB|MB):\s*([0-9]+(?:\.[0-9]+)?)")
_PING = re.compile(r"^rtt min/avg/max/mdev = [0-9.]+/([0-9.]+)/[0-9.]+/[0-9.]+ ms", re.MULTILINE)
_IPERF3 = {"sent": "sum_received", "received": "sum_received_bidir_reverse"}
_UNITS = {"B": 1, "KB": 1024, "MB": MIB}
# ze_peak's names, and those in the report.
_PEAK = {"enqueueWriteBuffer": "h2d", "enqueueReadBuffer": "d2h", "float8": "float8", "float16": "float16"}


class ParseError(Exception):
    """The output of a benchmark has no figure."""


def ze_peak(text: str) -> dict[str, float]:
    """Return the rows of `transfer_bw` (h2d, d2h) and `global_bw` (float8, float16); other rows are left out."""
    found = {}
    for line in text.splitlines():
        row = _PEAK_ROW.match(line)
        if row and row[1] in _PEAK:
            found[_PEAK[row[1]]] = float(row[2])
    if not found:
        raise ParseError("ze_peak printed no bandwidth")
    return found


def ze_peer(text: str, sizes: tuple[int, ...] = (128 * MIB, 256 * MIB)) -> dict[str, float]:
    """Return the wanted sizes of every pair, such as ``unidirectional.write.0-1.128MB``.

    A heading may follow a block at once.
    """
    found: dict[str, float] = {}
    mode, heading = "unidirectional", ""
    for line in text.splitlines():
        head = _PEER_HEAD.search(line)
        said = _PEER_MODE.search(line)
        if said:
            mode = said[1].lower()
        if head:
            heading = f"{mode}.{head[1].lower()}.{head[2]}-{head[4]}"
            continue
        row = _PEER_ROW.search(line)
        if row and heading:
            size = int(row[1]) * _UNITS[row[2]]
            if size in sizes:
                found[f"{heading}.{size // MIB}MB"] = float(row[3])
    if not found:
        raise ParseError("ze_peer printed no bandwidth of 128 or 256 MB")
    return found


def ccl(text: str, collective: str, ranks: int, size: int = 128 * MIB) -> float:
    """Return the bus bandwidth of one size: the column `busbw` if there is one, else computed from `t_avg`."""
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["#bytes"]:
            columns = words
        elif columns and len(words) >= 3 and words[0] == str(size):
            row = dict(zip(columns, words, strict=False))
            busbw = next((value for name, value in row.items() if name.startswith("busbw")), None)
            if busbw is not None:
                return float(busbw)
            seconds = next((float(value) for name, value in row.items() if name.startswith("t_avg")), 0.0) / 1e6
            if seconds > 0:
                return size / seconds * bus_factor(collective, ranks) / 1e9
    raise ParseError(f"the benchmark printed no row of {size} bytes")


def bus_factor(collective: str, ranks: int) -> float:
    """Return the bytes that a rank moves over its link for each byte of the result."""
    return (2 if collective == "allreduce" else 1) * (ranks - 1) / ranks


def torch(text: str) -> dict[str, float]:
    """Return the measures in the last line of torch's script, ``{"measures": {id: value}}``; raise ParseError."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("error"):
                raise ParseError(str(said["error"]))
            return {str(name): float(value) for name, value in said["measures"].items()}
    raise ParseError("the script for torch printed nothing")


def iperf3(text: str) -> dict[str, float]:
    """Return what arrived each way in a test with ``--bidir --json``: ``{sent, received}``, as the client sees them."""
    try:
        said = json.loads(text)
        if said.get("error"):
            raise ParseError(str(said["error"]))
        rates = {name: float(said["end"][key]["bits_per_second"]) / 8e9 for name, key in _IPERF3.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ParseError("iperf3 printed nothing that is a measure of both ways") from error
    return rates


def ping(text: str) -> float:
    """Return the mean round trip in microseconds, from the summary of iputils' ping."""
    found = _PING.search(text)
    if not found:
        raise ParseError("ping printed no round trips")
    return float(found[1]) * 1000
