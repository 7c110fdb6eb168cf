# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of lookups that render files from the variables of a fleet's hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from .fleet import FleetFault


class FleetLookup(LookupBase):
    """A lookup whose terms name what it renders. Subclasses say what each term renders."""

    name = ""

    def renderers(self) -> Mapping[str, Callable[[], Any]]:
        """Return what renders each term."""
        raise NotImplementedError

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        self._known = variables or {}
        render = self.renderers()
        unknown = [term for term in terms if term not in render]
        if unknown or not terms:
            raise AnsibleLookupError(f"{self.name}: expected one of {', '.join(render)}, got {terms}")
        try:
            return [render[term]() for term in terms]
        except FleetFault as fault:
            raise AnsibleLookupError(str(fault)) from fault

    def told(self, group: str) -> dict[str, Any]:
        """Return the variables of each host of the group that this option names."""
        names = (self._known.get("groups") or {}).get(self.get_option(group)) or []
        return {str(name): self._known["hostvars"][name] for name in names}
