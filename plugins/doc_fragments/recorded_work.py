# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Work on a slot that ends with a record, beside the options of the slot."""

    DOCUMENTATION = r"""
options:
  host_name:
    description: The name of the host in the record. The action plugin sets the name in the inventory.
    type: str
    default: host
  reconnect_timeout:
    description: How long the play waits for a host that does not answer, in seconds. The work goes on there.
    type: float
    default: 600
  step:
    description: Internal. What the action plugin asks of the module on the host.
    type: str
    choices: [start, look, acknowledge]
    default: start
  token:
    description: Internal. What the action plugin tells its own calls by.
    type: str
    default: ""
"""

    RECORDS = r"""
options:
  records_dir:
    description: The directory of the records on the host.
    type: path
    default: /var/lib/b70/records
"""
