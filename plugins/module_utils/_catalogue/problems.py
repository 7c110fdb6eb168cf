# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the catalogue, collected so that one run shows everything."""

from __future__ import annotations

import difflib
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
    """Return up to ``count`` names of ``known`` that resemble ``name``, best first, by ratio or as part of the name."""
    lowered = {candidate.lower(): candidate for candidate in sorted(known)}
    wanted = str(name).lower()
    found = difflib.get_close_matches(wanted, lowered, n=count, cutoff=0.6)
    contained = [key for key in lowered if wanted and wanted in key and key not in found]
    return [lowered[key] for key in (found + contained)[:count]]


def did_you_mean(name: str, known: Iterable[str], count: int = 1) -> str:
    """Return ``; did you mean "x" or "y"?`` for the nearest names, or an empty string when nothing is near."""
    near = closest(name, known, count)
    return "; did you mean " + " or ".join(f'"{candidate}"' for candidate in near) + "?" if near else ""
