# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The slot and the places of its files."""

    DOCUMENTATION = r"""
options:
  slot:
    description: The name of the slot.
    type: str
    default: main
  config_dir:
    description: The directory of the rendered profiles.
    type: path
    default: /etc/b70-vllm-slot
  run_dir:
    description: The directory of the state files.
    type: path
    default: /run/b70
  state_dir:
    description: The directory of journal, evidence, quarantine and of the copy of the last verified profile.
    type: path
    default: /var/lib/b70
  unit_dir:
    description: The directory of the slot's units.
    type: path
    default: /etc/systemd/system
  frontdoor_url:
    description: The base URL at which the host reaches its own frontdoor.
    type: str
    default: http://127.0.0.1:8000
"""

    JOURNAL = r"""
options:
  requested_by:
    description: Who requests it, for journal and lock. The default is the user on the host.
    type: str
    default: ""
"""
