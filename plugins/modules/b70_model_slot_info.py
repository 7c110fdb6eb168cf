#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_model_slot_info
short_description: Report what a slot serves
version_added: 0.2.0
description:
  - Returns the served profile of a slot, whether and by which switch its engine process was verified, and the profiles
    that are rendered on the host.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.slot
options:
  public_url:
    description: The URL at which clients reach the frontdoor, for RV(summary).
    type: str
    default: ""
seealso:
  - module: arcpro.b70.b70_model_slot
"""

EXAMPLES = r"""
- name: Read the slot
  arcpro.b70.b70_model_slot_info:
  register: slot

- name: Name what is served
  ansible.builtin.debug:
    msg: "{{ slot.profile }} is {{ 'verified' if slot.verified else 'not verified' }}"
"""

RETURN = r"""
slot:
  description: The name of the slot.
  returned: always
  type: str
phase:
  description: The last state that the switch set for the frontdoor.
  returned: always
  type: str
  choices: [stopped, switching, verifying, serving, failed]
open:
  description: Whether the frontdoor accepts generations for the running engine.
  returned: always
  type: bool
reason:
  description: Why it is not open, or the event before that.
  returned: always
  type: str
profile:
  description: The profile whose unit runs, or none.
  returned: always
  type: str
served_model:
  description: The model id that clients use.
  returned: always
  type: str
verified:
  description: Whether the running engine process is the one that was verified.
  returned: always
  type: bool
verified_at:
  description: The time of the verification, in UTC.
  returned: always
  type: str
verified_by:
  description: The canary cases it passed.
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
fingerprint:
  description: Fingerprint of the running engine.
  returned: always
  type: str
promotion:
  description: The last production gate that judged the running profile under this fingerprint on this host, or none.
  returned: always
  type: dict
  contains:
    id:
      description: The id of its record.
      type: str
    ended_at:
      description: When it ended, in UTC.
      type: str
    verdict:
      description: V(passed) or V(failed). If it passed, the status of the profile here is V(production).
      type: str
    summary:
      description: Its figures in one line.
      type: str
drift:
  description: The differences of the running engine and its unit from the current rendering as one text, or none.
  returned: always
  type: str
drift_of:
  description: The same differences one by one. Empty if there are none.
  returned: always
  type: dict
  contains:
    rendering:
      description: The fingerprint that runs and the one that is rendered.
      type: str
    process:
      description: The command line or environment of the running process.
      type: str
    unit_file:
      description: The unit's file, edited by hand or not loaded by systemd.
      type: str
    port:
      description: Other processes that share the engine's port, as far as the caller may see them.
      type: str
stack:
  description: The id of the stack that the profile is rendered with, or none.
  returned: always
  type: str
frontdoor:
  description: The generations of the frontdoor, or none if it does not answer.
  returned: always
  type: dict
  contains:
    active:
      description: The number that run.
      type: int
    queued:
      description: The number that wait for a permit.
      type: int
    max_active:
      description: The number that may run at once.
      type: int
cards:
  description: The cards of the host, in the order in which masks count them.
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: The device file.
      type: str
      sample: /dev/dri/renderD128
    model:
      description: The model. Empty if the kernel does not report the card's PCI id.
      type: str
      sample: Arc Pro B70
    address:
      description: The PCI address. Empty if the kernel does not report it.
      type: str
      sample: "0000:03:00.0"
    used_bytes:
      description: The memory in use. None if the driver does not report it.
      type: int
    total_bytes:
      description: The memory of the card. None if the driver does not report it.
      type: int
    power_cap_w:
      description: The power cap of the card in watts, 0 if it is off. None if the driver does not report it.
      type: float
engine:
  description: The running unit, or none. The first of several that is served.
  returned: always
  type: dict
  contains:
    unit:
      description: Its name.
      type: str
    state:
      description: Its state in systemd.
      type: str
    healthy:
      description: Whether the engine answers GET /health.
      type: bool
    invocation_id:
      description: systemd's id of this process's start.
      type: str
    started_at:
      description: When it was started, in UTC.
      type: str
    restarts:
      description: How often systemd restarted it.
      type: int
replicas:
  description: The engines of a profile that has several, or none.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Its number, from 0.
      type: int
    backend_url:
      description: Where it listens.
      type: str
    cards:
      description: Its cards by their number on the host.
      type: list
      elements: int
    open:
      description: Whether it is given requests.
      type: bool
    verified:
      description: Whether its process passed its canary.
      type: bool
    reason:
      description: Why it is closed. May be empty.
      type: str
    engine:
      description: Its unit, as in RV(engine).
      type: dict
