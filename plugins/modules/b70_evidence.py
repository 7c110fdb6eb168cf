#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_evidence
short_description: Copy the records of a host to the controller
version_added: 0.2.0
description:
  - Copies the records of benchmarks, soaks, context searches and promotions that the controller does not have yet to
    C(HOST/KIND/ID.json) below O(dest). C(HOST) is the name in the inventory.
  - Checks each record against the schema first. A record that breaks it is not copied, and named in a warning.
  - Removes no record, neither on the host nor on the controller.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  diff_mode:
    support: full
    details:
      - The names of the files are shown.
options:
  dest:
    description: A folder on the controller. It is created if it is missing.
    type: path
    required: true
  records_dir:
    description: The directory of the records on the host.
    type: path
    default: /var/lib/b70/records
  known:
    description: The digests of the records that the controller has, by id. The part on the controller sets this option.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Copy new records
  arcpro.b70.b70_evidence:
    dest: "{{ inventory_dir }}/records"
"""

RETURN = r"""
copied:
  description: The files that were copied, or would be, relative to O(dest).
  returned: success
  type: list
  elements: str
  sample: [b70-01/benchmark/20261123T041600Z-benchmark-tiny-a-5e1f0c.json]
problems:
  description: The records that were not copied, each with the reason.
  returned: success
  type: list
  elements: str
summary:
  description: The numbers of both, as readable lines.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.handing import hand_over
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "records_dir": {"type": "path", "default": _paths.RECORDS_DIR},
            "known": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **hand_over(Store(module.params["records_dir"]), module.params["known"]))


if __name__ == "__main__":
    main()
