# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The production gate as a unit of the host. It runs as root: it restarts the engine once, as a switch does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._evidence.job import RecordedJob, WorkOrder, WorkOutcome, asked_version, commission, engine_of
from .._slot.look.observe import load_standing
from .._slot.words.effects import Effects
from .._slot.words.types import Layout, SlotFault
from .._soak import watching
from .._switch_job import PROPERTIES
from .._work.decide import WorkState, differences
from .._work.folder import WorkError
from . import items
from .gate import PromotionGate, nothing_seen
from .host import GateHost
from .items import PromotionPlan

_LEAST = {"canary_repeats": 1, "prompt_tokens": 1, "output_tokens": 2, "request_timeout_s": 1, "timeout": 60}


class PromotionJob(RecordedJob):
    kind, noun = "promotion", "production gate"

    def plan(self) -> PromotionPlan:
        for key, least in _LEAST.items():
            if self.params[key] < least:
                raise WorkError(f"{key} of the gate is {self.params[key]:g}: it is at least {least}")
        plan = PromotionPlan(**{key: self.params[key] for key in PromotionPlan.__dataclass_fields__ if key != "items"})
        try:
            chosen = items.chosen(PromotionPlan(items=tuple(self.params["items"])))
        except ValueError as error:
            raise WorkError(str(error)) from error
        return PromotionPlan(**{**plan.__dict__, "items": tuple(item.name for item in chosen)})

    def asked(self, fx: Effects, layout: Layout) -> WorkOrder:
        plan, name = self.plan(), self.params["profile"]
        served = watching.served(fx, layout)
        profile = served.profile
        if profile.name != name:
            raise SlotFault(f"slot {layout.slot} serves {profile.name}, not {name}: run switch.yml -e profile={name}")
        version = asked_version(fx, profile)
        given = {
            "plan": plan.as_dict(),
            "examined": profile.examined,
            "engine": engine_of(profile.engine.kind, version),
            "invocation_id": served.invocation_id,
            "restarts": served.restarts,
            **{key: self.params[key] for key in ("requested_by", "records_dir", "tools_python", "user")},
        }
        return WorkOrder(profile, given, int(self.params["timeout"]), PROPERTIES, secret=self.params["api_key"] or "")

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        theirs = {"profile": given["profile"], "items": given["plan"]["items"]}
        return differences(theirs, {"profile": self.params["profile"], "items": list(self.plan().items)})

    def answer(self, *, check_mode: bool) -> dict[str, Any]:
        found = super().answer(check_mode=check_mode)
        if check_mode and self.params["state"] == "promoted" and not found["waits"]:
            found["foreseen"] = self._foreseen()
        return found

    def _foreseen(self) -> list[str]:
        """Return what would run now; raise WorkError if no gate would begin."""
        profile = self.allowed("would begin")[0].profile
        rows = [(one, one.applies(profile)) for one in items.chosen(self.plan())]
        return [
            f"would {f'leave out {one.name}: {why}' if why else f'run {one.name}: {one.shows}'}" for one, why in rows
        ]

    def nothing_seen(self) -> dict[str, Any]:
        return nothing_seen()

    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        return f"{given['profile']} since {given['began_at']}: {items.summary(seen['rows'])}"

    def finding(self, fx: Effects, layout: Layout, given: Mapping[str, Any], seen: Mapping[str, Any]) -> WorkOutcome:
        plan = _plan_of(given)
        verdict, reasons = items.conclude(plan, seen["rows"], seen["ended"])
        ran = {row["item"] for row in seen["rows"]}
        data = {
            "summary": items.summary(seen["rows"]),
            "plan": given["plan"],
            "examined": given.get("examined"),
            "items": seen["rows"],
            "not_run": [name for name in items.NAMES if name not in ran],
            "served": seen["served"],
            "ended": {key: seen["ended"][key] for key in ("how", "why")},
        }
        canary = {"before": seen["before"], "after": seen["after"]}
        return WorkOutcome(verdict, reasons, given["engine"], data, canary)

    def shown(self, found: WorkState) -> dict[str, Any]:
        seen = found.seen or nothing_seen()
        rows = [{key: row[key] for key in ("item", "verdict", "reason")} for row in seen["rows"]]
        whole = bool(seen["ended"]) and seen["ended"]["how"] == "complete"
        return {"rows": rows, "complete": whole and all(row["verdict"] != items.FAILED for row in rows)}


def _plan_of(given: Mapping[str, Any]) -> PromotionPlan:
    return PromotionPlan(**{**given["plan"], "items": tuple(given["plan"]["items"])})


def main(folder: str) -> None:
    """Run the gate that the folder's file describes. Called in the unit."""
    told = commission(folder)
    key = told.work.secret()  # first, so that the key leaves the disk whatever happens
    given, plan = told.given, _plan_of(told.given)
    profile = load_standing(told.fx, told.layout, given["profile"])
    watched = watching.Served(profile, given["invocation_id"], given["restarts"], "")
    PromotionGate(GateHost(told, watched, plan, key), profile, plan).carry_out()
