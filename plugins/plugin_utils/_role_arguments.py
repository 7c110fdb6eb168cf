# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find wrong variables of roles: what Ansible's own check lets pass, and all of a site before anything is done."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

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


_SCALARS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "path": "text"}
_JUDGED = ("type", "elements", "choices", "options")
_OURS = re.compile(r"\bb70_[a-z0-9_]+")
_ALIKE = 0.85  # above it, a name is a misspelt one, not one of the operator's own


def unlike(name: str, option: Mapping[str, Any], value: Any) -> str:
    """Return a sentence if a value is not what its option says, else nothing. It has no value that may be secret."""
    if option.get("type") in _WANTED and (said := _fault(name, dict(option), value)):
        return said
    if value is None and option.get("default") is None:
        return ""
    checked = ArgumentSpecValidator({name: _bare(option)}).validate({name: value})
    if not checked.error_messages:
        return ""
    if _is_secret(option):
        return f"{name} is not what the role's README says of it."
    shown = f"{name} is {_kind(value)} ({value})"
    if option.get("choices") and value not in option["choices"]:
        return f"{shown} and must be one of {', '.join(map(str, option['choices']))}."
    if wanted := _SCALARS.get(option.get("type", "str")):
        return f"{shown} and must be {wanted}."
    return f"{name}: {'; '.join(checked.error_messages)}."


def _bare(option: Mapping[str, Any]) -> dict[str, Any]:
    bare = {key: option[key] for key in _JUDGED if key in option}
    if nested := bare.get("options"):
        needed = {name: {"required": True} for name, one in nested.items() if one.get("required")}
        bare["options"] = {name: {**_bare(one), **needed.get(name, {})} for name, one in nested.items()}
    return bare


def _is_secret(option: Mapping[str, Any]) -> bool:
    return bool(option.get("no_log")) or any(map(_is_secret, (option.get("options") or {}).values()))


def ours(collection: Path) -> set[str]:
    """Return the variables beginning with ``b70_`` that playbooks and roles of the collection read."""
    folders = ("playbooks/*.yml", "roles/*/vars/*.yml", "roles/*/defaults/*.yml", "roles/*/tasks/*.yml")
    files = (file for pattern in folders for file in collection.glob(pattern))
    return {name for file in files for name in _OURS.findall(file.read_text(encoding="utf-8"))}


def misspelt(name: str, known: Iterable[str]) -> str:
    """Return the known name that another one is most likely meant to be; empty if there is none, or it is known."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return near[0] if near and near[0] != name else ""


def site_faults(
    options: Mapping[str, Mapping[str, Any]],
    prefixes: Collection[str],
    others: Collection[str],
    hosts: Mapping[str, Mapping[str, Any]],
    value: Callable[[str, str], Any],
    origin: Callable[[Any], str],
) -> list[str]:
    """Return a sentence for each wrong or misspelt variable of a site, with its file and with its hosts if not all.

    :param options: the options of the roles, by name.
    :param prefixes: the names of the roles.
    :param others: variables that are no option of a role.
    :param hosts: the variables of each host as they are written.
    :param value: returns a variable of a host as it is used; raise AnsibleError if it cannot.
    :param origin: returns the file and the line of a name or a value; empty if that is unknown.
    """
    found: dict[str, list[str]] = {}
    known = {*options, *others}
    beginnings = ("b70_", *(f"{prefix}_" for prefix in prefixes))
    for host, written in hosts.items():
        for name in written:
            if not name.startswith(beginnings):
                continue
            said = ""
            if name in options:
                try:
                    said = unlike(name, options[name], value(host, name))
                except AnsibleError:
                    continue  # who uses it tells; it may need what a role finds out
            elif near := misspelt(name, known):
                said = f"{name} is no variable of this collection; did you mean {near}? Correct it, or rename your own."
            if said:
                where = origin(written[name]) or origin(name)
                found.setdefault(f"{where}: {said}" if where else said, []).append(host)
    return with_hosts(found, len(hosts))


def with_hosts(found: Mapping[str, Sequence[str]], count: int) -> list[str]:
    """Return each sentence with the hosts that it is about, unless it is about all ``count`` of them."""
    return [text if len(on) == count else f"{text} (on {', '.join(on)})" for text, on in found.items()]


def commanded_faults(
    commanded: Mapping[str, Sequence[str]], told: Collection[str], hosts: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return a sentence for each variable that only the command line may set and that an inventory sets, or that has
    none of its values.

    :param commanded: the values of each variable.
    :param told: the variables of the command line.
    :param hosts: the variables of each host.
    """
    found = []
    for name, values in commanded.items():
        said = sorted({str(own[name]) for own in hosts.values() if name in own})
        if said and name not in told:
            found.append(f"{name} counts on the command line only (-e {name}={said[0]}); take it out of the inventory.")
        found += [f"{name} is {value} and must be one of {', '.join(values)}." for value in said if value not in values]
    return found
