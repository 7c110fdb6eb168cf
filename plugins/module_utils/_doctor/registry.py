# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks in the order of the table: the lowest layer first."""

from __future__ import annotations

from .checks import cards, links, machine, product, runtime, stack
from .model import Check

CHECKS: tuple[Check, ...] = (
    *machine.CHECKS,
    *cards.CHECKS,
    *links.CHECKS,
    *runtime.CHECKS,
    *stack.CHECKS,
    *product.CHECKS,
)
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(check.group for check in CHECKS))
