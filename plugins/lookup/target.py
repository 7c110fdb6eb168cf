# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a play, or an error where there are none."""

from __future__ import annotations

DOCUMENTATION = r"""
name: target
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Name the hosts of a play, and fail where the inventory has none of them
description:
  - Returns the pattern for C(hosts) of a play. A pattern that matches no host is an error that says what the inventory
    has; Ansible itself skips such a play and ends with 0, as if the work were done.
  - Hosts that C(--limit) leaves out don't count. C(--syntax-check) looks at no inventory.
  - Runs on the controller.
options:
  _terms:
    description: The pattern, such as the name of a group.
    type: list
    elements: str
    required: true
  option:
    description: The variable that a user sets to choose other hosts; the error names it.
    type: str
    default: b70_target
"""

EXAMPLES = r"""
- name: Report what every host serves
  hosts: "{{ lookup('arcpro.b70.target', b70_target | default('b70_hosts')) }}"
"""

RETURN = r"""
_raw:
  description: The pattern as it was given.
  type: list
  elements: str
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase

from ..plugin_utils._target import no_hosts


class LookupModule(LookupBase):
    """Return the pattern of a play's hosts."""

    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if context.CLIARGS.get("syntax"):
            return list(terms)
        variables = variables or {}
        groups: dict[str, list[str]] = {name: list(hosts) for name, hosts in variables.get("groups", {}).items()}
        option, limit = self.get_option("option"), variables.get("ansible_limit")
        for pattern in terms:
            problem = no_hosts(
                pattern,
                option=option,
                chosen=option in variables,
                groups=groups,
                matched=self._matched(groups, pattern),
                limit=limit,
                left=self._matched(groups, pattern, limit),
                sources=list(context.CLIARGS.get("inventory") or ()),
            )
            if problem:
                raise AnsibleError(problem)
        return list(terms)

    def _matched(self, groups: Mapping[str, Sequence[str]], pattern: str, limit: str | None = None) -> list[str]:
        """Return the names of the hosts that a pattern and a limit leave."""
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        try:
            if limit:
                manager.subset(limit)
            return [host.name for host in manager.get_hosts(pattern)]
        except AnsibleError:
            return []
