# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's own check of a role's arguments lets pass: text where a mapping or a list is wanted."""

from __future__ import annotations

DOCUMENTATION = r"""
name: misshapen
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.1.0
short_description: Name variables of a role that are no mapping or no list where one is wanted
description:
  - Ansible's check of a role's arguments takes any text that it could turn into a mapping (C(a=1), JSON) or a list
    (C(a,b)), and leaves the text in the variable. What comes from C(-e NAME=VALUE) on a command line is such a text.
  - Returns one sentence for each variable that is not what the role's C(meta/argument_specs.yml) says; an empty list
    means that all are. No sentence holds a value.
options:
  _terms:
    description: The folder of the role, C(role_path).
    type: list
    elements: path
    required: true
  words:
    description: Lists that may be given as words with commas in between, because only modules read them.
    type: list
    elements: str
    default: []
  mappings:
    description: Mappings that the specification declares as C(raw), because their default is a template.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Refuse variables of the wrong shape
  ansible.builtin.assert:
    that: __frontdoor_misshapen | length == 0
    fail_msg: "{{ __frontdoor_misshapen | join(' ') }}"
  vars:
    __frontdoor_misshapen: "{{ lookup('arcpro.b70.misshapen', role_path) }}"
"""

RETURN = r"""
_raw:
  description: One list of sentences.
  type: list
  elements: list
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

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
    """What is wrong with one variable; empty when nothing is."""
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


class LookupModule(LookupBase):
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[list[str]]:
        self.set_options(var_options=variables, direct=kwargs)
        words, mappings = self.get_option("words"), self.get_option("mappings")
        options: dict[str, dict[str, Any]] = {}
        for term in terms:
            specs = yaml.safe_load(Path(term, "meta", "argument_specs.yml").read_text(encoding="utf-8"))
            for entry in specs["argument_specs"].values():
                options |= entry.get("options") or {}
        options = {name: option for name, option in options.items() if name not in words}
        options |= {name: {"type": "dict"} for name in mappings}
        return [list(faults(options, variables or {}, self._templar.template))]
