#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_model_slot
short_description: Serve a verified profile in a slot, or stop the slot
version_added: 0.2.0
description:
  - Replaces the model in a slot as a transaction. It closes the frontdoor to new work and drains it, stops the old
    engine and starts the new one. The frontdoor opens again only after health, identity, a first token and the canary
    have passed.
  - If the switch fails after the frontdoor was closed, it restores and verifies the last verified profile, or stops the
    slot, and the frontdoor reports the reason. A failure before that changes nothing.
  - The last verified profile starts from a copy of the files that it was verified with. A later rendering takes effect
    in the switch that starts and verifies it.
  - A profile that is already active and verified stays unchanged. One that runs but is not verified (after a reboot, or
    after systemd restarted the engine) is verified in place. One with a new rendering is restarted.
  - Outside check mode the action plugin of the same name runs the switch as a transient systemd unit on the host and
    shows its phases as they happen. The switch survives a lost connection and the end of the play. The play notices
    within 20 seconds that the host does not answer, and gets the result as soon as the host answers again.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
attributes:
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - O(state=restarted) always restarts the engine.
requirements:
  - requests (on the host)
options:
  profile:
    description:
      - Name of the profile to serve. It must be rendered on the host.
      - Required with O(state=active), unless O(initial_profile) is set. The default is then the profile that the slot
        serves, or served last without being told to stop. O(state=restarted) always has that default.
    type: str
  initial_profile:
    description:
      - The profile to serve if O(profile) is omitted and the slot has none of its own. May be empty.
      - The slot stays empty while another slot uses a card that this profile needs.
    type: str
  state:
    description:
      - V(active) serves O(profile), V(stopped) serves nothing.
      - V(restarted) starts the engine of O(profile) anew, also one that is verified. It starts what was verified last,
        not a rendering that waits for a switch. If the new process fails, the rollback starts the same once more.
    type: str
    choices: [active, stopped, restarted]
    default: active
  gate:
    description:
      - What must hold before the frontdoor opens.
      - V(verified) requires health, identity, a first token and every canary case. V(healthy) omits the canary. V(none)
        requires only a running unit.
      - A rollback always requires V(verified).
    type: str
    choices: [verified, healthy, none]
    default: verified
  on_failure:
    description:
      - What to do when the switch fails after the frontdoor was closed.
      - V(rollback) restores the last verified profile, V(stop) stops the slot, V(leave) keeps the engine as it is for
        inspection. The frontdoor stays closed with V(stop) and V(leave).
    type: str
    choices: [rollback, stop, leave]
    default: rollback
  drain_timeout:
    description: How long running generations may take to finish, in seconds.
    type: float
    default: 60
  min_serving:
    description:
      - How many engines go on serving during the switch. Replicas of the served profile are replaced in batches, each
        verified, such as for a new stack or a restart. An engine of another profile is verified beside the one that
        serves.
      - The default is as many as possible. With replicas that is all but one, if clients can't tell old and new ones
        apart. A single engine goes on serving if cards are free for the new one.
      - With V(0) all engines stop before the first one starts.
      - If a number above 0 is impossible, the switch fails before it changes anything.
    type: int
  health_timeout:
    description:
      - How long the engine may take to become healthy, in seconds.
      - The default is derived from earlier starts of the profile with the same stack, driver and compiler, up to the
        profile's start timeout.
      - A rollback always has its profile's full start timeout.
    type: float
  lock_timeout:
    description: Seconds to wait for another switch of this slot to end.
    type: float
    default: 0
  reconnect_timeout:
    description:
      - How long the play waits for a host that does not answer during its switch, in seconds. The switch goes on there.
      - The default is 600.
    type: float
  canary_repeats:
    description: How often to send each canary request. The default is that of the profile.
    type: int
  record_baseline:
    description:
      - Record the profile's answers to the canary cases that are compared with a baseline, instead of comparing them.
        They are recorded only if every other case passed and all repeats agreed, for this profile and fingerprint.
      - The canary also runs on an engine that is already verified, so the result is always changed.
    type: bool
    default: false
  accept_status:
    description:
      - Statuses to accept this time although the slot refuses them (those set for the role, by default V(rejected) and
        V(blocked)).
    type: list
    elements: str
    default: []
  planned_stacks:
    description: Only for check mode. Ids of stacks that earlier tasks of the play would have installed.
    type: list
    elements: str
    default: []
  planned_weights:
    description: Only for check mode. Directories of weights that earlier tasks of the play would have installed.
    type: list
    elements: path
    default: []
  planned_files:
    description:
      - Only for check mode. Files that earlier tasks of the play would have written, if they differ from those on the
        host. They are read instead of the host's files. An empty one counts as missing.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The file.
        type: path
        required: true
      content:
        description: Its whole text.
        type: str
        required: true
      mode:
        description: Its mode, which is ignored here.
        type: str
  switch_id:
    description:
      - Identifier of this run in journal and progress file, and part of its unit's name, C(b70-switch-SLOT-ID.service).
      - 1 to 64 letters, digits, C(_), C(.) and C(-). The default is generated.
    type: str
  reason:
    description: The reason for the switch, as text for the journal.
    type: str
    default: ""
  requested_by:
    description:
      - Who requests the switch, for journal and lock. The action plugin sets the user and the host that run Ansible.
    type: str
    default: ""
  engine_check:
    description:
      - Check the command line of the profile with the installed engine before a switch, as
        M(arcpro.b70.b70_profile_check) does. If the engine rejects it, the task fails with the engine's message and the
        slot is not switched.
      - A slot that already serves the profile, verified, is then only inspected.
    type: dict
    suboptions:
      memory_dir:
        description: The directory of the record of accepted command lines.
        type: path
        required: true
      estimates_file:
        description:
          - The file that records what profiles hold of their cards.
          - By default that of M(arcpro.b70.b70_profile_check).
        type: path
      user:
        description: The user that runs the engine's parser.
        type: str
        default: b70
      timeout:
        description: How long the engine may take to answer, in seconds.
        type: int
        default: 300
  public_url:
    description: The URL at which clients reach the frontdoor, for RV(summary).
    type: str
    default: ""
  step:
    description: Internal, between the action plugin and the module.
    type: str
    choices: [run, start, look]
    default: run
