# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak of the engine that is served. Its unit only measures, and has no rights beyond those of the engine's user."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .._evidence.job import Commission, RecordedJob, WorkOrder, WorkOutcome, asked_version, commission, engine_of
from .._slot.look.observe import load_standing
from .._slot.words.effects import Effects
from .._slot.words.types import Layout
from .._work.decide import WorkState
from .._work.folder import WorkError
from . import judging, load, watching
from .cycles import CaseAnswer, Soak, nothing_seen
from .judging import SoakPlan

ENGINE = "engine"  # the case that stands for a canary that could not be asked
_MARGIN_S = 4 * 3600  # a soak ends by itself; this stops one that hangs
# Its figures must be those of the engine, not of a client that waits for a processor.
_PROPERTIES = {
    "KillMode": "mixed",
    "CollectMode": "inactive-or-failed",
    "Nice": "0",
    "CPUWeight": "100",
    "SupplementaryGroups": "systemd-journal",
    "CapabilityBoundingSet": "",
    "PrivateDevices": "yes",
    "ProtectHome": "read-only",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
}


def plan_of(params: Mapping[str, Any], concurrency: int) -> SoakPlan:
    """Return the plan that the module's options describe. concurrency: the profile's, for options that name none."""
    values = {key: params[key] for key in SoakPlan.__dataclass_fields__ if key in params}
    values["concurrency"] = values["concurrency"] or concurrency
    for key in ("duration", "interval"):
        try:
            values[f"{key}_s"] = judging.seconds_of(params[key])
        except ValueError as error:
            raise WorkError(f"{key} of the soak: {error}") from error
    least = {"request_timeout_s": 1, "baseline_cycles": 1, "prompt_words": 1, "output_tokens": 1}
    for key, value in values.items():
        if value < least.get(key, 0):
            raise WorkError(f"{key} of the soak is {value:g}: it is at least {least.get(key, 0)}")
    if values["reruns"] + values["stress"] < 1:
        raise WorkError(
            "reruns and stress of the soak are both 0: one of them is at least 1, since only later answers say what a "
            "wrong one is"
        )
    return SoakPlan(**values)


class SoakJob(RecordedJob):
    kind, noun = "soak", "soak"

    def asked(self, fx: Effects, layout: Layout) -> WorkOrder:
        served = watching.served(fx, layout)
        profile = served.profile
        plan = plan_of(self.params, profile.frontdoor.max_active_generations)
        version = asked_version(fx, profile)
        given = {
            "plan": asdict(plan),
            "engine": engine_of(profile.engine.kind, version),
            "invocation_id": served.invocation_id,
            "restarts": served.restarts,
        }
        limit_s = int(plan.duration_s + plan.request_timeout_s + _MARGIN_S)
        return WorkOrder(profile, given, limit_s, _PROPERTIES, served.user)

    def nothing_seen(self) -> dict[str, Any]:
        return nothing_seen()

    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        return f"{given['profile']} since {given['began_at']}: {judging.summary(SoakPlan(**given['plan']), seen)}"

    def finding(self, fx: Effects, layout: Layout, given: Mapping[str, Any], seen: Mapping[str, Any]) -> WorkOutcome:
        plan = SoakPlan(**given["plan"])
        verdict, reasons = judging.judge(plan, seen)
        data = {
            "summary": judging.summary(plan, seen),
            "plan": given["plan"],
            "reference_tok_s": judging.reference(seen["cycles"], plan.baseline_cycles),
            "cycles": seen["cycles"],
            "anomalies": seen["anomalies"],
            "ended": {key: seen["ended"][key] for key in ("how", "why")},
        }
        canary = {"before": seen["first"], "after": seen["last"]}
        return WorkOutcome(verdict, reasons, given["engine"], data, canary)

    def shown(self, found: WorkState) -> dict[str, Any]:
        seen = found.seen or nothing_seen()
        return {"counts": judging.counts(seen["anomalies"]), "cycles": len(seen["cycles"])}


class SoakHost(watching.WatchingHost):
    """A soak's effects on this host; see cycles.SoakEffects."""

    def __init__(self, told: Commission, watched: watching.Served, plan: SoakPlan) -> None:
        super().__init__(told, watched)
        self._plan = plan

    def ask(self, only: Collection[str] = (), repeats: int | None = None) -> Sequence[CaseAnswer]:
        only = () if ENGINE in only else only
        results, problem = watching.ask(self._fx, self._layout, self._watched, only=only, repeats=repeats)
        answers = [CaseAnswer(row.name, row.passed, row.expected, row.got, row.sha256, row.problem) for row in results]
        if problem and all(answer.right for answer in answers):
            answers.append(CaseAnswer(ENGINE, right=False, problem=problem))
        return answers

    def load(self, number: int) -> Mapping[str, Any] | None:
        return load.send(self._fx, self._watched.profile, self._plan, number)


def main(folder: str) -> None:
    """Run the soak that the folder's file describes. Called in the unit."""
    told = commission(folder)
    given, plan = told.given, SoakPlan(**told.given["plan"])
    profile = load_standing(told.fx, told.layout, given["profile"])
    watched = watching.Served(profile, given["invocation_id"], given["restarts"], "")
    Soak(SoakHost(told, watched, plan), plan).carry_out()
