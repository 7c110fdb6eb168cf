#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_report
short_description: Collect a redacted support bundle of a host
version_added: 0.2.0
description:
  - Creates one archive with the host's system, cards, packages, stacks, slot, logs and all findings of the doctor.
  - Redacts secrets, names of people and home directories on the host, before anything leaves it.
  - Limits the size of every part, and lists missing parts with the reason.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.doctor
  - arcpro.b70.slot
attributes:
  check_mode:
    details:
      - Collects, but writes no archive.
  idempotent:
    support: none
    details:
      - Every run creates an archive of the current state. It does not count as a change of the host.
options:
  dest:
    description: The archive to write on the host, a V(.tar.gz). By default nothing is written.
    type: path
  folder:
    description:
      - A folder on the controller. The archive is copied there as C(NAME.tar.gz), where C(NAME) is O(name), and removed
        from the host. O(dest) is then ignored.
    type: path
  name:
    description: The name of the host, for the folder inside the archive.
    type: str
    default: host
  max_item_kib:
    description: The maximum size of one item in KiB. Only the end of a longer item is kept.
    type: int
    default: 512
  people:
    description: Names of people to redact, besides those of the host's accounts.
    type: list
    elements: str
    default: []
seealso:
  - module: arcpro.b70.b70_doctor
  - module: arcpro.b70.b70_report_page
"""

EXAMPLES = r"""
- name: Bring a report
  arcpro.b70.b70_report:
    folder: reports
    name: "{{ inventory_hostname }}"
"""

RETURN = r"""
size:
  description: The archive's size in bytes, 0 if none was written.
  returned: always
  type: int
contents:
  description: The contents, and missing items with the reason.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name in the archive. A folder if nothing was found for it.
      type: str
    source:
      description: The command or files that it comes from.
      type: str
    bytes:
      description: Its size.
      type: int
    truncated:
      description: Whether only its end was kept.
      type: bool
    problem:
      description: Why there is nothing, else empty.
      type: str
redactions:
  description: How often each kind of secret was redacted.
  returned: always
  type: dict
  sample: {header: 2, known secret: 5}
findings:
  description: As of M(arcpro.b70.b70_doctor), redacted.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import options, report


def main() -> None:
    module = AnsibleModule(argument_spec=options.REPORT, supports_check_mode=True)
    made = report.make(module.params)
    data = made.pop("archive")
    size = 0
    if module.params["dest"] and not module.check_mode:
        size = report.write(module.params["dest"], data)
    module.exit_json(changed=False, size=size, **made)


if __name__ == "__main__":
    main()
