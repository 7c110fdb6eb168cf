#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_profile_choice
short_description: Choose the profile of a host and the stacks that it needs
version_added: 0.2.0
description:
  - Runs on the controller and uses the result of M(arcpro.b70.b70_host_info) and the catalogue. It does not connect to
    a host.
  - The slot keeps the profile that it serves, or served last, unless another is requested. An empty slot gets
    O(initial), or else the profile that the catalogue recommends for the host's cards.
  - If the host cannot serve the chosen profile, fails before any change, with the reason and the nearest profile that
    the host can serve.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
  - arcpro.b70.catalogue
options:
  host:
    description: The result of M(arcpro.b70.b70_host_info), run with O(arcpro.b70.b70_host_info#module:slot).
    type: dict
    required: true
  requested:
    description: The requested profile.
    type: str
    default: ""
  initial:
    description: The profile for an empty slot.
    type: str
    default: ""
  slots:
    description: The slots of the host (C(b70_slots)). The choice is about the slot C(main), within its cards.
    type: dict
    default: {}
  nodes:
    description: The hosts that serve profiles of several nodes together (C(b70_nodes)), if this host is one of them.
    type: dict
    default: {}
  slot:
    description: The name of the slot where there is only one.
    type: str
    default: main
  refused_statuses:
    description: Statuses of profiles that no host may serve.
    type: list
    elements: str
    default: [rejected, blocked]
  stack_root:
    description: The directory of the stacks. It must be one of the inspected paths.
    type: path
    default: /opt/b70/stacks
  models_dir:
    description: The directory of the weights.
    type: path
    default: /mnt/fast-ai/llm-models
"""

EXAMPLES = r"""
- name: Look at the host
  arcpro.b70.b70_host_info:
    paths: [/opt/b70/stacks]
    slot: {}
  register: host

- name: Choose the profile
  arcpro.b70.b70_profile_choice:
    host: "{{ host }}"
    profile_dirs: "{{ b70_profile_dirs | default([]) }}"
  register: choice

- name: Say what it is
  ansible.builtin.debug:
    msg: "{{ choice.profile }}: {{ choice.reason }}"
"""

RETURN = r"""
profile:
  description: The profile, or empty if none is chosen.
  returned: always
  type: str
profiles:
  description: The profile, and those that the other slots name.
  returned: always
  type: list
  elements: str
slots:
  description: The slots in the order in which they are served, C(main) last.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The slot.
      type: str
    requested:
      description: The profile that was asked for; may be empty.
      type: str
    initial:
      description: The profile for the slot if it is empty; may be empty.
      type: str
reason:
  description: The reason for this choice.
  returned: always
  type: str
stacks:
  description: Names of the stacks that the host needs - that of the profile, and those of profiles that run or start at
    boot now.
  returned: always
  type: list
  elements: str
compiles:
  description: Whether one of them is built from sources.
  returned: always
  type: bool
cards:
  description: The number of cards.
  returned: always
  type: int
notes:
  description: Other remarks, such as a stack that stays unchanged.
  returned: always
  type: list
  elements: str
problems:
  description: Why the host cannot serve the profile.
  returned: always
  type: list
  elements: str
advice:
  description: The nearest profile that it can serve.
  returned: always
  type: str
"""
