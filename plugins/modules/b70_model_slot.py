#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_model_slot
short_description: Serve a verified profile in a slot, or stop the slot
version_added: 0.1.0
description:
  - Replaces the model in a slot as a transaction. The frontdoor is closed to new work and drained, the old engine is
    stopped, the new one started, and only when its health, its identity, a first token and the canary hold does the
    frontdoor open again.
  - A failure after the frontdoor was closed leads back to the last verified profile, which is verified again, or to a
    stopped slot whose frontdoor says why. A failure before that touches nothing.
  - The last verified profile is started from a copy of the very files that it was verified with. What was rendered of
    it since takes effect in the switch that starts it and verifies it.
  - A profile that is active and verified already is left alone. One that runs but is not verified (after a reboot, or
    when systemd restarted the engine) is verified in place. One that was rendered anew is restarted.
  - Outside check mode the action plugin of the same name runs the switch as a transient unit of systemd on the host and
    shows its phases as they happen. Neither a lost connection nor the end of the play ends the switch; the play notices
    within 20 seconds that the host does not answer, and has the result as soon as it answers again.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
  - arcpro.b70.slot
  - arcpro.b70.slot.frontdoor
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
author:
  - arcpro.b70 contributors (@arcpro-b70)
requirements:
  - requests (on the host)
options:
  profile:
    description:
      - Name of the profile to serve. It must be rendered on the host.
      - With O(state=active) it is required, unless O(initial_profile) is given. It is then the one that the slot
        serves, or served last and was not told to stop.
    type: str
  initial_profile:
    description: The profile to serve where O(profile) is left out and the slot has none of its own. May be empty.
    type: str
  state:
    description: Whether the slot serves O(profile) or nothing.
    type: str
    choices: [active, stopped]
    default: active
  gate:
    description:
      - What must hold before the frontdoor opens.
      - V(verified) wants health, identity, a first token and every canary case; V(healthy) leaves out the canary;
        V(none) wants only a running unit.
      - The way back always wants V(verified).
    type: str
    choices: [verified, healthy, none]
    default: verified
  on_failure:
    description:
      - What to do when the switch fails after the frontdoor was closed.
      - V(rollback) goes back to the last verified profile, V(stop) stops the slot, V(leave) leaves the engine as it is
        for a look at it. The frontdoor stays closed with V(stop) and V(leave).
    type: str
    choices: [rollback, stop, leave]
    default: rollback
  drain_timeout:
    description: Seconds which running generations get to finish.
    type: float
    default: 60
  health_timeout:
    description:
      - Seconds which the engine gets to become healthy.
      - The default is what earlier starts of the profile taught on the same stack, driver and compiler, at most the
        profile's start timeout.
      - The way back always has all the time of its profile.
    type: float
  lock_timeout:
    description: Seconds to wait for another switch of this slot to end.
    type: float
    default: 0
  canary_repeats:
    description: How often each canary case is asked. The default is the profile's.
    type: int
  record_baseline:
    description:
      - Record what the profile answers to the canary cases that are compared with a baseline, in place of judging them.
        It is recorded only when every other case passed and all repeats agreed, for this profile and fingerprint.
      - The canary is asked of an engine that is verified already, too, so the result is always changed.
    type: bool
    default: false
  accept_status:
    description:
      - Statuses which the slot refuses otherwise (as the role was told, V(rejected) and V(blocked) by default) and that
        are accepted this time.
    type: list
    elements: str
    default: []
  planned_stacks:
    description: Only in check mode, ids of stacks that the same play would have installed by now.
    type: list
    elements: str
    default: []
  planned_weights:
    description: Only in check mode, directories of weights that the same play would have brought by now.
    type: list
    elements: path
    default: []
  planned_files:
    description:
      - Only in check mode, files that earlier tasks of the same play would have written by now, as far as they differ
        from those on the host. They are read in their place; an empty one is not there.
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
        description: Its mode, which does not matter here.
        type: str
  switch_id:
    description:
      - Identifier of this run in journal and progress file, and part of its unit's name, C(b70-switch-SLOT-ID.service).
      - 1 to 64 letters, digits, C(_), C(.) and C(-). One is made up when it is left out.
    type: str
  reason:
    description: Why the switch is made, in words, for the journal.
    type: str
    default: ""
  requested_by:
    description:
      - Who asks for it, for journal and lock. The action plugin names the user and the host that run Ansible.
    type: str
    default: ""
  engine_check:
    description:
      - Ask the installed engine about the command line of the profile before a switch, as
        M(arcpro.b70.b70_profile_check) does. The task fails with what it says against it, and nothing is switched.
      - A slot that serves the profile, verified, is then left alone by one look at it.
    type: dict
    suboptions:
      memory_dir:
        description: Where it is recorded which command lines have passed.
        type: path
        required: true
      user:
        description: The user as which the engine is asked.
        type: str
        default: b70
      timeout:
        description: Seconds that the engine may take to answer.
        type: int
        default: 300
  public_url:
    description: Where clients reach the frontdoor, for RV(summary).
    type: str
    default: ""
  step:
    description: Used between the two halves of this module; leave it alone.
    type: str
    choices: [run, start, collect]
    default: run
seealso:
  - module: arcpro.b70.b70_model_slot_info
