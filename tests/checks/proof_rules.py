# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rule of docs/what-is-proven.md: each claim names its proof, and the proof is there.

A row is `| claim | proof | where |`, with one claim of at most 200 characters. A proof is a step (`make NAME`), a test
file or folder (so much of the end of its path that it is unique, and never the name alone), one test in it
(`FILE::NAME`), the id of a record, or "by hand" with a date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePath

from .tree_rules import MAKE_WORD

PAGE = Path("docs/what-is-proven.md")
LONGEST = 200
WHERE = frozenset({"lab", "unit", "this machine", "checkout"})
_SPAN = re.compile(r"`([^`]+)`")
_PLACE = re.compile(r"(?P<path>[\w.*-]*/[\w./*-]+|[\w*-]+\.py)(?:::(?P<name>\w+))?")
_DATED = re.compile(r"by hand\b.*\d{4}-\d\d-\d\d|`\d{8}T\d{6}Z-[\w.-]+`")


def claims(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each row of the page's table of claims."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line.startswith("| claim |"):
            inside = True
        elif inside and not line.startswith("|-"):
            yield number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def matches(path: str, places: Collection[PurePath]) -> list[PurePath]:
    """Return the places whose path ends with the given one, which may hold stars."""
    wanted = PurePath(path).parts
    whole = [place for place in places if place.parts == wanted]
    if whole:
        return whole
    ends = [place for place in places if len(place.parts) > len(wanted)]
    return sorted(place for place in ends if all(map(fnmatch, place.parts[-len(wanted) :], wanted)))


def check_proof(root: Path, files: Sequence[Path]) -> list[str]:
    """Each claim names a proof, and each test, file and step that the page names in its table exists."""
    page = root / PAGE
    if not page.is_file():
        return [f"{PAGE}: is missing"]
    names = [file.relative_to(root) for file in files]
    places = {*names, *(folder for name in names for folder in name.parents)}
    found = []
    for number, cells in claims(page.read_text()):
        if len(cells) != 3:
            found.append(f"{PAGE}:{number}: a row has a claim, its proof and where it runs")
            continue
        problems, proofs = _proofs(root, places, cells[1])
        if not proofs and not problems:
            problems = [f"nothing proves: {cells[0]}"]
        if len(cells[0]) > LONGEST:
            problems.append(f"the claim has {len(cells[0])} characters: write at most {LONGEST}, or several rows")
        if ";" in cells[0]:
            problems.append("the row has several claims: write several rows")
        unknown = {part.strip() for part in cells[2].split(",")} - WHERE
        problems += [f"{part!r} is none of {', '.join(sorted(WHERE))}" for part in sorted(unknown)]
        found += [f"{PAGE}:{number}: {problem}" for problem in problems]
    return found


def _proofs(root: Path, places: Collection[PurePath], cell: str) -> tuple[list[str], int]:
    """Return what is wrong with the proofs of a cell, and how many it has."""
    problems = []
    targets = set(re.findall(r"^([a-z][a-z -]*):", (root / "Makefile").read_text(), re.MULTILINE))
    steps = {word for line in targets for word in line.split()}
    named = MAKE_WORD.findall(cell)
    problems += [f"make {name} is not a target of the Makefile" for name in named if name not in steps]
    count = len(named) + len(_DATED.findall(cell))
    for span in _SPAN.findall(cell):
        place = _PLACE.fullmatch(span.split()[0])
        if place:
            count += 1
            problems += _place(root, places, place["path"], place["name"])
    return problems, count


def _place(root: Path, places: Collection[PurePath], path: str, name: str | None) -> list[str]:
    if "/" not in path:
        return [f"{path}: write its folder too, or a file of this name elsewhere makes it ambiguous"]
    there = matches(path, places)
    if not there:
        return [f"{path} does not exist"]
    if len(there) > 1 and "*" not in path:
        return [f"{path} is one of {', '.join(map(str, there))}: write more of the path"]
    if name and not any(name in _functions(root / file) for file in there):
        return [f"{path} has no function {name}"]
    return []


def _functions(file: Path) -> set[str]:
    if file.suffix != ".py":
        return set()
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}
