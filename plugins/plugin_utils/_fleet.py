# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the hosts of a fleet serve when they are looked at. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """A host at the moment of a look.

    ready: clients are let in to a verified engine. why: why it is not ready. maintenance: why a person has taken it out
    of the fleet.
    """

    host: str
    reached: bool = False
    profile: str | None = None
    model: str = ""
    ready: bool = False
    why: str = ""
    maintenance: str = ""

    @property
    def now(self) -> str:
        """Return it for a cell of a table."""
        if not self.reached:
            return "off"
        closed = "" if self.ready or not self.profile else ", closed"
        return f"{self.profile or 'nothing'}{closed}{', maintenance' if self.maintenance else ''}"


def seen_of(host: str, info: Mapping[str, Any] | None) -> Seen:
    """Read what b70_model_slot_info returned for a host."""
    if info is None or info.get("unreachable"):
        why = str((info or {}).get("msg") or "the host did not answer")
        return Seen(host, why=f"it is off or cannot be reached: {' '.join(why.split())}")
    if info.get("failed") or "slot" not in info:
        return Seen(host, reached=True, why=f"its slot cannot be read: {info.get('msg') or 'no answer'}")
    ready = bool(info.get("open") and info.get("verified"))
    held = info.get("quarantine")
    why = ""
    if held:
        why = f"in quarantine since {held.get('since')}: {held.get('reason') or held.get('symptom')}"
    elif not ready:
        why = str(info.get("reason") or info.get("phase") or "closed")
    rests = info.get("maintenance")
    maintenance = f"in maintenance since {rests['since']} ({rests['who']}): {rests['reason']}" if rests else ""
    model = str(info.get("served_model") or "")
    return Seen(host, True, info.get("profile"), model, ready and not held, why, maintenance)


def seen_by(results: Iterable[Mapping[str, Any]]) -> dict[str, Seen]:
    """Return what was seen of each host. results: of the hosts that looked, each with the loop over its share."""
    looks = (one for result in results for one in result.get("results") or ())
    return {str(one["item"]): seen_of(str(one["item"]), one) for one in looks if "item" in one}