seealso:
  - module: arcpro.b70.b70_model_slot_info
"""

EXAMPLES = r"""
- name: Serve a profile, or go back to the one before
  arcpro.b70.b70_model_slot:
    profile: qwen36-int4-c8
  register: switched

- name: Restart the engine, verified, as it is served
  arcpro.b70.b70_model_slot:
    state: restarted

- name: Serve nothing
  arcpro.b70.b70_model_slot:
    state: stopped

- name: Try a profile that the catalogue refuses, and stop when it fails
  arcpro.b70.b70_model_slot:
    profile: gemma4-31b-fp8-c1
    accept_status: [blocked]
    on_failure: stop
    reason: retest after the driver update
"""

RETURN = r"""
slot:
  description: The slot.
  returned: always
  type: str
  sample: main
layout:
  description: The options that name the slot, its directories and its frontdoor, as far as the task gives them.
  returned: if the task does not use C(async)
  type: dict
wanted:
  description: The requested profile or its default, or none.
  returned: always
  type: str
  sample: tiny-b
profile:
  description: The profile that is served at the end, or none.
  returned: always
  type: str
  sample: tiny-b
previous_profile:
  description: The profile that was served before, or none.
  returned: always
  type: str
  sample: tiny-a
served_model:
  description: The model id that clients use.
  returned: always
  type: str
  sample: tiny-b
verified:
  description: Whether the running engine passed health, identity and canary since its start.
  returned: always
  type: bool
verified_at:
  description: The time of the verification, in UTC.
  returned: always
  type: str
  sample: "2026-06-07T09:08:44Z"
fingerprint:
  description: Fingerprint of the served profile, or none. In check mode that of the requested profile.
  returned: always
  type: str
verified_by:
  description: The canary cases by which the served profile was verified.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The case.
      type: str
    repeats:
      description: The number of repeats.
      type: int
    sha256:
      description: Hash of the normalised answer.
      type: str
    request:
      description: Hash of the question.
      type: str
    steady:
      description: Whether the repeats were answered alike. Only then can hosts with one fingerprint be compared.
      type: bool
rolled_back:
  description: Whether the switch failed and the last verified profile was restored and verified.
  returned: always
  type: bool
outcome:
  description: The final state of the run.
  returned: always
  type: str
  choices: [unchanged, committed, untouched, rolled_back, stopped, left, interrupted, stuck, degraded]
way:
  description:
    - How engines were replaced. With V(rolling), replicas were replaced in batches while the others served. With
      V(beside), the new engine was started and verified on free cards while the old one served. With V(standby), it
      was asleep and was woken.
  returned: always
  type: str
  choices: [plain, rolling, beside, standby]
switch_id:
  description: Identifier of this run in the journal.
  returned: always
  type: str
  sample: 20260607T090844Z-1a2b3c
phases:
  description: The phases in the order in which they ran.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The phase.
      type: str
      sample: health
    direction:
      description: V(forward), V(back) to the last verified profile, or V(halt).
      type: str
    seconds:
      description: The duration in seconds.
      type: float
    ok:
      description: Whether it succeeded.
      type: bool
