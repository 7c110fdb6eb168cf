# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_site_variables: it judges what the inventory says on the controller and reaches no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction
from ansible_collections.arcpro.b70.plugins.plugin_utils._role_arguments import (
    commanded_faults,
    options_of,
    ours,
    site_faults,
)

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # ansible-core 2.18 does not know where a value is written
    Origin = None

COLLECTION = Path(__file__).resolve().parents[2]
OPTIONS: dict[str, dict[str, Any]] = {
    "roles": {"type": "list", "elements": "str", "required": True},
    "commanded": {"type": "dict", "default": {}},
}


class ActionModule(ControllerAction):
    """Fails once for all hosts, with one sentence for each variable that is wrong."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        everything = variables["hostvars"]
        roles = [name.removeprefix("arcpro.b70.") for name in given["roles"]]
        places = [COLLECTION / "roles" / name for name in roles]
        options = {name: one for place in places if place.is_dir() for name, one in options_of(place).items()}
        hosts = {host: everything.raw_get(host) for host in variables["ansible_play_hosts_all"]}
        faults = site_faults(
            options, roles, ours(COLLECTION), hosts, lambda host, name: everything[host][name], _origin
        )
        faults += commanded_faults(given["commanded"], load_extra_vars(self._loader), hosts)
        return {"failed": bool(faults), "msg": "\n".join(faults)}


def _origin(value: Any) -> str:
    tag = Origin.get_tag(value) if Origin else None
    if tag is None:
        return ""
    return f"{tag.path}:{tag.line_num}" if tag.path else (tag.description or "")
