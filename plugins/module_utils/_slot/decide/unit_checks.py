# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Complete states and wait states: what a look at a unit or at /health means. Pure.

Each check returns True when the wait is over, False to wait on, and raises SlotFault for anything else at once.
"""

from __future__ import annotations

from ..words.types import Reply, SlotFault, UnitState


def came_up(unit: UnitState, restarts_before: int) -> bool:
    """Tell whether the unit is up after its start.

    Raise SlotFault when it failed, ended, or is on its second attempt.
    """
    check_not_looping(unit, restarts_before)
    if unit.settled:
        return True
    if unit.active in ("activating", "reloading") or unit.job != 0:
        return False
    raise SlotFault(f"{unit.name} ended right after its start", expected="active", got=unit.describe())


def check_not_looping(unit: UnitState, restarts_before: int) -> None:
    if unit.active == "failed":
        raise SlotFault(f"{unit.name} failed", expected="active", got=unit.describe())
    if unit.sub.startswith("auto-restart") or unit.restarts > restarts_before:
        raise SlotFault(
            f"{unit.name} exits and is restarted in a loop",
            expected="one process that stays",
            got=f"{unit.describe()}, {unit.restarts} restarts",
        )


def stayed_up(unit: UnitState, invocation_id: str, restarts_before: int) -> None:
    """Raise SlotFault unless the process that came up is still the same."""
    check_not_looping(unit, restarts_before)
    if not unit.settled:
        raise SlotFault(f"{unit.name} ended while it was waited for", expected="active", got=unit.describe())
    if unit.invocation_id != invocation_id:
        raise SlotFault(
            f"{unit.name} was restarted while it was waited for",
            expected=f"invocation {invocation_id[:8]}",
            got=f"invocation {unit.invocation_id[:8]}",
        )


def healthy(reply: Reply) -> bool:
    """Tell whether the engine is ready.

    An unreachable engine, a slow one and 503 count as loading; other answers raise SlotFault.
    """
    if reply.status == 200:
        return True
    if reply.status in (0, 503):
        return False
    raise SlotFault(
        "the engine answers GET /health with something that is neither ready nor loading",
        expected="200",
        got=f"{reply.status} {reply.text[:200]}".strip(),
    )
