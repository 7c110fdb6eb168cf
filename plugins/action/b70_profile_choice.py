# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_profile_choice: a decision on the controller, from what was read of the catalogue and of the host."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import Here, choose
from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import (
    CATALOGUE,
    ControllerAction,
    read_catalogue,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._nodes import node_place
from ansible_collections.arcpro.b70.plugins.plugin_utils._slots import slot_places

OPTIONS: dict[str, dict[str, Any]] = {
    "host": {"type": "dict", "required": True},
    **CATALOGUE,
    "requested": {"type": "str", "default": ""},
    "initial": {"type": "str", "default": ""},
    "slots": {"type": "dict", "default": {}},
    "nodes": {"type": "dict", "default": {}},
    "slot": {"type": "str", "default": "main"},
    "refused_statuses": {"type": "list", "elements": "str", "default": ["rejected", "blocked"]},
    "stack_root": {"type": "path", "default": _paths.STACK_ROOT},
    "models_dir": {"type": "path", "default": f"{_paths.DATA_DIR}/llm-models"},
}
_ANY_PORT = 18080


class ActionModule(ControllerAction):
    """Fails with the reason where the host cannot serve what is wanted."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("inventory_hostname", "the host")
        try:
            group = node_place(plain(given["nodes"]), name)
        except ValueError as error:
            raise AnsibleActionFail(f"b70_profile_choice: {error}") from error
        profiles, stacks = read_catalogue(self, given, variables)
        here = Here(
            stacks=stacks,
            host=plain(given["host"]),
            stack_root=given["stack_root"],
            models_dir=given["models_dir"],
            refused=given["refused_statuses"],
            nodes=1 if group is None else len(group.hosts),
        )
        try:
            # Where the engines listen is the slot's business.
            slots = slot_places(plain(given["slots"]), _ANY_PORT) if given["slots"] else {}
        except ValueError as error:
            raise AnsibleActionFail(f"b70_profile_choice: {error}") from error
        choice = choose(profiles, here, given["requested"], given["initial"], slots, given["slot"])
        if choice["problems"]:
            why = " ".join(choice["problems"])
            message = f"{name} cannot serve {choice['profile']} ({choice['reason']}): {why} {choice['advice']}"
            return {**choice, "failed": True, "msg": message}
        return {**choice, "msg": f"{name}: {_said(choice)}"}


def _said(choice: dict[str, Any]) -> str:
    stacks = f"Stacks on this host: {', '.join(choice['stacks']) or 'none'}."
    words = [f"{choice['profile'] or 'nothing is served'}; {choice['reason']}.", stacks, *choice["notes"]]
    return " ".join(words)
