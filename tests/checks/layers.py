# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plugin imports which: code of the controller stays out of the modules, and a host gets only what it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

COLLECTION = "ansible_collections.arcpro.b70.plugins"
ON_HOSTS = ("modules/", "module_utils/")
# What a host runs by itself: a folder of module_utils that is copied there, and the files that are started.
COPIED = {
    "module_utils/_slot": ("module_utils/_slot/command.py", "module_utils/_slot/relay.py"),
    "module_utils/_weights/fetching": ("module_utils/_weights/fetching/program.py",),
}
# The rooms of the slot engine: each imports itself and those before it. Files beside them are programs of units.
ENGINE = "module_utils/_slot/"
ROOMS = ("words", "kinds", "model", "ask", "decide", "look", "do", "face", "daemons")
RIM = "host"  # the effects on a real host: it imports words, and no room imports it
INNER = ("decide", "do", "daemons")  # what others leave to the engine
# Work that runs phases of a switch itself: each of these builds a run of its own.
RUNS = ("module_utils/_context_search/driver.py", "module_utils/_promotion/host.py", "module_utils/_soak/watching.py")


def imports(root: Path) -> dict[str, set[str]]:
    """Return, for every file of ``root/plugins``, the files there that it imports; both relative to that folder."""
    plugins = root / "plugins"
    names = {file.relative_to(plugins).as_posix() for file in plugins.rglob("*.py")}
    return {name: _imported(plugins, name) & names for name in sorted(names)}


def _imported(plugins: Path, name: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse((plugins / name).read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = [COLLECTION, *Path(name).parts[: -node.level]] if node.level else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            path = module.removeprefix(f"{COLLECTION}.").replace(".", "/")
            found |= {f"{path}.py", f"{path}/__init__.py"}
    return found


def reached(graph: Mapping[str, set[str]], entries: Iterable[str]) -> set[str]:
    """Return the entries and all that they import, directly or not."""
    found: set[str] = set()
    left = list(entries)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph[name]
    return found


def check_direction(root: Path) -> list[str]:
    """No module, and nothing that a module uses, imports code of the controller."""
    return [
        f"plugins/{name}: imports plugins/{other}, which only the controller has"
        for name, others in imports(root).items()
        if name.startswith(ON_HOSTS)
        for other in sorted(others)
        if not other.startswith(ON_HOSTS)
    ]


def check_host_only(root: Path) -> list[str]:
    """Every file of module_utils is used by a module or by what a host runs by itself."""
    graph = imports(root)
    entries = [name for name in graph if name.startswith("modules/")]
    used = reached(graph, [*entries, *(name for started in COPIED.values() for name in started if name in graph)])
    return [
        f"plugins/{name}: no module uses it; move it to plugins/plugin_utils"
        for name in graph
        if name.startswith("module_utils/") and not name.endswith("/__init__.py") and name not in used
    ]


def check_copied(root: Path) -> list[str]:
    """Of a folder that is copied to hosts every file is used there, and it uses nothing beside that folder."""
    graph = imports(root)
    found = []
    for folder, started in COPIED.items():
        copied = {name for name in graph if name.startswith(f"{folder}/") and not name.endswith("/__init__.py")}
        entries = [entry for entry in started if entry in graph] if copied else []
        used = {name for name in reached(graph, entries) if not name.endswith("/__init__.py")}
        found += [f"plugins/{name}: is copied to hosts, where nothing uses it" for name in sorted(copied - used)]
        found += [f"plugins/{name}: {started[0]} needs it and it is not copied" for name in sorted(used - copied)]
    return found


def check_rooms(root: Path) -> list[str]:
    """No room of the slot engine imports a later one, and nothing else decides or acts in its place."""
    return [
        f"plugins/{name}: imports plugins/{other}, which its room may not"
        for name, others in imports(root).items()
        for other in sorted(others)
        if (room := _room(other)) and room != _room(name) and not _may_import(name, room)
    ]


def _room(name: str) -> str:
    room, slash, _rest = name.removeprefix(ENGINE).partition("/")
    return room if name.startswith(ENGINE) and slash else ""


def _may_import(name: str, room: str) -> bool:
    own = _room(name)
    if own == RIM:
        return room == "words"
    if own:
        return room != RIM and ROOMS.index(room) < ROOMS.index(own)
    return name == f"{ENGINE}command.py" or name in RUNS or room not in INNER
