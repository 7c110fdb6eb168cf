# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person reads at the end of a play: what is served, where, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def switch_report(result: Mapping[str, Any], host: str, url: str) -> list[str]:
    """Lines about one result of b70_model_slot.

    `result` is the module's return value, `host` the inventory name, `url` the frontdoor's base URL (`http://h:8000/v1`).
    """
    if not isinstance(result, Mapping) or "slot" not in result:
        raise AnsibleFilterError("switch_report needs the result of b70_model_slot (a mapping with 'slot')")
    actions = result.get("actions") or []
    if actions:
        return [f"{host} would: {action}" for action in actions]
    lines = [_headline(result, host)]
    if result.get("profile"):
        lines.append(f"frontdoor: {url}")
    phases = result.get("phases") or []
    if phases:
        lines.append(_timing(phases))
    return lines


def _headline(result: Mapping[str, Any], host: str) -> str:
    profile = result.get("profile")
    if not profile:
        return f"{host} serves nothing: slot {result['slot']} is stopped"
    before = result.get("previous_profile")
    came = f", before: {before}" if before and before != profile else ""
    how = "unchanged" if not result.get("changed") else "now served"
    passed = sum(1 for case in result.get("canary") or [] if case.get("passed"))
    proof = "verified" if result.get("verified") else "NOT verified"
    if passed:
        proof += f" by {passed} canary answers"
    served = result.get("served_model") or profile
    return f"{host} serves {profile} (model id {served}; {how}{came}; {proof})"


def _timing(phases: Sequence[Mapping[str, Any]]) -> str:
    total = sum(float(phase["seconds"]) for phase in phases)
    # A phase under 50 ms would read "0.0 s": it says nothing about where the time went.
    shown = [f"{phase['name']} {float(phase['seconds']):.1f} s" for phase in phases if float(phase["seconds"]) >= 0.05]
    return f"{total:.1f} s in all" + (f": {', '.join(shown)}" if shown else "")


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Any]:
        return {"switch_report": switch_report}
