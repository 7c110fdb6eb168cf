# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_catalogue: it reads the catalogue on the controller."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import (
    CATALOGUE,
    ControllerAction,
    read_catalogue,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights.hub import site_problems

OPTIONS: dict[str, dict[str, Any]] = {"names": {"type": "list", "elements": "str", "default": []}, **CATALOGUE}


class ActionModule(ControllerAction):
    """Fails with all faults of the catalogue, or for a profile that is not in it."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        site = plain(given["weights"])
        if problems := list(site_problems(site.get("sources") or {}, site.get("revisions") or {})):
            return {"failed": True, "msg": "\n".join(problems)}
        profiles, _stacks = read_catalogue(self, given, variables, given["names"])
        return {"profiles": list(profiles)}
