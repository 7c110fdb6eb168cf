#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_doctor
short_description: Check a host and explain its faults
version_added: 0.2.0
description:
  - Runs some forty checks on a host - the machine, cards, driver, stack and the served model.
  - Every finding has a stable id, a level, its evidence, its meaning and a fix.
  - Changes nothing and does not fail because of findings. The role P(arcpro.b70.doctor#role) turns findings into a
    failure.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_slot
  - arcpro.b70.doctor
  - arcpro.b70.slot
options:
  only:
    description: Ids or groups of the checks to run. Empty runs all.
    type: list
    elements: str
    default: []
  skip:
    description: Ids or groups of the checks to skip.
    type: list
    elements: str
    default: []
  deep:
    description: Read every file of stacks and weights instead of comparing sizes. This takes minutes.
    type: bool
    default: false
  name:
    description: The name of the host, for the summary.
    type: str
    default: host
  fail_on:
    description: The level of the findings that RV(stops) names. V(WARN) includes V(FAIL).
    type: str
    choices: [FAIL, WARN, never]
    default: FAIL
seealso:
  - module: arcpro.b70.b70_report
"""

EXAMPLES = r"""
- name: Ask everything
  arcpro.b70.b70_doctor:
    name: "{{ inventory_hostname }}"
  register: doctor

- name: Print the findings
  ansible.builtin.debug:
    msg: "{{ doctor.summary | join('\n') }}"

- name: Ask about the cards only, of which there should be four
  arcpro.b70.b70_doctor:
    only: [cards, kernel-log]
    cards: 4
"""

RETURN = r"""
findings:
  description: One finding per check, from the lowest layer to the highest.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Stable name of the check.
      type: str
      sample: card-power
    group:
      description: Subject of the check.
      type: str
      choices: [host, cards, runtime, stack, product]
    level:
      description: V(PASS) is good, V(WARN) works but needs attention, V(FAIL) does not work, V(SKIP) was not checked.
      type: str
      choices: [PASS, WARN, FAIL, SKIP]
    summary:
      description: The finding in one sentence.
      type: str
    evidence:
      description: The lines that prove it.
      type: list
      elements: str
    meaning:
      description: What it means. Empty if nothing is wrong.
      type: str
    fix:
      description: What to do. Empty if nothing is wrong.
      type: str
    source:
      description: The source, if somebody else found this. Empty if nothing is wrong.
      type: str
      sample: https://github.com/intel/compute-runtime/issues/948
counts:
  description: The number of findings of each level.
  returned: always
  type: dict
  sample: {PASS: 14, WARN: 1, FAIL: 0, SKIP: 16}
worst:
  description: The worst level found.
  returned: always
  type: str
seconds:
  description: The duration in seconds.
  returned: always
  type: float
stops:
  description: Ids of the findings at the level of O(fail_on).
  returned: always
  type: list
  elements: str
summary:
  description: The findings as readable lines of at most 110 characters.
  returned: always
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import examine, host, options, registry, show


def main() -> None:
    module = AnsibleModule(argument_spec=options.DOCTOR, supports_check_mode=True)
    started = time.monotonic()
    wanted = module.params
    try:
        checks = examine.chosen(registry.CHECKS, wanted["only"], wanted["skip"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    site = host.survey(wanted, wanted["manifests"])
    findings = examine.examine(site, host.DoctorHost(site), checks, wanted["limit"])
    seconds = round(time.monotonic() - started, 1)
    module.exit_json(
        changed=False,
        findings=findings,
        counts=examine.counts(findings),
        worst=examine.worst(findings),
        seconds=seconds,
        stops=show.stopped_by(findings, wanted["fail_on"]),
        summary=show.table(findings, wanted["name"], seconds),
    )


if __name__ == "__main__":
    main()
