# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what Ansible's own check of a role's arguments lets pass: text for a mapping or a list, and misspelt names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import closest

_WANTED = {
    "dict": ("a mapping of names to values", '{"NAME": "VALUE"}'),
    "list": ("a list", '["ONE", "TWO"]'),
}


def _kind(value: Any) -> str:
    for kind, name in ((str, "text"), (bool, "true or false"), (int | float, "a number"), (Mapping, "a mapping")):
        if isinstance(value, kind):
            return name
    return "nothing (null)" if value is None else "a list"


def _fault(name: str, option: dict[str, Any], value: Any) -> str:
    """Return what is wrong with one variable; empty if nothing is."""
    wanted = option["type"]
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not (is_list if wanted == "list" else isinstance(value, Mapping)):
        what, example = _WANTED[wanted]
        return f"{name} is {_kind(value)} and must be {what}; on a command line: -e '{{\"{name}\": {example}}}'."
    if wanted == "list" and option.get("elements") in ("str", "path"):
        for number, item in enumerate(value, 1):
            if not isinstance(item, str):
                return f"Entry {number} of {name} is {_kind(item)} and must be text; put it in quotes."
    return ""


def faults(
    options: dict[str, dict[str, Any]], variables: Mapping[str, Any], template: Callable[[Any], Any]
) -> Iterator[str]:
    """Yield a sentence for each variable that is not what its option says."""
    broken: AnsibleError | None = None
    found = False
    for name, option in options.items():
        written = variables.get(name)
        if option.get("type") not in _WANTED or name not in variables:
            continue
        try:
            said = _fault(name, option, template(written))
        except AnsibleError as error:
            # likely made from another one that is wrong
            broken = broken or error
            continue
        if said:
            found = True
            origin = written if isinstance(written, str) and "{{" in written else ""
            yield f"{said} It comes from {origin}." if origin else said
    if broken is not None and not found:
        raise broken


def options_of(role: Path) -> dict[str, dict[str, Any]]:
    """Return the options of all entry points of a role, by name, from its `meta/argument_specs.yml`."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    return {name: option for entry in specs.values() for name, option in (entry.get("options") or {}).items()}


def unknown(role: str, options: Collection[str], variables: Collection[str]) -> list[str]:
    """Return a sentence for each variable that has the prefix of the role and is none of its options."""
    return [
        f"The role {role} has no variable {name}; did you mean "
        f"{' or '.join(closest(name, options, 3)) or 'one of those in its README'}?"
        for name in sorted(variables)
        if name.startswith(f"{role}_") and name not in options
    ]
