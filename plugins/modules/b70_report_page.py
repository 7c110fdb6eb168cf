#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_report_page
short_description: Write the overview page of a report
version_added: 0.2.0
description:
  - Reads the results of M(arcpro.b70.b70_report) for every host of the play and writes one self-contained page.
  - The page lists a host without a report with the reason.
  - Runs on the controller and does not connect to a host. Use one task for the whole play (C(run_once)).
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  idempotent:
    support: none
    details:
      - The page contains the time of its creation.
options:
  dest:
    description: Path of the page on the controller, an V(.html).
    type: path
    required: true
  reports:
    description: Name of the variable in which the task of M(arcpro.b70.b70_report) registered its result.
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
  description: The path of the page and the hosts without an archive, as readable lines.
  returned: always
  type: list
  elements: str
"""
