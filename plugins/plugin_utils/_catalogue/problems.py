# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the catalogue, collected so that one run shows all of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One fault: the file it is written in, the dotted path inside it (may be empty) and what to do about it."""

    file: str
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return f"{where}: {self.message}"


class CatalogueError(Exception):
    """The catalogue cannot be used; ``problems`` holds every fault found, in file order, each once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = "1 fault in the catalogue" if count == 1 else f"{count} faults in the catalogue"
        super().__init__("\n".join([f"{head}:", *(f"  {problem}" for problem in self.problems)]))


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to ``count`` names of ``known`` that resemble ``name``, best first.

    Names that contain every part of the given one come first, so that "gemma4-c8" finds the long name; then similar
    ones.
    """
    lowered = {candidate.lower(): candidate for candidate in sorted(known)}
    wanted = str(name).lower()
    parts = [part for part in re.split(r"[-_.\s]+", wanted) if part]
    holding = sorted((key for key in lowered if parts and all(part in key for part in parts)), key=len)
    similar = difflib.get_close_matches(wanted, lowered, n=count, cutoff=0.6)
    return [lowered[key] for key in list(dict.fromkeys(holding + similar))[:count]]


def did_you_mean(name: str, known: Iterable[str], count: int = 1) -> str:
    """Return ``; did you mean "x" or "y"?`` for the nearest names, or an empty string when nothing is near."""
    near = closest(name, known, count)
    return "; did you mean " + " or ".join(f'"{candidate}"' for candidate in near) + "?" if near else ""
