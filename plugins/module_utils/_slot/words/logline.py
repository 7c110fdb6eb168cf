# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line of an engine's log: who wrote it, and what it says behind its prefixes. Pure.

What clients send stands in such lines too: the access log repeats paths and queries, a logged request its parameters, a
refusal the value that was refused. All of that is written by the process that listens, behind some words of its own.
"""

from __future__ import annotations

import re

# vLLM puts its process before every line, also before those that begin inside of a message.
_PROCESS = re.compile(r"\((?P<name>\w+) pid=\d+\) ")
_PREFIX = re.compile(
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b:? *)?"  # vLLM's and uvicorn's
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?"
    r"(?:\[[\w./]+:\d+\] )?"
    r"[ |]*"
)
_LISTENS = ("apiserver",)  # APIServer, ApiServer_0, APIServer_1 …


def process_of(line: str) -> str:
    """The name of the process that wrote the line, or empty where it does not say."""
    found = _PROCESS.match(line)
    return found["name"] if found else ""


def by_clients(line: str) -> bool:
    """May the line repeat what a client sent?"""
    return process_of(line).lower().startswith(_LISTENS)


def message_of(line: str) -> str:
    """What the line says, without the prefixes of process, level, time and place."""
    found = _PROCESS.match(line)
    text = line[found.end() :] if found else line
    prefix = _PREFIX.match(text)
    return text[prefix.end() :] if prefix else text


def last_part(line: str) -> str:
    """What a terminal would show of a line whose progress was written over itself; who wrote it stays known."""
    head, _turned, last = line.rstrip().rpartition("\r")
    found = _PROCESS.match(head.lstrip("\r"))
    return f"{found[0]}{last}" if found else last