canary:
  description: Every canary case that ran, including those of a failed engine and of the rollback.
  returned: always
  type: list
  elements: dict
  contains:
    profile:
      description: The profile of the engine.
      type: str
    name:
      description: The case.
      type: str
    passed:
      description: Whether every repeat gave the expected answer.
      type: bool
    expected:
      description: What was expected.
      type: str
    got:
      description: The answer, shortened.
      type: str
    sha256:
      description: Hash of the normalised answer.
      type: str
    seconds:
      description: Latency of the request.
      type: float
    attempt:
      description: The repeat of this answer, which is the first that failed or the last.
      type: int
    attempts:
      description: The planned number of repeats. For V(burst), the number of questions sent at once.
      type: int
    problem:
      description: Why it failed, if expected and got do not show it. Empty otherwise.
      type: str
    note:
      description: A remark about a passed case, such as repeats with different answers. Empty otherwise.
      type: str
    finish_reason:
      description: The engine's reason for the end of the answer, such as V(stop) or V(length). Empty without an answer.
      type: str
    prompt_tokens:
      description: The prompt's number of tokens, as counted by the engine. None if it did not report it.
      type: int
    cached_tokens:
      description: The number of these in the prefix cache, as counted by the engine. None if it did not report it.
      type: int
    request:
      description: Hash of the question. Empty for V(burst).
      type: str
    steady:
      description: Whether the repeats were answered alike.
      type: bool
recorded:
  description: Canary cases whose answers became the profile's baseline.
  returned: always
  type: list
  elements: str
actions:
  description: The planned steps, in order. Empty outside check mode.
  returned: always
  type: list
  elements: str
not_looked_at:
  description:
    - Only in check mode. Parts that the prediction assumes to be there, because the play would install them first
      (C(stack), C(weights)), so that its guards could not inspect them.
  returned: always
  type: list
  elements: str
failure:
  description: The phase that failed first, with its evidence. None if nothing failed.
  returned: always
  type: dict
  contains:
    phase:
      description: The phase.
      type: str
    direction:
      description: The direction in which it ran.
      type: str
    message:
      description: What was wrong.
      type: str
    expected:
      description: The expected value, for a comparison.
      type: str
    got:
      description: The actual value.
      type: str
    log_tail:
      description: The engine's last log lines.
      type: list
      elements: str
    symptom:
      description: Id of the known symptom found in the evidence.
      type: str
    advice:
      description: What to do about it.
      type: str
    cause:
      description:
        - The first error of the process that failed first, such as a worker or the engine's core. Then where it was
          raised, and what it led to.
      type: list
      elements: str
    kernel:
      description: What the kernel says of the engine's cards and of its end, since it was started.
      type: list
      elements: str
    log:
      description: The command that shows the engine's whole log on the host.
      type: str
    replica:
      description: The engine that failed, counted from 0, if the profile has several.
      type: int
quarantine:
  description: Why the host refuses other profiles, as M(arcpro.b70.b70_model_slot_info) returns it, or none.
  returned: always
  type: dict
failures:
  description: What failed after that, during the rollback or the stop, in the same form.
  returned: always
  type: list
  elements: dict
summary:
  description: The served profile, its URL, the duration of each phase, and failures with their evidence, as readable
    lines.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_switch
from ansible_collections.arcpro.b70.plugins.module_utils._switch_job import job_of
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError

ARGUMENTS = {
    "profile": {"type": "str"},
    "initial_profile": {"type": "str"},
    "state": {"type": "str", "choices": ["active", "stopped", "restarted"], "default": "active"},
    **_arguments.SLOT,
    "gate": {"type": "str", "choices": ["verified", "healthy", "none"], "default": "verified"},
    "on_failure": {"type": "str", "choices": ["rollback", "stop", "leave"], "default": "rollback"},
    "drain_timeout": {"type": "float", "default": 60.0},
    "min_serving": {"type": "int"},
    "health_timeout": {"type": "float"},
    "lock_timeout": {"type": "float", "default": 0.0},
    "reconnect_timeout": {"type": "float"},
    "canary_repeats": {"type": "int"},
    "accept_status": {"type": "list", "elements": "str", "default": []},
    "planned_stacks": {"type": "list", "elements": "str", "default": []},
    "planned_weights": {"type": "list", "elements": "path", "default": []},
    "planned_files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "required": True},
            "mode": {"type": "str"},
        },
    },
    "record_baseline": {"type": "bool", "default": False},
    "switch_id": {"type": "str"},
    "reason": {"type": "str", "default": ""},
    "requested_by": {"type": "str", "default": ""},
    "engine_check": {
        "type": "dict",
        "options": {
            "memory_dir": {"type": "path", "required": True},
            "estimates_file": {"type": "path"},
            "user": {"type": "str", "default": "b70"},
            "timeout": {"type": "int", "default": 300},
        },
    },
    "public_url": {"type": "str", "default": ""},
    "step": {"type": "str", "choices": ["run", "start", "look"], "default": "run"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_if=[("state", "active", ["profile", "initial_profile"], True)],
        supports_check_mode=True,
    )
    step = module.params.pop("step")
    try:
        params = module.params
        result = run_switch(params, check_mode=module.check_mode) if step == "run" else job_of(params).answer(step)
    except WorkError as error:
        module.fail_json(msg=str(error))
    for warning in result.pop("warnings", []):
        module.warn(warning)
    if not module._diff:
        result.pop("diff", None)
    if result.pop("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
