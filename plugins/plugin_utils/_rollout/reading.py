# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn what b70_model_slot returns for a host into what the rollout knows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import compared

from .begin import HostCheck
from .model import CanaryAnswer, HostResult, HostVerdict

NO_ANSWER = "it left no result; its own error is above"
_ENDS = {"rolled_back": HostVerdict.ROLLED_BACK, "untouched": HostVerdict.UNTOUCHED}
Returned = Mapping[str, Any] | None


def look_of(returned: Returned) -> HostCheck:
    """Read the result of the check, which is the module's in check mode."""
    problem = _unusable(returned)
    if returned is None or problem:
        return HostCheck(problem=problem)
    serves = _text(returned.get("previous_profile")) or None
    if returned.get("failed") or returned.get("outcome") not in ("unchanged", "committed"):
        return HostCheck(HostResult(HostVerdict.WAITING, serves), str(returned.get("msg") or NO_ANSWER))
    if returned["outcome"] == "unchanged" and returned.get("verified"):
        return HostCheck(_served(HostVerdict.ALREADY, returned))
    return HostCheck(HostResult(HostVerdict.WAITING, serves))


def result_of(returned: Returned) -> HostResult:
    """Read the result of the switch to the rollout's profile."""
    problem = NO_ANSWER if returned and returned.get("actions") else _unusable(returned)  # actions: only of the check
    if returned is None or problem:
        lost = returned is not None and returned.get("unreachable")
        return HostResult(HostVerdict.UNREACHABLE if lost else HostVerdict.FAILED, why=problem)
    outcome = str(returned.get("outcome"))
    if outcome in ("unchanged", "committed") and returned.get("verified"):
        return _served(HostVerdict.VERIFIED, returned)
    verdict = _ENDS.get(outcome, HostVerdict.FAILED)
    serves = _text(returned.get("profile")) or None
    return HostResult(verdict, serves, phases=_phases(returned), why=str(returned.get("msg") or NO_ANSWER))


def return_of(returned: Returned, before: str | None) -> HostResult:
    """Read the result of the switch back to what the host served before the rollout."""
    problem = _unusable(returned)
    if returned is None or problem:
        return HostResult(HostVerdict.STRANDED, why=problem)
    serves = _text(returned.get("profile")) or None
    if returned.get("outcome") in ("unchanged", "committed") and serves == before:
        return HostResult(HostVerdict.RETURNED, serves, phases=_phases(returned))
    return HostResult(HostVerdict.STRANDED, serves, phases=_phases(returned), why=str(returned.get("msg") or NO_ANSWER))


def measured_of(verified: HostResult, returned: Returned) -> HostResult:
    """Read the benchmark of a verified host. Without a good record it holds the rollout: nobody knows the figures."""
    problem = _unusable(returned)
    record = (returned or {}).get("record")
    if returned is None or record is None:
        why = problem or str((returned or {}).get("msg") or NO_ANSWER)
        return replace(verified, verdict=HostVerdict.HELD, why=why)
    figures = (f"gate: {record['id']}{_limits(record['data'])}", *compared(record["data"]))
    if record["verdict"] == "passed":
        return replace(verified, verdict=HostVerdict.VERIFIED, figures=figures)
    return replace(verified, verdict=HostVerdict.HELD, why="; ".join(record["reasons"]), figures=figures)


def _limits(data: Mapping[str, Any]) -> str:
    """Return the limits that the figures were held to."""
    comparison, band = data["comparison"], data["comparison"]["band"]
    baseline = comparison["with"]
    if not baseline or not comparison["rows"]:
        return ": compared with nothing"
    return (
        f", compared with {baseline['id']} of {baseline['host']}: at least {1 - band['rate']:g} of the throughput, "
        f"at most {1 + band['ttft']:g} of the time to the first token"
    )


def exposed(quarantined: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Read the results of the quarantines that were to be set; return the hosts without one, with the reason."""
    return {
        str(one["item"]["key"]): str(one.get("msg") or "no answer").strip()
        for one in quarantined
        if "quarantine" not in one
    }


def cut_off(restored: Sequence[Mapping[str, Any]]) -> str:
    """Read what the load balancers said of a host that was restored; return why clients do not reach it, or nothing."""
    missed = [one for one in restored if one.get("answered") and one.get("known") and not one.get("in_service")]
    return "; ".join(f"{one['item']}: {one['summary']}" for one in missed)


def layout_of(returned: Returned) -> dict[str, str]:
    """Return the slot of the host and where its files are, as the switch was told."""
    return {} if returned is None else dict(returned.get("layout") or {})


def _unusable(returned: Returned) -> str:
    if returned is None:
        return NO_ANSWER
    if returned.get("skipped"):
        return NO_ANSWER
    if returned.get("unreachable"):
        return f"unreachable: {_text(returned.get('msg')).strip() or 'no connection'}"
    return ""


def _served(verdict: HostVerdict, returned: Mapping[str, Any]) -> HostResult:
    answers = tuple(
        CanaryAnswer(case["name"], case.get("request") or "", case.get("sha256") or "", bool(case.get("steady")))
        for case in returned.get("verified_by") or ()
    )
    return HostResult(
        verdict,
        _text(returned.get("profile")) or None,
        _text(returned.get("fingerprint")),
        answers,
        _phases(returned),
    )


def _phases(returned: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    way = {"forward": "", "back": "back ", "halt": "stop "}
    return tuple(
        (f"{way.get(str(phase.get('direction')), '')}{phase['name']}", float(phase["seconds"]))
        for phase in returned.get("phases") or ()
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
