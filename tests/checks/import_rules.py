# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rule about imports: no modules import each other in a circle, wherever in a file the imports stand."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

COLLECTION = "ansible_collections.arcpro.b70."


def check_import_circles(root: Path, files: Sequence[Path]) -> list[str]:
    """No modules import each other in a circle; imports in functions and below ``if TYPE_CHECKING`` count as well."""
    modules = {file for file in files if file.suffix == ".py"}
    pytest_folders = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["pythonpath"]
    folders = [root, *(root / folder for folder in pytest_folders)]
    graph = {module: sorted({*imported(module, modules, folders)} - {module}) for module in sorted(modules)}
    found = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as exc:
            circle = exc.args[1][:0:-1]
            first = circle.index(min(circle))
            circle = [*circle[first:], *circle[: first + 1]]
            found.append(" -> ".join(str(module.relative_to(root)) for module in circle))
            # without this import, the next round finds the next circle
            graph[circle[0]].remove(circle[1])
        else:
            return found


def imported(module: Path, modules: set[Path], folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of ``modules`` that a module imports, from its own folder (as scripts do) or from ``folders``."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from look_up(alias.name, [module.parent, *folders], modules)
        elif isinstance(node, ast.ImportFrom):
            places = [module.parents[node.level - 1]] if node.level else [module.parent, *folders]
            package = node.module or ""
            for alias in node.names:
                # what is no module of the package is a name in it
                yield from look_up(f"{package}.{alias.name}", places, modules) or look_up(package, places, modules)


def look_up(name: str, folders: Sequence[Path], modules: set[Path]) -> list[Path]:
    """Return the file of a dotted name in the first folder that has it, or nothing."""
    parts = [part for part in name.removeprefix(COLLECTION).split(".") if part]
    for folder in folders:
        stem = folder.joinpath(*parts)
        for file in (stem.with_suffix(".py"), stem / "__init__.py"):
            if file in modules:
                return [file]
    return []
