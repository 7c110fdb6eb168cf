# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of the local lab."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin

_KIT = str(Path(__file__).resolve().parents[1])
if _KIT not in sys.path:
    sys.path.append(_KIT)

from labkit.common import LabError  # noqa: E402
from labkit.layout import State, open_lab, read_pid, ssh_options  # noqa: E402

DOCUMENTATION = """
name: b70_lab
short_description: The hosts of the local lab that are up
description:
  - Reads the state of a lab made by C(tests/lab/lab.py up) and yields the hosts that run.
  - Which lab is decided as C(lab.py) decides it, by the environment variables E(B70_LAB) and E(B70_LAB_DIR), unless
    O(lab) says otherwise.
  - The hosts are in the groups C(b70_hosts) and C(lab).
author: [arcpro.b70 contributors]
options:
  plugin:
    description: Must be V(b70_lab).
    type: str
    required: true
    choices: [b70_lab]
  lab:
    description: Name of the lab. Without it, the one that E(B70_LAB) names, else V(lab).
    type: str
"""

EXAMPLES = """
# inventory/lab.yml
plugin: b70_lab
"""

GROUPS = ("b70_hosts", "lab")


def running_hosts(name: str | None = None) -> dict[str, dict[str, Any]]:
    """Host name -> connection variables, of the hosts that run. Raises LabError when there is none."""
    lab = open_lab(name)
    state = State.load(lab)
    found = {}
    for index in state.hosts if state else []:
        host = lab.host(index)
        if state is None or read_pid(host.pid_file) is None:
            continue
        found[host.name] = {
            "ansible_host": state.address(host),
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(lab.key),
            "ansible_ssh_common_args": shlex.join(ssh_options(lab)),
            "ansible_python_interpreter": "/usr/bin/python3",
        }
    if not found:
        down = "has no running host" if state else "is not up"
        raise LabError(f"the lab {lab.name!r} {down} ({lab.directory})", "run make lab-up")
    return found


class InventoryModule(BaseInventoryPlugin):
    """Ansible's door to the lab's state."""

    NAME = "b70_lab"

    def verify_file(self, path: str) -> bool:
        """Only a readable file called lab.yml, or one whose name ends in `.lab.yml`."""
        name = Path(path).name
        return bool(super().verify_file(path)) and (name == "lab.yml" or name.endswith(".lab.yml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Add the hosts. Without a lab that is up it says so and ends the command with exit code 4.

        Raising instead would let Ansible try the file with its other plugins and bury that sentence under their errors.
        """
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            hosts = running_hosts(self.get_option("lab"))
        except LabError as exc:
            self.display.error(f"{exc}: {exc.fix}", wrap_text=False)
            raise SystemExit(4) from None
        for group in GROUPS:
            inventory.add_group(group)
        for name, variables in hosts.items():
            for group in GROUPS:
                inventory.add_host(name, group=group)
            for key, value in variables.items():
                inventory.set_variable(name, key, value)
