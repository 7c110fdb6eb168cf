#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_report_page
short_description: Write the page over all hosts of a report
version_added: 0.1.0
description:
  - Reads what M(arcpro.b70.b70_report) returned for every host of the play and writes one page, complete in itself.
  - A host of which there is no report stands there with the reason.
  - Runs on the controller and reaches no host. One task for the whole play suffices (C(run_once)).
author:
  - arcpro.b70 contributors (@arcpro-b70)
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - The page has the time at which it was written.
options:
  dest:
    description: The page on the controller, an V(.html).
    type: path
    required: true
  reports:
    description: Name of the variable in which the task M(arcpro.b70.b70_report) registered its result.
    type: str
    required: true
seealso:
  - module: arcpro.b70.b70_report
"""

EXAMPLES = r"""
- name: Write the page over all hosts
  arcpro.b70.b70_report_page:
    dest: reports/index.html
    reports: report
  run_once: true
"""

RETURN = r"""
summary:
  description: Where the page is, and of which hosts there is no archive, as lines for people.
  returned: always
  type: list
  elements: str
"""
