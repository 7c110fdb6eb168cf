# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a build and the reason of its failure, from its log. Pure: lines in, words out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NINJA = re.compile(r"^\[(\d+)/(\d+)\]\s*(.*)")
_SOURCE = re.compile(r"([\w.+-]+\.(?:cpp|cc|cxx|c|cu|sycl))\b")
_ERROR = re.compile(r"\berror: |undefined (?:reference|symbol)|^\w*Error: ")


@dataclass(frozen=True)
class BuildProgress:
    """done of total objects, 0 of 0 before the first; what: the file that was begun last."""

    done: int = 0
    total: int = 0
    what: str = ""


def progress(lines: Sequence[str]) -> BuildProgress:
    """Return the progress at the end of a log of ninja. Lines of other tools only name the file."""
    what = ""
    for line in reversed(lines):
        found = _NINJA.match(line)
        sources = _SOURCE.findall(line)
        if not what and sources:
            what = sources[-1]
        if found:
            return BuildProgress(int(found[1]), int(found[2]), what)
    return BuildProgress(what=what)


@dataclass(frozen=True)
class Reason:
    """A known cause of a failed build: how the log shows it, and what to do."""

    pattern: re.Pattern[str]
    text: str


REASONS = (
    Reason(
        re.compile(r"Killed signal terminated program|(?:^|\s)Killed\b|internal compiler error: Killed|signal 9"),
        "the compiler was ended, most likely for want of memory: add swap for the build, lower max_jobs, and run "
        "again; what was compiled is kept",
    ),
    Reason(re.compile(r"No space left on device"), "the disk is full: free some space and run again"),
    Reason(
        re.compile(r"sycl/.*error:|error: .*\bsycl::|oneapi/2026|compiler/2026"),
        "headers of another oneAPI than the compiler's are in the way: only compiler 2025.3 may be in the environment; "
        "see which others are installed and never source setvars.sh",
    ),
    Reason(
        re.compile(r"No module named '?(torch|setuptools|wheel|pybind11|packaging|numpy|cmake|ninja)\b"),
        "the environment lacks what the build itself needs: install the stack's build requirements before its sources",
    ),
    Reason(
        re.compile(r"Could not resolve host|Failed to connect|Connection refused|unable to access"),
        "the build wanted to download something and could not: name a mirror, or allow the network for this source",
    ),
)


def first_error(lines: Sequence[str]) -> str:
    """Return the first line with an error of a compiler or linker: later errors follow from it."""
    return next((line.strip() for line in lines if _ERROR.search(line)), "")


def explain(lines: Sequence[str], result: str) -> str:
    """Return why the build failed, from its log and systemd's result (`oom-kill`, `timeout`, ...); "" if unknown."""
    if result == "oom-kill":
        return f"the host ran out of memory: {REASONS[0].text}"
    if result == "timeout":
        return "it took longer than its limit: run again, it goes on where it was, or raise the limit"
    for line in reversed(lines):
        for reason in REASONS:
            if reason.pattern.search(line):
                return reason.text
    return ""
