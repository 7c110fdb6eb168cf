# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The sources of the catalogue."""

    DOCUMENTATION = r"""
options:
  profile_dirs:
    description: Additional folders with profiles on the controller, as for the lookup P(arcpro.b70.catalogue#lookup).
    type: list
    elements: str
    default: []
  stack_dirs:
    description: Additional folders with stack manifests on the controller.
    type: list
    elements: str
    default: []
  inline_profiles:
    description: Profiles as data, C(name) to profile.
    type: dict
    default: {}
  weights:
    description: What the site says of the weights of profiles, as for the lookup P(arcpro.b70.catalogue#lookup). It
      decides in which directory the model of a profile stands.
    type: dict
    default: {}
"""
