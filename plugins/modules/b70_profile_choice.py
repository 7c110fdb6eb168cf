#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_profile_choice
short_description: Decide which profile a host serves and which stacks it needs for that
version_added: 0.1.0
description:
  - Decides on the controller, from what M(arcpro.b70.b70_host_info) read and from the catalogue. It reaches no host.
  - What the slot serves, or served last, stays unless another profile is requested. An empty slot gets O(initial), else
    what the catalogue recommends for the cards that were found.
  - Fails, before anything is changed, where the host cannot serve what it is to take, with the reason and the nearest
    profile that it can serve.
author:
  - arcpro.b70 contributors (@arcpro-b70)
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.info_module
options:
  host:
    description: What M(arcpro.b70.b70_host_info) returned, with its O(arcpro.b70.b70_host_info#module:slot).
    type: dict
    required: true
  catalogue:
    description: All profiles, from the lookup P(arcpro.b70.catalogue#lookup).
    type: dict
    required: true
  stacks:
    description: All stack manifests, from the same lookup.
    type: dict
    required: true
  requested:
    description: The profile that was asked for.
    type: str
    default: ""
  initial:
    description: The profile for an empty slot.
    type: str
    default: ""
  refused_statuses:
    description: Statuses of profiles that no host takes.
    type: list
    elements: str
    default: [rejected, blocked]
  stack_root:
    description: Where stacks are. It is among the paths that were looked at.
    type: path
    default: /opt/b70/stacks
  models_dir:
    description: Where weights are.
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
    catalogue: "{{ lookup('arcpro.b70.catalogue') }}"
    stacks: "{{ lookup('arcpro.b70.catalogue', kind='stacks') }}"
  register: choice

- name: Say what it is
  ansible.builtin.debug:
    msg: "{{ choice.profile }}: {{ choice.reason }}"
"""

RETURN = r"""
profile:
  description: The profile, or empty where nothing is chosen.
  returned: always
  type: str
reason:
  description: Why this one, or why none.
  returned: always
  type: str
stacks:
  description: Names of the stacks that are to be on the host - the profile's, and those of what runs or boots now.
  returned: always
  type: list
  elements: str
compiles:
  description: Whether one of them is built from sources.
  returned: always
  type: bool
cards:
  description: How many cards were found.
  returned: always
  type: int
notes:
  description: What else is to be known, such as a stack that is left as it is.
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
