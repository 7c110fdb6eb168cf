# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line of an engine's log: who wrote it, and what it says behind its prefixes. Pure.

What clients send stands in such lines too: the access log repeats paths and queries, a logged request its parameters, a
refusal the value that was refused. All of that is written by the process that listens, behind some words of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_COLOUR = r"(?:\x1b\[[\d;]*m)*"
# vLLM puts its process before every line, also before those that begin inside of a message: (Worker_TP1 pid=9),
# (VllmWorker rank=1 pid=9), (RayWorkerWrapper pid=9, ip=10.0.0.2). torch puts the rank before what ends a process.
_PROCESS = re.compile(
    rf"{_COLOUR}\((?P<name>\w+)(?: \w+=\w+)*? pid=\d+(?:, ip=[\d.]+)?\){_COLOUR} |(?P<rank>\[rank\d+\]): ?"
)
_PREFIX = re.compile(
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\b:? *)?"  # vLLM's and uvicorn's
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?"
    r"(?:\[[\w./]+:\d+\] ?|[\w./]+\.py:\d+\] ?)?"
    # oneCCL's
    r"(?:\d{4}:\d\d:\d\d-\d\d:\d\d:\d\d:\( *\d+\) )?(?:\|CCL_(?P<ccl>\w+)\| )?"
)
_LISTENS = ("apiserver",)  # APIServer, ApiServer_0, APIServer_1 …


class Parts(NamedTuple):
    """A line in its parts. process: its name in the prefix, or empty. level: in capitals, or empty. text: the rest,
    with the spaces before it."""

    process: str
    level: str
    text: str


def parts(line: str) -> Parts:
    """Return the parts of a line of vLLM's log."""
    found = _PROCESS.match(line)
    text = line[found.end() :] if found else line
    prefix = _PREFIX.match(text)
    if prefix is None:
        return Parts(_name(found), "", text)
    return Parts(_name(found), prefix["level"] or prefix["ccl"] or "", text[prefix.end() :])


def _name(found: re.Match[str] | None) -> str:
    return "" if found is None else found["name"] or found["rank"]


def by_clients(line: str) -> bool:
    """Tell whether the line may repeat what a client sent."""
    return _name(_PROCESS.match(line)).lower().startswith(_LISTENS)


def last_part(line: str) -> str:
    """Return what a terminal would show of a line whose progress was written over itself; who wrote it stays known."""
    head, _turned, last = line.rstrip().rpartition("\r")
    found = _PROCESS.match(head.lstrip("\r"))
    return f"{found[0]}{last}" if found else last
