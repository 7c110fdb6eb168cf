#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_fleet_status
short_description: Compare what the hosts of a play serve
version_added: 0.2.0
description:
  - Reads the results of M(arcpro.b70.b70_model_slot_info) for every host of the play and returns one table of all
    hosts.
  - The table marks the profile and the fingerprint of a host that differs from most hosts. A host that could not be
    read stays in the table.
  - Runs on the controller and does not connect to a host. Use one task for the whole play (C(run_once)).
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
options:
  slots:
    description: Name of the variable in which the task of M(arcpro.b70.b70_model_slot_info) registered its result.
    type: str
    required: true
  balancers:
    description:
      - Name of the variable in which each host registered a loop of M(arcpro.b70.b70_load_balancer_member) over the
        load balancers, in check mode. Without it, the table has no column for them.
    type: str
    default: ""
  fail_if_missing:
    description:
      - Fail if a host that should serve does not, or if a load balancer sends it nothing. Hosts in maintenance, hosts
        whose slot a person has stopped, and hosts that could not be read don't count. With the callback
        P(arcpro.b70.exit_code#callback), the run ends with 3.
    type: bool
    default: false
  width:
    description: Width of the table in columns, from 100 to 140. The default is that of the terminal.
    type: int
seealso:
  - module: arcpro.b70.b70_model_slot_info
"""

EXAMPLES = r"""
- name: Read the slot
  arcpro.b70.b70_model_slot_info:
  register: slot
  ignore_unreachable: true

- name: Compare the hosts
  arcpro.b70.b70_fleet_status:
    slots: slot
  register: fleet
  run_once: true
"""

RETURN = r"""
fleet:
  description: All hosts, in the order of the play.
  returned: always
  type: dict
  contains:
    hosts:
      description: What each host serves, with the same keys for every host.
      type: list
      elements: dict
      contains:
        host:
          description: The name in the inventory.
          type: str
        problem:
          description: Why the host could not be read. Empty if it was read.
          type: str
        profile:
          description: The profile whose unit runs, or none.
          type: str
        phase:
          description: The state that the frontdoor was told.
          type: str
        open:
          description: Whether the frontdoor accepts generations.
          type: bool
        verified:
          description: Whether the running engine process is the one that was verified.
          type: bool
        reason:
          description: Why it is not open.
          type: str
        fingerprint:
          description: Fingerprint of the running engine.
          type: str
        stack:
          description: The id of the profile's stack.
          type: str
        frontdoor:
          description: Generations that run (C(active)), wait (C(queued)) and may run (C(max_active)), or none.
          type: dict
        last_switch:
          description: The last switch with its time, kind, profiles, outcome and reason, or none.
          type: dict
        quarantine:
          description: Since when the host refuses other profiles, and the symptom, or none.
          type: dict
        maintenance:
          description: Since when, by whom and why a person has taken the host out of its fleet, or none.
          type: dict
        balancer:
          description: What the load balancers do with the host, V(yes) if it gets requests from all of them, or none.
          type: str
        missing:
          description: Why the host does not serve although it should. Empty if it does, or need not.
          type: str
        cards:
          description: The cards with their memory.
          type: list
          elements: dict
        replicas:
          description: Whether each replica is served. Empty for a profile with one engine.
          type: list
          elements: bool
        drift:
          description: The differences of the running engine from its rendering, or none.
          type: str
        at_work:
          description: Who holds the slot's lock, or none.
          type: str
        progress:
          description: The phase of the running switch, or none.
          type: str
        interrupted:
          description: Whether the last switch was interrupted.
          type: bool
        differs:
          description: In which of C(profile), C(fingerprint) and C(stack) the host differs from most hosts.
          type: list
          elements: str
    most:
      description: The most common profile, fingerprint and stack. Among equals, that of the first host.
      type: dict
    counts:
      description: The numbers of hosts, of those that serve a verified model, of those that should and do not, of those
        that were not read, and of those that differ.
      type: dict
not_read:
  description: The hosts that could not be read.
  returned: always
  type: list
  elements: str
summary:
  description: The table, notes on hosts that need attention and the counts, as readable lines.
  returned: always
  type: list
  elements: str
"""
