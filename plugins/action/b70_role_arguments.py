# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_role_arguments: it reads the role's specification on the controller and reaches no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction
from ansible_collections.arcpro.b70.plugins.plugin_utils._role_arguments import faults, options_of, unknown, with_hosts

OPTIONS: dict[str, dict[str, Any]] = {
    "role_path": {"type": "path", "required": True},
    "words": {"type": "list", "elements": "str", "default": []},
    "mappings": {"type": "list", "elements": "str", "default": []},
    "refuse_unknown": {"type": "bool", "default": False},
}


class ActionModule(ControllerAction):
    """Fails with one sentence for each variable that is wrong, once for all hosts of the batch.

    The first host's variables are judged as the role uses them, of the others only what is written for them.
    """

    BYPASS_HOST_LOOP = True
    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        role = Path(given["role_path"])
        options = options_of(role)
        shapes = {name: option for name, option in options.items() if name not in given["words"]}
        shapes |= {name: {"type": "dict"} for name in given["mappings"]}
        first = variables["inventory_hostname"]
        others = [host for host in variables["ansible_play_batch"] if host != first]
        found: dict[str, list[str]] = {}
        for host, own in ((first, variables), *((host, variables["hostvars"].raw_get(host)) for host in others)):
            template = self._templar.copy_with_new_env(available_variables={**variables, **own}).template
            said = [
                *faults(shapes, own, template),
                *(unknown(role.name, options, own) if given["refuse_unknown"] else ()),
            ]
            for text in dict.fromkeys(said):
                found.setdefault(text, []).append(host)
        return {"failed": bool(found), "msg": " ".join(with_hosts(found, 1 + len(others)))}
