#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_maintenance
short_description: Begin or end the maintenance of a host
version_added: 0.2.0
description:
  - V(present) takes a host out of its fleet. Its frontdoor's C(/ready) is 503, so load balancers send it no requests.
    Rollouts and scheduled restarts leave it alone, and alerts about it are silent. Whoever asks the host directly is
    served as before.
  - Only V(absent), or C(b70ctl maintenance --end), ends it. A reboot, a switch or the restoring of hosts on load
    balancers does not.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
  - arcpro.b70.slot.journal
attributes:
  diff_mode:
    support: full
options:
  state:
    description: V(present) begins it, V(absent) ends it.
    type: str
    choices: [present, absent]
    default: present
  reason:
    description: Why, as text for whoever meets it. Required with O(state=present).
    type: str
    default: ""
seealso:
  - module: arcpro.b70.b70_quarantine
"""

EXAMPLES = r"""
- name: Take a host out of the fleet
  arcpro.b70.b70_maintenance:
    reason: a fan is replaced
"""

RETURN = r"""
maintenance:
  description: The record, or none.
  returned: success
  type: dict
  contains:
    since:
      description: Since when, in UTC.
      type: str
    who:
      description: Who has set it.
      type: str
    reason:
      description: Why.
      type: str
msg:
  description: The same as a sentence.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_maintenance

ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "reason": {"type": "str", "default": ""},
    **_arguments.SLOT,
    **_arguments.JOURNAL,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.params["state"] == "present" and not module.params["reason"]:
        module.fail_json(msg="state=present needs a reason: it is shown to whoever meets the maintenance")
    result = run_maintenance(module.params, check_mode=module.check_mode)
    if not module._diff:
        result.pop("diff", None)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
