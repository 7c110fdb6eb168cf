#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_pin
short_description: Record what the first host saw of upstream
version_added: 0.2.0
description:
  - Writes the value of the first host to the file of pins, and fails for a host that saw another one.
  - Runs on the controller and does not connect to a host.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
options:
  file:
    description: The file of pins on the controller.
    type: path
    required: true
  section:
    description: The kind of pin.
    type: str
    required: true
    choices: [firmware, images, weights, wheels]
  name:
    description: What is pinned.
    type: str
    required: true
  value:
    description: The digest or revision that the host saw.
    type: str
    required: true
  origin:
    description: The address where the host saw it.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Pin the firmware
  arcpro.b70.b70_pin:
    file: "{{ inventory_dir }}/b70-pins.yml"
    section: firmware
    name: xe/bmg_guc_70.bin 70.65
    value: "sha256:{{ firmware.stat.checksum }}"
    origin: https://firmware.example.com/bmg_guc_70.bin
"""

RETURN = r"""
msg:
  description: What is pinned, or how the value differs from the pinned one.
  returned: always
  type: str
"""
