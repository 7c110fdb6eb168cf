#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_context_search
short_description: Search for the longest context with room for so many sequences
version_added: 0.1.0
description:
  - Finds the largest C(max_model_len) with which the engine of a profile has room for O(sequences) sequences of full
    length, as the engine says at its start. Each trial is a start of the engine with all other settings as they are.
  - All trials are one switch that ends with its way back. Clients get no answer meanwhile. The frontdoor stays closed
    until the profile that was served before is served again, verified.
  - Outside check mode the action plugin of the same name runs the search as a transient systemd unit on the host and
    shows the trials. The search survives a lost connection and the end of the play. A search that is killed is settled
    by the host, which goes back to the profile that was verified before.
  - If the same search is under way, the module joins it. If it ended while nobody watched, the module returns its
    result and starts none. If it has other options, the module fails and says which.
  - Nothing is started where there would be no way back, such as beside an engine that was not verified.
  - The result is a record of the kind C(context_search) in O(records_dir). The profile itself is not changed.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
  - arcpro.b70.slot
  - arcpro.b70.slot.frontdoor
attributes:
  check_mode:
    support: full
    details: Looks for a search that is under way, and starts none.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: Nothing that is configured changes, so the result is never changed. Each run searches again.
author:
  - arcpro.b70 contributors (@arcpro-b70)
requirements:
  - requests (on the host)
options:
  state:
    description: V(shown) only looks, and collects no result.
    type: str
    choices: [searched, shown]
    default: searched
  profile:
    description: The profile whose context is searched. It must be rendered on the host, and served by vLLM.
    type: str
    required: true
  sequences:
    description: The number of sequences of full length for which there must be room.
    type: int
    required: true
  granularity:
    description: Only multiples of so many tokens are tried.
    type: int
    default: 128
  least:
    description: The shortest length to try. 0 means O(granularity).
    type: int
    default: 0
  most:
    description:
      - The longest length to try, and the first one.
      - 0 means the longest that the model's C(config.json) knows, or else that of the profile.
    type: int
    default: 0
  records_dir:
    description: The directory of the records.
    type: path
    default: /var/lib/b70/records
  host_name:
    description: The name of the host in the record. The action plugin sets the name in the inventory.
    type: str
    default: host
  requested_by:
    description: Who requests the search, for the journal of switches.
    type: str
    default: ""
  reconnect_timeout:
    description: How long the play waits for a host that does not answer, in seconds. The search goes on there.
    type: float
    default: 600
  step:
    description: Internal. What the action plugin asks of the module on the host.
    type: str
    choices: [start, look]
    default: start
  token:
    description: Internal. What the action plugin tells its own calls by.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Search for the longest context with room for 64 sequences
  arcpro.b70.b70_context_search:
    profile: gemma4-12b-it-int4-c64
    sequences: 64
  register: searched
"""

RETURN = r"""
state:
  description: V(none), V(running) or V(ended).
  returned: always
  type: str
joined:
  description: Whether the search was under way, or had ended while nobody watched.
  returned: always
  type: bool
waits:
  description: Whether a search is under way, or has ended and its result is still to be collected.
  returned: always
  type: bool
line:
  description: How far the search is, in one line.
  returned: always
  type: str
profile:
  description: The profile that is searched.
  returned: always
  type: str
trials:
  description: The trials in their order, with C(length), C(kv_tokens), C(concurrency), C(seconds) and C(passes).
  returned: always
  type: list
  elements: dict
found:
  description: The longest length that passes, or none.
  returned: always
  type: int
verdict:
  description: V(passed), V(failed) or V(unfinished). None while the search runs.
  returned: always
  type: str
reasons:
  description: Why, and what is served now.
  returned: always
  type: list
  elements: str
record:
  description: The id of the record.
  returned: always
  type: str
file:
  description: The file of the record on the host.
  returned: always
  type: str
summary:
  description: The trials and the line for the profile, as readable lines.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._context_search import job

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["searched", "shown"], "default": "searched"},
    "profile": {"type": "str", "required": True},
    "sequences": {"type": "int", "required": True},
    "granularity": {"type": "int", "default": 128},
    "least": {"type": "int", "default": 0},
    "most": {"type": "int", "default": 0},
    "slot": {"type": "str", "default": "main"},
    "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
    "run_dir": {"type": "path", "default": _paths.RUN_DIR},
    "state_dir": {"type": "path", "default": _paths.STATE_DIR},
    "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
    "frontdoor_url": {"type": "str", "default": "http://127.0.0.1:8000"},
    "records_dir": {"type": "path", "default": _paths.RECORDS_DIR},
    "host_name": {"type": "str", "default": "host"},
    "requested_by": {"type": "str", "default": ""},
    "reconnect_timeout": {"type": "float", "default": 600},
    "step": {"type": "str", "choices": ["start", "look"], "default": "start"},
    "token": {"type": "str", "default": "", "no_log": False},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = job.answer(module.params, check_mode=module.check_mode)
    except job.SearchError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
