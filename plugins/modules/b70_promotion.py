#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_promotion
short_description: Run the production gate on the engine that is served
version_added: 0.2.0
description:
  - Asks the engine that is served, verified, all that a production profile must show. A gate in which every item passes
    or does not apply leaves a record with the verdict V(passed), by which the profile is production on this host.
  - Nothing passes by default. An item that could not be measured fails, and so does one that other clients disturbed.
  - The item V(restart) restarts the engine, which is verified as after every start. Nothing else is stopped, closed
    or replaced. The gate ends at once where somebody switches the slot.
  - Outside check mode the action plugin of the same name runs the gate as a transient systemd unit on the host and
    shows each item. The gate survives a lost connection and the end of the play.
  - If the same gate is under way, the module joins it. If it ended while nobody watched, the module returns its result
    and starts none.
  - The result is a record of the kind C(promotion) in O(records_dir), also of a gate that failed or was killed.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
  - arcpro.b70.slot.journal
  - arcpro.b70.recorded_work
  - arcpro.b70.recorded_work.records
attributes:
  check_mode:
    details: Says which items would be run, or why none would, and starts nothing.
  idempotent:
    details: Nothing that is configured changes, so the result is never changed. Each run asks again.
requirements:
  - requests (on the host)
options:
  state:
    description: >-
      V(promoted) runs the gate. V(shown) looks at the one under way, and leaves its result to the next play that runs
      it. V(stopped) ends it, with a record.
    type: str
    choices: [promoted, shown, stopped]
    default: promoted
  profile:
    description: The profile, which the slot serves.
    type: str
    required: true
  items:
    description: Items to run. Empty means all of them. Only a whole gate is a promotion.
    type: list
    elements: str
    default: []
  canary_repeats:
    description: How often each case of the canary is asked.
    type: int
    default: 8
  request_timeout_s:
    description: How long one answer may take, in seconds.
    type: float
    default: 600
  refusal_limit_s:
    description: The time within which one request too many must be refused, in seconds.
    type: float
    default: 1
  cancel_limit_s:
    description: The time within which the permits of clients that left must be free, in seconds.
    type: float
    default: 10
  warm_share:
    description: >-
      The most of a cold prompt's time to the first token that one from the prefix cache may take. It decides only where
      the engine does not count the tokens that it takes from its cache.
    type: float
    default: 0.8
  prompt_tokens:
    description: Tokens of each prompt of the ladder, at most half of the context.
    type: int
    default: 2048
  output_tokens:
    description: Tokens of each answer of the ladder, as far as the context has room.
    type: int
    default: 128
  quiet_s:
    description: How long requests of other clients are waited for before an item that they would disturb, in seconds.
    type: float
    default: 60
  timeout:
    description: How long the gate may take as a whole, in seconds.
    type: int
    default: 43200
  api_key:
    description: A key for the frontdoor, if it wants one.
    type: str
    default: ""
  tools_python:
    description: The Python of the environment with the measuring tools.
    type: path
    default: /opt/b70/evidence/bin/python
  user:
    description: The user that runs the measuring tools.
    type: str
    default: b70
"""

EXAMPLES = r"""
- name: Run the production gate
  arcpro.b70.b70_promotion:
    profile: gemma4-12b-it-int4-autoround-c8
  register: gate

- name: Run two items of it, which promotes nothing
  arcpro.b70.b70_promotion:
    profile: gemma4-12b-it-int4-autoround-c8
    items: [overload, cancel]
"""

RETURN = r"""
state:
  description: V(none), V(running) or V(ended).
  returned: always
  type: str
joined:
  description: Whether the gate was under way, or had ended while nobody watched.
  returned: always
  type: bool
waits:
  description: Whether a gate is under way, or has ended and its result was printed by no play that runs it.
  returned: always
  type: bool
line:
  description: How far the gate is, in one line.
  returned: always
  type: str
profile:
  description: The profile that is examined.
  returned: always
  type: str
began_at:
  description: When the gate began, in UTC.
  returned: always
  type: str
rows:
  description: >-
    The items that were run, each with C(item), C(verdict) (V(passed), V(failed) or V(not_applicable)) and C(reason).
  returned: always
  type: list
  elements: dict
complete:
  description: Whether all items that were chosen were run, and none of them failed.
  returned: always
  type: bool
foreseen:
  description: The items that would be run.
  returned: in check mode, if no gate is under way
  type: list
  elements: str
verdict:
  description: V(passed), V(failed) or V(unfinished). None while the gate runs.
  returned: always
  type: str
reasons:
  description: Why, one sentence each.
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
  description: The result as readable lines.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments, _paths
from ansible_collections.arcpro.b70.plugins.module_utils._promotion import job
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["promoted", "shown", "stopped"], "default": "promoted"},
    "profile": {"type": "str", "required": True},
    "items": {"type": "list", "elements": "str", "default": []},
    "canary_repeats": {"type": "int", "default": 8},
    "request_timeout_s": {"type": "float", "default": 600},
    "refusal_limit_s": {"type": "float", "default": 1},
    "cancel_limit_s": {"type": "float", "default": 10},
    "warm_share": {"type": "float", "default": 0.8},
    "prompt_tokens": {"type": "int", "default": 2048, "no_log": False},
    "output_tokens": {"type": "int", "default": 128, "no_log": False},
    "quiet_s": {"type": "float", "default": 60},
    "timeout": {"type": "int", "default": 43200},
    "api_key": {"type": "str", "default": "", "no_log": True},
    "tools_python": {"type": "path", "default": f"{_paths.EVIDENCE_DIR}/bin/python"},
    "user": {"type": "str", "default": "b70"},
    **_arguments.JOURNAL,
    **_arguments.RECORDED_WORK,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = job.PromotionJob(module.params).answer(check_mode=module.check_mode)
    except WorkError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
