# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of a fleet's hosts, by a look at each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer.dialect import least_hosts

_UNREAD = "its slot cannot be read"


@dataclass(frozen=True)
class HostSeen:
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
        if self.profile is None and self.why.startswith(_UNREAD):
            return "not read"
        closed = "" if self.ready or not self.profile else ", closed"
        return f"{self.profile or 'nothing'}{closed}{', maintenance' if self.maintenance else ''}"


def seen_of(host: str, info: Mapping[str, Any] | None) -> HostSeen:
    """Read what b70_model_slot_info returned for a host."""
    if info is None or info.get("unreachable"):
        why = str((info or {}).get("msg") or "the host did not answer")
        return HostSeen(host, why=f"it is off or cannot be reached: {' '.join(why.split())}")
    if info.get("failed") or "slot" not in info:
        return HostSeen(host, reached=True, why=f"{_UNREAD}: {info.get('msg') or 'no answer'}")
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
    return HostSeen(host, True, info.get("profile"), model, ready and not held, why, maintenance)


def taken_away(
    seen: Mapping[str, HostSeen], to_switch: Collection[str], names: Collection[str], least: Mapping[str, str]
) -> dict[str, str]:
    """Return the models that would lose too many hosts, each with the numbers in words.

    to_switch: hosts that will serve these names. least: how many hosts each model keeps; "" is for all others.
    """
    serving: dict[str, list[str]] = {}
    for one in seen.values():
        if one.ready and one.model and not one.maintenance:
            serving.setdefault(one.model, []).append(one.host)
    found = {}
    for model, hosts in serving.items():
        left = [host for host in hosts if host not in to_switch]
        kept = least_hosts(least.get(model, least[""]), len(hosts))
        if model not in names and len(left) < min(kept, len(hosts)):
            found[model] = f"{len(hosts)} serve {model} now, and {len(left)} would"
    return found


def too_many(seen: Mapping[str, HostSeen], waves: Sequence[Collection[str]], least: str) -> str:
    """Return why a wave would leave too few hosts in service, or nothing. Nobody stands in for a single host."""
    ready = [one.host for one in seen.values() if one.ready and not one.maintenance]
    kept = least_hosts(least, len(ready))
    for wave in waves:
        left = [host for host in ready if host not in wave]
        if len(seen) > 1 and len(left) < min(kept, len(ready)):
            return f"the wave of {', '.join(wave)} leaves {len(left)} of {len(ready)} hosts in service, not {kept}"
    return ""


def seen_by(results: Iterable[Mapping[str, Any]]) -> dict[str, HostSeen]:
    """Return what was seen of each host. results: of the hosts that looked, each with the loop over its share."""
    looks = (one for result in results for one in result.get("results") or ())
    return {str(one["item"]): seen_of(str(one["item"]), one) for one in looks if "item" in one}
