# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Points in time that can be compared although the date may jump."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf


@dataclass(frozen=True)
class Moment:
    """A point in time: at, the date (ISO 8601, UTC), and mono, monotonic seconds within the boot with this id."""

    at: str
    boot: str = ""
    mono: float | None = None

    def age_s(self, now: Moment) -> float:
        """Return the seconds since then, at least 0; infinity if that is not known. The date decides between boots."""
        if self.boot and self.boot == now.boot and self.mono is not None and now.mono is not None:
            return max(0.0, now.mono - self.mono)
        try:
            return max(0.0, (_date(now.at) - _date(self.at)).total_seconds())
        except (ValueError, TypeError):
            return inf


def _date(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
