#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_quarantine
short_description: Put a host into quarantine, or end its quarantine
version_added: 0.2.0
description:
  - V(present) closes the frontdoor of a host that is not to be trusted although its engine has passed its canary. The
    engine keeps running for inspection. The host refuses every profile, and neither a reboot nor a restart of the
    engine opens the frontdoor again.
  - V(absent) ends any quarantine, also that of a lost card. The frontdoor stays closed until the profile is verified
    again, by a switch or by C(b70ctl verify).
  - V(present) fails if the slot has no state file in O(run_dir), and if the frontdoor does not say that it is closed.
  - Waits up to 60 seconds for a switch that is about to end.
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
    description: V(present) sets the quarantine, V(absent) ends it.
    type: str
    choices: [present, absent]
    default: present
  reason:
    description:
      - Why it is set or ended, as text for the record. Required with O(state=present).
      - A quarantine with another reason gets the new one.
    type: str
    default: ""
seealso:
  - module: arcpro.b70.b70_model_slot
"""

EXAMPLES = r"""
- name: Take a host out of service that answers differently from its peers
  arcpro.b70.b70_quarantine:
    reason: canary case exact_ok differs from the other hosts

- name: Let it take profiles again
  arcpro.b70.b70_quarantine:
    state: absent
    reason: the card was replaced
"""

RETURN = r"""
quarantine:
  description: The record of the quarantine, or none.
  returned: success
  type: dict
  contains:
    since:
      description: Since when, in UTC.
      type: str
    reason:
      description: Why it was set.
      type: str
    who:
      description: Who has set it.
      type: str
    profile:
      description: The profile that was served.
      type: str
msg:
  description: The quarantine and the way out, as a sentence.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_quarantine

ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "reason": {"type": "str", "default": ""},
    **_arguments.SLOT,
    **_arguments.JOURNAL,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.params["state"] == "present" and not module.params["reason"]:
        module.fail_json(msg="state=present needs a reason: it is shown to whoever meets the quarantine")
    result = run_quarantine(module.params, check_mode=module.check_mode)
    for warning in result.pop("warnings", []):
        module.warn(warning)
    if not module._diff:
        result.pop("diff", None)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
