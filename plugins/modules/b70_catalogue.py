#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_catalogue
short_description: Check the catalogue of profiles and the names of profiles
version_added: 0.2.0
description:
  - Reads the catalogue like the lookup P(arcpro.b70.catalogue#lookup), and fails with all its faults at once, or for a
    name that is not in it. Use the lookup to get the profiles themselves.
  - Fails also for sources and commits of weights in O(weights) that no role could use.
  - Runs on the controller and does not connect to a host.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
  - arcpro.b70.catalogue
options:
  names:
    description: Profiles that must be in the catalogue. Without any, only the catalogue itself is checked.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Check the catalogue and the name of a profile
  arcpro.b70.b70_catalogue:
    names: [minimax-m27-c1]
    profile_dirs: "{{ b70_profile_dirs | default([]) }}"
"""

RETURN = r"""
profiles:
  description: The named profiles, or all.
  returned: success
  type: list
  elements: str
"""
