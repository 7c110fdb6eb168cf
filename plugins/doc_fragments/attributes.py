# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of this collection's modules.

    A module extends C(arcpro.b70.attributes) and gives the attributes that differ, or extends
    C(arcpro.b70.attributes.info_module) before it if it only reads: the first fragment that has a value gives it.
    """

    DOCUMENTATION = r"""
author:
  - arcpro.b70 contributors (@arcpro-b70)
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), in diff mode.
    support: none
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
      - This assumes that the system controlled or queried by the module has not changed in a relevant way.
    support: full
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: debian, ubuntu
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    details:
      - This module does not modify state.
  diff_mode:
    support: N/A
    details:
      - This module does not modify state.
  idempotent:
    details:
      - This module does not modify state.
"""

    ACTIONGROUP_B70 = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/arcpro.b70.b70) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - arcpro.b70.b70
"""

    ACTIONGROUP_SLOT = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/arcpro.b70.slot) in C(module_defaults) to set once where the slot is.
    support: full
    membership:
      - arcpro.b70.b70
      - arcpro.b70.slot
"""
