# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words for a person at the end of a play: what is served, where, and where the time went. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face.table import (
    accepted,
    asked,
    elsewhere,
    evidence,
    not_looked_at,
    pending,
    promoted,
    replicas,
    standby,
    works,
)


def switch_report(result: Mapping[str, Any], host: str, url: str, *, active: bool = True) -> list[str]:
    """Return lines about one result of b70_model_slot; none if it failed before it looked at the slot.

    `result` is the module's return value, `host` the inventory name, `url` the frontdoor's base URL
    (`http://h:8000/v1`), empty if it is not known. `active`: whether the slot was to serve something.
    """
    if "slot" not in result:
        return []
    if active and result.get("wanted") is None:
        return [f"{host} serves nothing yet: choose a profile with -e profile=NAME or b70_profile in the inventory"]
    actions = result.get("actions") or []
    unseen = result.get("not_looked_at") or []
    assumed = [f"{host}: {not_looked_at(unseen)}"] if unseen else []
    if actions:
        return [*(f"{host} would: {action}" for action in actions), *assumed]
    failure = result.get("failure")
    lines = [f"{host}: {result.get('msg', 'the switch failed')}", *_evidence(failure)] if failure else []
    lines.append(_headline(result, host))
    if result.get("profile") and url:
        lines.append(f"frontdoor: {url}")
    phases = result.get("phases") or []
    if phases:
        lines.append(_timing(phases))
    return lines + assumed


def _evidence(failure: Mapping[str, Any]) -> list[str]:
    """Return what the failed phase left behind: a known symptom with its advice, its cause, the logs."""
    return [f"{key}: {failure[key]}" for key in ("symptom", "advice") if failure.get(key)] + evidence(failure)


def _headline(result: Mapping[str, Any], host: str) -> str:
    profile = result.get("profile")
    if not profile:
        return f"{host} serves nothing: slot {result['slot']} is stopped"
    before = result.get("previous_profile")
    came = f", before: {before}" if before and before != profile else ""
    how = "unchanged" if not result.get("changed") else "now served"
    # After a way back, the list also has the answers of the engine that failed.
    passed = sum(1 for case in result.get("canary") or [] if case["passed"] and case["profile"] == profile)
    proof = "verified" if result.get("verified") else "NOT verified"
    if passed:
        proof += f" by {passed} canary case{'s' if passed > 1 else ''}"
    served = result.get("served_model") or profile
    return f"{host} serves {profile} (model id {served}; {how}{came}; {proof})"


def _timing(phases: Sequence[Mapping[str, Any]]) -> str:
    total = sum(float(phase["seconds"]) for phase in phases)
    # A phase under 50 ms would read "0.0 s": it says nothing about where the time went.
    shown = [f"{phase['name']} {float(phase['seconds']):.1f} s" for phase in phases if float(phase["seconds"]) >= 0.05]
    return f"{total:.1f} s in all" + (f": {', '.join(shown)}" if shown else "")


def slot_status(info: Mapping[str, Any], host: str, url: str) -> list[str]:
    """Return lines about one result of b70_model_slot_info; the arguments are those of `switch_report`."""
    profile, engine = info.get("profile"), info["engine"]
    if not profile or not engine:
        lines = [f"{host} serves nothing: {info.get('reason') or info.get('phase')}"]
    elif info.get("verified") and info.get("open"):
        proof = f"verified {info.get('verified_at')} by {asked(info.get('verified_by') or [])}"
        lines = [f"{host} serves {profile} (model id {info.get('served_model')}; {proof})"]
        lines += [f"frontdoor: {url}"] if url else []
    else:
        lines = [f"{host} runs {profile}, NOT open to clients: {info.get('reason') or info.get('phase')}"]
    rows = info.get("replicas") or []
    if rows:
        lines += replicas(rows)
    elif engine:
        health = "healthy" if engine.get("healthy") else "NOT answering /health"
        lines.append(f"engine: {engine['unit']} is {engine['state']} since {engine['started_at']}, {health}")
    held = info.get("quarantine")
    if held and held.get("reason"):
        lines.append(
            f"QUARANTINE since {held['since']}, set by {held['who']}: {held['reason']}; the frontdoor stays closed "
            "until `b70ctl clear-quarantine`, then `b70ctl verify` on the host"
        )
    elif held:
        lines.append(
            f"QUARANTINE since {held['since']} ({held['symptom']}): no profile is taken until a reboot, or "
            "`b70ctl clear-quarantine` on the host"
        )
    lines += promoted(info)
    if info.get("drift"):
        lines.append(f"drift: {info['drift']}; switch to {profile} again to use what is rendered")
    lines += [*standby(info), *accepted(info), *elsewhere(info), *pending(info), *works(info)]
    if info.get("interrupted"):
        lines.append("a switch was interrupted; the next switch, also to the same profile, settles it")
    boots = info.get("enabled_units") or []
    lines.append(f"at boot: {', '.join(boots) if boots else 'nothing'}")
    return lines
