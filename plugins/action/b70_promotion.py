# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_promotion: has the host run the gate, and shows each item once."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._work import RecordedWork


class ActionModule(RecordedWork):
    """A gate belongs to the host; a second run joins it."""

    MODULE = "arcpro.b70.b70_promotion"
    WORK = "the production gate"

    _shown = 0

    def _ask(self, step: str) -> dict[str, Any]:
        found = super()._ask(step)
        if found.get("state") == "running":
            rows = found["rows"]
            for row in rows[self._shown :]:
                self._say(_row(row))
            self._shown = len(rows)
        return found

    def details(self, found: dict[str, Any]) -> list[str]:
        return [_row(row) for row in found["rows"]]


def _row(row: dict[str, Any]) -> str:
    return f"{row['item']:<12}  {row['verdict'].replace('_', ' '):<14}  {row['reason']}"
