#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_site_variables
short_description: Check the variables of all hosts before anything is done
version_added: 0.2.0
description:
  - Compares the variables of the inventory and of the command line with the options of the roles of a play, for all
    hosts of the play at once. Use it with C(run_once), so that an error is reported once.
  - Finds values of the wrong type, values that are not among the choices, text in the place of a mapping or a list, and
    misspelt names. A name counts as misspelt if it begins like the variables of a role and nearly equals one.
  - Names the file and the line of each, except with ansible-core 2.18. Shows no value of an option that may be secret.
  - Runs on the controller and does not connect to a host.
extends_documentation_fragment:
  - arcpro.b70.attributes.info_module
  - arcpro.b70.attributes
options:
  roles:
    description: The roles whose variables are checked, such as C(ansible_play_role_names).
    type: list
    elements: str
    required: true
  commanded:
    description: The values of variables that count on the command line only. An inventory that sets one is an error.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Check the variables of all hosts
  arcpro.b70.b70_site_variables:
    roles: "{{ ansible_play_role_names }}"
  run_once: true
"""

RETURN = r"""
msg:
  description: The errors, one line per variable. Empty if there are none.
  returned: always
  type: str
"""
