#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_role_arguments
short_description: Refuse invalid role variables that Ansible's own check accepts
version_added: 0.2.0
description:
  - Ansible's check of a role's arguments accepts any text that it could convert to a mapping (C(a=1), JSON) or a list
    (C(a,b)), and leaves the text in the variable. A value from C(-e NAME=VALUE) on a command line is such a text.
  - Fails with one sentence for each variable that does not match the role's C(meta/argument_specs.yml). No sentence
    contains a value.
  - Judges all hosts of a batch at once, so that an error is reported once. It cannot be used with the strategy C(free).
  - Runs on the controller and does not connect to a host.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
options:
  role_path:
    description: The folder of the role, C(role_path).
    type: path
    required: true
  words:
    description: Lists that may be given as comma-separated words, because only modules read them.
    type: list
    elements: str
    default: []
  mappings:
    description: Mappings that the specification declares as C(raw), because their default is a template.
    type: list
    elements: str
    default: []
  refuse_unknown:
    description: Refuse also variables with the role's prefix that are not in its specification.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Refuse variables of the wrong shape
  arcpro.b70.b70_role_arguments:
    role_path: "{{ role_path }}"
"""

RETURN = r"""
msg:
  description: The errors, one sentence per variable. Empty if there are none.
  returned: always
  type: str
"""