degraded:
  description: Whether the slot serves, but not with all replicas of its profile.
  returned: always
  type: bool
standby:
  description: The engines that sleep while another one serves (slot_standby).
  returned: always
  type: list
  elements: dict
  contains:
    profile:
      description: Name of the profile.
      type: str
    unit:
      description: Unit of the engine.
      type: str
    since:
      description: When it fell asleep, in UTC.
      type: str
    bytes:
      description: Its memory on the host, at least; its weights at level 1, and its part of the KV cache.
      type: int
    level:
      description: V(1) keeps its weights in the host's memory, V(2) reads them again when it wakes.
      type: int
enabled_units:
  description: Units of the slot that start at boot.
  returned: always
  type: list
  elements: str
legacy_units:
  description: Units of an older installation that run or start at boot.
  returned: always
  type: list
  elements: str
profiles:
  description: The profiles rendered on the host.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    status:
      description: Its status.
      type: str
    title:
      description: Its title.
      type: str
    cards:
      description: How many cards its engines use together.
      type: int
    pending:
      description: Whether a new rendering waits for the switch that starts it. If so, status and title are from that
        rendering.
      type: bool
    accepted_rules:
      description: Rules of its stack that it breaks on purpose, as text.
      type: list
      elements: str
    remote:
      description: The base URL of its engine, if that is elsewhere.
      type: str
last_verified:
  description: The profile that a failed switch would restore, or none.
  returned: always
  type: str
wanted:
  description: What the slot is to serve, as a person or a switch that committed has said last; none if nobody has.
  returned: always
  type: dict
  contains:
    profile:
      description: The profile; none for nothing.
      type: str
    gate:
      description: What must hold before it is served.
      type: str
    at:
      description: When it was said, in UTC.
      type: str
    who:
      description: By whom.
      type: str
    why:
      description: Why, if that was told.
      type: str
    left:
      description: Whether an engine was left for a look, so that nothing is done about it.
      type: bool
    text:
      description: The same in words.
      type: str
next:
  description: What the controller of the slot does next.
  returned: always
  type: dict
  contains:
    do:
      description: Its step, V(rest) if it only looks again; empty if it does not run.
      type: str
    why:
      description: Why what is wanted is not served; empty if it is.
      type: str
    at:
      description: When the next try begins, in UTC; none if only an event leads to one.
      type: str
    tries:
      description: How many tries have failed in a row.
      type: int
at_work:
  description: Who holds the slot's lock, since when and for what, or none.
  returned: always
  type: str
  sample: "pid 812 (ann on desk by Ansible) since 2026-06-07T09:08:44Z: tiny-b"
progress:
  description: The phase of the running switch, with the engine's last message, or none.
  returned: always
  type: str
  sample: "health: loading weights 62 %"
works:
  description: The benchmarks, soaks, searches and promotions that run.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: V(benchmark), V(soak), V(context_search) or V(promotion).
      type: str
    unit:
      description: The systemd unit.
      type: str
    profile:
      description: The profile, or none where that cannot be read.
      type: str
    began_at:
      description: When it began, in UTC.
      type: str
    now:
      description: What is done now.
      type: str
  sample:
    - kind: soak
      unit: b70-soak-main.service
      profile: tiny-a
      began_at: "2026-06-07T09:08:44Z"
      now: "cycle 3: load"
interrupted:
  description: The last switch, if it was interrupted and none is running.
  returned: always
  type: dict
maintenance:
  description: Why a person has taken the host out of its fleet, or none.
  returned: always
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
quarantine:
  description:
    - Why the host refuses other profiles, or none. A switch is refused until the next reboot, or until
      C(b70ctl clear-quarantine). A reboot does not end a quarantine with a RV(quarantine.reason).
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
      description: The boot for which it is valid.
      type: str
    symptom:
      description: Id of the symptom in the log of the engine or of the kernel.
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
    reason:
      description: Why a person or a rollout has set it. Empty for a lost card.
      type: str
    who:
      description: Who has set it. Empty for a lost card.
      type: str
switches:
  description: The last switches, oldest first.
  returned: always
  type: list
  elements: dict
summary:
  description: What the slot serves, its problems, and what starts at boot, as readable lines.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_info

ARGUMENTS = {
    **_arguments.SLOT,
    "public_url": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    result = run_info(module.params)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
