#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_rollout
short_description: Decide the steps of a rollout
version_added: 0.2.0
description:
  - Makes the plan of a rollout from the predictions of all hosts, judges each wave from the results of its hosts, and
    says what follows. The playbook C(arcpro.b70.rollout) carries it out.
  - Hosts with the same fingerprint must answer the canary alike. The answer that most hosts gave is trusted, and other
    hosts count as failed. On a tie nobody is trusted, and the rollout stops.
  - Keeps a record of the rollout, also as Markdown and as a page. A rollout that was stopped or killed is resumed from
    its record.
  - Runs on the controller and does not connect to a host. Use one task for the whole play (C(run_once)).
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details:
      - V(step=plan) prints the plan. No host is returned, so nothing follows.
  idempotent:
    support: none
    details:
      - The record contains times.
options:
  step:
    description:
      - V(plan) fails if a host would refuse the switch, else begins or resumes a rollout. Hosts of a resumed rollout
        that are not in the play stay in its record. It is not finished before they serve the profile.
      - V(look) reads what the hosts serve now, before a wave. A host that no longer serves the profile is a failed one.
      - V(judge) reads the results of the first open wave.
      - V(settle) reads whether the hosts that V(plan) or V(judge) named were put into quarantine. The rollout stops if
        one was not.
      - V(gate) reads the result of M(arcpro.b70.b70_benchmark) of the host that V(judge) named for it.
      - V(back) reads the results of the hosts that were taken back.
      - V(report) prints all results, with what each host serves now.
      - V(recap) has no result but for the host of the task. It fails, or is unreachable, as the table says, so the task
        is not one for C(run_once). If the rollout is not finished for another reason, the first host fails.
    type: str
    choices: [plan, look, judge, settle, gate, back, report, recap]
    required: true
  results:
    description:
      - Name of the variable in which each host registered its result of M(arcpro.b70.b70_model_slot).
      - With V(step=gate), that of M(arcpro.b70.b70_benchmark).
    type: str
  record:
    description: The record, as returned by V(step=plan). Required for the other steps.
    type: path
  profile:
    description: The profile that all hosts are to serve.
    type: str
  waves:
    description: The sizes of the waves, as numbers or percentages of all hosts.
    type: str
    default: 1,25%,100%
  canary:
    description: The host that is switched first. Empty takes the first host.
    type: str
    default: ""
  max_fail:
    description: How many hosts may fail, as a number or a percentage of all hosts.
    type: str
    default: "0"
  on_failure:
    description: What a stop does to the hosts that serve the new profile, V(stop), V(rollback_wave) or V(rollback_all).
    type: str
    default: stop
  gate:
    description:
      - What must hold of a wave before the next one, V(verified) or V(performance). With V(performance), the first host
        that the wave switches has to be measured before anything else follows.
    type: str
    default: verified
  gate_without_record:
    description: What the plan does if the figures of the canary host could not be compared. V(hold) refuses.
    type: str
    choices: [hold, pass]
    default: hold
  gate_timeout:
    description: How many seconds a host is measured at most, to be shown in the plan.
    type: int
    default: 1800
  foreseen:
    description:
      - Name of the variable in which the canary host registered its result of M(arcpro.b70.b70_benchmark) with
        C(state=foreseen).
    type: str
    default: ""
  models:
    description: The names under which the profile will be served.
    type: list
    elements: str
    default: []
  replace:
    description:
      - Models that may lose their hosts. V(step=plan) fails if the rollout leaves fewer hosts than O(min_ready) to a
        model that is not named here.
    type: list
    elements: str
    default: []
  min_ready:
    description: How many hosts stay in service, as a number or a share such as V(50%), or such a value by model.
    type: raw
    default: 0
  refused:
    description: Name of the variable in which a host has the reason why it was not drained and so not switched.
    type: str
    default: __load_balancer_refusal
  restored:
    description:
      - With V(step=settle), the name of the variable in which each host of the batch has the results of
        M(arcpro.b70.b70_load_balancer_member) after it was restored. A host that gets no requests is a failed one.
    type: str
    default: ""
  looked:
    description:
      - Name of the variable in which each host registered a loop of M(arcpro.b70.b70_model_slot_info) over names of
        hosts, for V(step=plan), V(step=look) and V(step=report).
    type: str
    default: __slot_looked
  quarantined:
    description: With V(step=settle), the results of M(arcpro.b70.b70_quarantine) of a loop over RV(quarantine).
    type: list
    elements: dict
    default: []
  measure:
    description: With V(step=settle), the host that V(step=judge) named to be measured.
    type: str
    default: ""
  dir:
    description: A folder on the controller for the records.
    type: path
seealso:
  - module: arcpro.b70.b70_model_slot
  - module: arcpro.b70.b70_quarantine
"""

EXAMPLES = r"""
- name: Make the plan
  arcpro.b70.b70_rollout:
    step: plan
    results: predicted
    profile: qwen36-int4-c8
    dir: rollouts
  register: planned
  run_once: true
"""

RETURN = r"""
id:
  description: The id of the rollout.
  returned: with O(step=plan)
  type: str
  sample: 20260607T090844Z-tiny-b
profile:
  description: The profile of the rollout.
  returned: with O(step=plan)
  type: str
record:
  description: Path of the record.
  returned: with O(step=plan)
  type: str
members:
  description: All hosts of the rollout.
  returned: with O(step=plan)
  type: list
  elements: str
at_rest:
  description: The hosts that are in maintenance, and are left alone.
  returned: with O(step=look)
  type: list
  elements: str
hosts:
  description: The hosts to switch, in order.
  returned: with O(step=plan)
  type: list
  elements: str
sizes:
  description: The sizes of their waves.
  returned: with O(step=plan)
  type: list
  elements: int
next:
  description: The hosts of the next wave, as text.
  returned: with O(step=plan), O(step=look), O(step=judge), O(step=settle) and O(step=gate)
  type: str
measure:
  description: The host to be measured before anything else follows, or an empty text.
  returned: with O(step=plan), O(step=look), O(step=judge), O(step=settle) and O(step=gate)
  type: str
ended:
  description: Whether no wave follows.
  returned: with O(step=plan), O(step=look), O(step=judge), O(step=settle) and O(step=gate)
  type: bool
back:
  description: The hosts to take back, each with the profile that it served before, or an empty text.
  returned: with O(step=plan), O(step=look), O(step=judge), O(step=settle) and O(step=gate)
  type: dict
quarantine:
  description:
    - The hosts to put into quarantine now, each with the C(reason) and the C(layout) that
      M(arcpro.b70.b70_model_slot) returned for the host. These are options of M(arcpro.b70.b70_quarantine).
  returned: with O(step=plan), O(step=look), O(step=judge), O(step=settle) and O(step=gate)
  type: dict
rollout:
  description: The record.
  returned: with O(step=report)
  type: dict
"""
