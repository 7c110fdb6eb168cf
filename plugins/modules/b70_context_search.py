#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_context_search
short_description: Search for the longest context with room for so many sequences
version_added: 0.2.0
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
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
  - arcpro.b70.slot.journal
  - arcpro.b70.recorded_work
  - arcpro.b70.recorded_work.records
attributes:
  check_mode:
    details: Looks for a search that is under way, and starts none.
  idempotent:
    details: Nothing that is configured changes, so the result is never changed. Each run searches again.
requirements:
  - requests (on the host)
options:
  state:
    description: V(shown) only looks, and leaves the result to the next play that searches.
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
  probe_timeout:
    description:
      - How long the answers to each probe may take, in seconds. V(0) sends no probes.
      - Probes are sent to each length with room. They are a request for the time to the first token, O(sequences)
        requests that decode, and O(sequences) requests at once that fill their context. A length with a request that
        fails does not pass.
    type: float
    default: 1800
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
  description: Whether a search is under way, or has ended and its result was printed by no play that searches.
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
began_at:
  description: When the search began, in UTC.
  returned: always
  type: str
trials:
  description: >-
    The trials in their order, with C(length), C(kv_tokens), C(concurrency), C(seconds), C(passes), C(probes) and
    C(problem).
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

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._context_search import job
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["searched", "shown"], "default": "searched"},
    "profile": {"type": "str", "required": True},
    "sequences": {"type": "int", "required": True},
    "granularity": {"type": "int", "default": 128},
    "least": {"type": "int", "default": 0},
    "most": {"type": "int", "default": 0},
    "probe_timeout": {"type": "float", "default": 1800},
    **_arguments.JOURNAL,
    **_arguments.RECORDED_WORK,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = job.SearchJob(module.params).answer(check_mode=module.check_mode)
    except WorkError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
