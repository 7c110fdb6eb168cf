# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template of the collection as text."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rendered
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Render a template without copying all variables of a host
description:
  - Returns what P(ansible.builtin.template#lookup) does. That one copies all variables of a host, with what the roles
    have found out about it, for each template, which takes longer than all the rest.
options:
  _terms:
    description: The paths of templates.
    type: list
    elements: str
    required: true
  template_vars:
    description: Further variables of the template.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show the configuration of the frontdoor
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.rendered', '/srv/templates/frontdoor.toml.j2') }}"
"""

RETURN = r"""
_raw:
  description: The text of each template.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase


class SharedVariables(dict[str, Any]):
    """Variables that a copy has in common with the original: templates change none of them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)


class LookupModule(LookupBase):
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        template = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        words = {"template_vars": self.get_option("template_vars")}
        found: list[Any] = template.run(terms, variables=SharedVariables(variables or {}), **words)
        return found
