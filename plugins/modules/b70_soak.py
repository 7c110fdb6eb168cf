#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_soak
short_description: Soak the engine that is served, for hours
version_added: 0.2.0
description:
  - Asks the canary of the engine that is served and puts load on it, in cycles until a deadline. It closes, stops and
    replaces nothing, whatever the engine answers.
  - A case that is answered wrongly is asked again at once. The later answers say whether the wrong one is isolated,
    repeated or persistent.
  - Ends early if a card is lost, if the engine is another process, or if a case is never answered rightly any more.
  - Outside check mode the action plugin of the same name runs the soak as a transient systemd unit on the host, as the
    user of the engine, and shows how far it is. The soak survives a lost connection and the end of the play.
  - If a soak is under way, the module joins it. If one ended while nobody watched, the module returns its result and
    starts none.
  - The result is a record of the kind C(soak) in O(records_dir), also of a soak that was killed.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
  - arcpro.b70.recorded_work
  - arcpro.b70.recorded_work.records
attributes:
  check_mode:
    details: Looks for a soak that is under way, and starts none.
  idempotent:
    details: Nothing that is configured changes, so the result is never changed. Each run soaks again.
requirements:
  - requests (on the host)
options:
  state:
    description: >-
      V(soaked) soaks. V(shown) looks at the soak under way, and leaves its result to the next play that soaks.
      V(stopped) ends it, with a record.
    type: str
    choices: [soaked, shown, stopped]
    default: soaked
  duration:
    description: How long to soak, such as V(8h), V(90m), V(1h30m) or a number of seconds.
    type: str
    default: 8h
  interval:
    description: A cycle begins so long after the one before began, or at once if that one took longer.
    type: str
    default: 15m
  reruns:
    description: How often a case that was answered wrongly is asked again at once.
    type: int
    default: 3
  stress:
    description: How often it is asked after that. At least 1 if O(reruns) is 0.
    type: int
    default: 25
  concurrency:
    description: Number of requests in a cycle's load, sent at once. 0 means as many as the profile admits.
    type: int
    default: 0
  prompt_words:
    description: Words of each prompt, at most an eighth of the context.
    type: int
    default: 100
  output_tokens:
    description: Tokens of each answer, as far as the context has room.
    type: int
    default: 512
  request_timeout_s:
    description: How long an answer of the load may take, in seconds.
    type: float
    default: 1800
  baseline_cycles:
    description: The first cycles. Their median rate is the reference of the later ones.
    type: int
    default: 3
  min_speed_share:
    description: A cycle below this share of the reference fails the soak. 0 compares nothing.
    type: float
    default: 0.9
  max_isolated:
    description: The most isolated anomalies with which a soak passes.
    type: int
    default: 1
  max_repeated:
    description: The most repeated anomalies with which a soak passes.
    type: int
    default: 0
  max_persistent:
    description: The most persistent anomalies with which a soak passes.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Soak over night
  arcpro.b70.b70_soak:
    duration: 8h
  register: soaked

- name: Show how far the soak is
  arcpro.b70.b70_soak:
    state: shown
"""

RETURN = r"""
state:
  description: V(none), V(running) or V(ended).
  returned: always
  type: str
joined:
  description: Whether the soak was under way, or had ended while nobody watched.
  returned: always
  type: bool
waits:
  description: Whether a soak is under way, or has ended and its result was printed by no play that soaks.
  returned: always
  type: bool
line:
  description: How far the soak is, in one line.
  returned: always
  type: str
profile:
  description: The profile that is soaked.
  returned: always
  type: str
began_at:
  description: When the soak began, in UTC.
  returned: always
  type: str
cycles:
  description: The number of cycles that have begun.
  returned: always
  type: int
counts:
  description: The number of anomalies of each class.
  returned: always
  type: dict
verdict:
  description: V(passed), V(failed) or V(unfinished). None while the soak runs.
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

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._soak import job
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError

ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["soaked", "shown", "stopped"], "default": "soaked"},
    "duration": {"type": "str", "default": "8h"},
    "interval": {"type": "str", "default": "15m"},
    "reruns": {"type": "int", "default": 3},
    "stress": {"type": "int", "default": 25},
    "concurrency": {"type": "int", "default": 0},
    "prompt_words": {"type": "int", "default": 100},
    "output_tokens": {"type": "int", "default": 512, "no_log": False},
    "request_timeout_s": {"type": "float", "default": 1800},
    "baseline_cycles": {"type": "int", "default": 3},
    "min_speed_share": {"type": "float", "default": 0.9},
    "max_isolated": {"type": "int", "default": 1},
    "max_repeated": {"type": "int", "default": 0},
    "max_persistent": {"type": "int", "default": 0},
    **_arguments.RECORDED_WORK,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        result = job.SoakJob(module.params).answer(check_mode=module.check_mode)
    except WorkError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