"""

EXAMPLES = r"""
- name: Serve a profile, or go back to the one before
  arcpro.b70.b70_model_slot:
    profile: qwen36-int4-c8
  register: switched

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
wanted:
  description: The profile that was asked for or stood for it, or none.
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
  description: The model id under which clients find it.
  returned: always
  type: str
  sample: tiny-b
verified:
  description: Whether the running engine passed health, identity and canary since its start.
  returned: always
  type: bool
verified_at:
  description: When it did, in UTC.
  returned: always
  type: str
  sample: "2026-06-07T09:08:44Z"
rolled_back:
  description: Whether the switch failed and the last verified profile was brought back and verified.
  returned: always
  type: bool
outcome:
  description: Where the run ended.
  returned: always
  type: str
  choices: [unchanged, committed, untouched, rolled_back, stopped, left, interrupted, stuck]
switch_id:
  description: Identifier of this run in the journal.
  returned: always
  type: str
  sample: 20260607T090844Z-1a2b3c
phases:
  description: The phases in the order in which they were run.
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
      description: How long it took.
      type: float
    ok:
      description: Whether it succeeded.
      type: bool
canary:
  description: Every canary case that was asked, also those of a failed engine and of the way back.
  returned: always
  type: list
  elements: dict
  contains:
    profile:
      description: The profile whose engine was asked.
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
      description: The repeat which the answer belongs to, the first that failed or the last.
      type: int
    attempts:
      description: How many there were to be. Of V(burst), how many questions were asked at once.
      type: int
    problem:
      description: Why it failed, where expected and got do not say it; empty otherwise.
      type: str
    note:
      description: What is worth knowing although it passed, such as repeats that answered differently; empty otherwise.
      type: str
    finish_reason:
      description: Why the answer ended, as the engine says it, such as V(stop) or V(length). Empty without an answer.
      type: str
    prompt_tokens:
      description: How long the prompt was, as the engine counted it. None when it did not say.
      type: int
    cached_tokens:
      description: How much of it was in the prefix cache, as the engine counted it. None when it did not say.
      type: int
recorded:
  description: Canary cases whose answers became the profile's baseline.
  returned: always
  type: list
  elements: str
actions:
  description: What would be done, in order. Empty outside check mode.
  returned: always
  type: list
  elements: str
not_looked_at:
  description:
    - Check mode only. What the prediction took to be there, because the play would install it first (C(stack),
      C(weights)), so that its guards could not look at it.
  returned: always
  type: list
  elements: str
failure:
  description: The phase that failed first, with its evidence. None when nothing failed.
  returned: always
  type: dict
  contains:
    phase:
      description: The phase.
      type: str
    direction:
      description: The direction in which it was run.
      type: str
    message:
      description: What was wrong.
      type: str
    expected:
      description: The expected side, where there are two.
      type: str
    got:
      description: The other side.
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
quarantine:
  description:
    - Why the host takes no other profile, or none. A switch is refused until the next reboot, or until
      C(b70ctl clear-quarantine).
  returned: always
  type: dict
  contains:
    slot:
      description: The slot whose engine lost a card.
      type: str
    since:
      description: Since when, in UTC.
      type: str
    boot_id:
      description: The boot which it lasts for.
      type: str
    symptom:
      description: Id of the symptom in the engine's log.
      type: str
      sample: device_lost
    line:
      description: The log line.
      type: str
    switch_id:
      description: The run that found it.
      type: str
    profile:
      description: The profile whose engine wrote the line.
      type: str
    evidence:
      description: Directory on the host with the engine's log, the kernel's log and the failure.
      type: str
failures:
  description: What failed after that, on the way back or while stopping, in the same form.
  returned: always
  type: list
  elements: dict
summary:
  description: What is served, where, how long each phase took, and what failed with its evidence, as lines for people.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _paths, _switch_job
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_switch

ARGUMENTS = {
    "profile": {"type": "str"},
    "initial_profile": {"type": "str"},
    "state": {"type": "str", "choices": ["active", "stopped"], "default": "active"},
    "slot": {"type": "str", "default": "main"},
    "gate": {"type": "str", "choices": ["verified", "healthy", "none"], "default": "verified"},
    "on_failure": {"type": "str", "choices": ["rollback", "stop", "leave"], "default": "rollback"},
    "drain_timeout": {"type": "float", "default": 60.0},
    "health_timeout": {"type": "float"},
    "lock_timeout": {"type": "float", "default": 0.0},
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
            "user": {"type": "str", "default": "b70"},
            "timeout": {"type": "int", "default": 300},
        },
    },
    "public_url": {"type": "str", "default": ""},
    "step": {"type": "str", "choices": ["run", "start", "collect"], "default": "run"},
    "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
    "run_dir": {"type": "path", "default": _paths.RUN_DIR},
    "state_dir": {"type": "path", "default": _paths.STATE_DIR},
    "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
    "frontdoor_url": {"type": "str", "default": "http://127.0.0.1:8000"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_if=[("state", "active", ["profile", "initial_profile"], True)],
        supports_check_mode=True,
    )
    step = module.params.pop("step")
    try:
        if step == "start":
            _switch_job.job_of(module.params).start(module.params, _switch_job.own_archive())
            module.exit_json(changed=False)
        if step == "collect":
            result = _switch_job.job_of(module.params).collect()
        else:
            result = run_switch(module.params, check_mode=module.check_mode)
    except _switch_job.JobError as error:
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
