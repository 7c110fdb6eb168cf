#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_fleet_lease
short_description: Take the lease of a host, keep it, or give it up
version_added: 0.2.0
description:
  - A lease says which run of a playbook owns a host. Rollouts and restarts take the leases of all their hosts first, so
    two of them never work on one host.
  - The lease is a file on the host. It is over when it is given up, when its time has passed, or when another run takes
    it with O(force).
  - A lease of a run on the same controller that has ended, for example because it was killed, is taken without
    O(force).
  - Returns RV(refusal) instead of failing, so that a play can name all hosts at once.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  idempotent:
    support: partial
    details:
      - V(taken) and V(kept) move the end of the lease.
options:
  state:
    description:
      - V(taken) takes the lease, or keeps it if this run has it.
      - V(kept) keeps it, and refuses if this run no longer has it.
      - V(free) takes nothing, and refuses if another run has it.
      - V(released) gives it up if this run has it.
    type: str
    choices: [taken, kept, free, released]
    default: taken
  what:
    description: What the run does, as text for whoever is refused.
    type: str
    default: a playbook
  minutes:
    description: How long the lease lasts unless it is kept.
    type: float
    default: 120
  force:
    description: Take the lease although another run has it.
    type: bool
    default: false
  state_dir:
    description: The directory of the file.
    type: path
    default: /var/lib/b70
  run:
    description: The id of the run. The action sets it.
    type: str
    default: ""
  owner:
    description: The user and the controller. The action sets it.
    type: str
    default: ""
  over:
    description: Ids of runs that have ended. The action sets it.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Take the lease
  arcpro.b70.b70_fleet_lease:
    what: restart of the engines
  register: lease
"""

RETURN = r"""
refusal:
  description: Why this run may not go on. Empty if it may.
  returned: success
  type: str
holder:
  description: The lease of the other run, or none.
  returned: success
  type: dict
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _fleet_lease, _paths


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "kept", "free", "released"], "default": "taken"},
            "what": {"type": "str", "default": "a playbook"},
            "minutes": {"type": "float", "default": 120},
            "force": {"type": "bool", "default": False},
            "state_dir": {"type": "path", "default": _paths.STATE_DIR},
            "run": {"type": "str", "default": ""},
            "owner": {"type": "str", "default": ""},
            "over": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    asked = _fleet_lease.asked_for(given["run"], given["owner"], given["what"], given["minutes"])
    try:
        with _fleet_lease.opened(Path(given["state_dir"]), given["state"]) as file:
            held = _fleet_lease.read(file)
            answer = _fleet_lease.decide(given["state"], held, asked, over=given["over"], force=given["force"])
            if answer.lease != held and not module.check_mode:
                _fleet_lease.write(file, answer.lease)
    except OSError as error:
        module.fail_json(msg=f"the lease of this host in {given['state_dir']} cannot be read or written: {error}")
    holder = None if answer.holder is None else asdict(answer.holder)
    module.exit_json(changed=answer.lease != held, refusal=answer.refusal, holder=holder)


if __name__ == "__main__":
    main()
