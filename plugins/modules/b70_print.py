#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_print
short_description: Print lines as they are
version_added: 0.2.0
description:
  - Prints a report or a table to the screen. M(ansible.builtin.debug) shows each line in quotes, or all of them as one
    with C(\n), and wraps long ones, depending on the settings of the callback.
  - Begins with the name of the host if the play has several. Runs on the controller and does not connect to a host.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
options:
  lines:
    description: The lines.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Print what the host serves
  arcpro.b70.b70_print:
    lines: "{{ slot_now.summary }}"
"""

RETURN = r"""
lines:
  description: The same lines.
  returned: always
  type: list
  elements: str
"""
