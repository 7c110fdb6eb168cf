# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search for a context, whose trials are starts of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .._evidence.job import RecordedJob, WorkOrder, WorkOutcome, commission, engine_of
from .._slot.face import api
from .._slot.host.caller import caller
from .._slot.look.frontdoor import read_state
from .._slot.model.rendering import Rendering
from .._slot.model.state_file import stamp
from .._slot.words.effects import Effects
from .._slot.words.types import End, Layout, Request, SlotFault
from .._switch_job import LIMIT_S, PROPERTIES
from .._work.decide import WorkState, differences
from .._work.folder import WorkError
from .driver import Search, SearchPlan, restore
from .lengths import Trial


class SearchJob(RecordedJob):
    kind, noun = "context_search", "search"

    def asked(self, fx: Effects, layout: Layout) -> WorkOrder:
        plan = self._plan()
        # Refuse here, before anything is begun, what the unit would refuse.
        search = Search(fx, layout, Request(profile=plan.profile), plan, lambda search, now: None)
        search.check()
        given = {"plan": asdict(plan), "requested_by": self.params["requested_by"], "kind": search.profile.engine.kind}
        return WorkOrder(search.profile, given, LIMIT_S, PROPERTIES)

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        return differences(given["plan"], asdict(self._plan()))

    def _plan(self) -> SearchPlan:
        plan = SearchPlan(*(self.params[key] for key in SearchPlan.__dataclass_fields__))
        if plan.sequences < 1 or plan.granularity < 1 or min(plan.least, plan.most, plan.probe_timeout) < 0:
            raise WorkError("sequences and granularity are at least 1, least, most and probe_timeout at least 0")
        return plan

    def nothing_seen(self) -> dict[str, Any]:
        return nothing_seen()

    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        plan, last = given["plan"], next(iter(seen["trials"][-1:]), None)
        said = f"; the last start: {_row(last)}" if last else ""
        return f"{plan['profile']} for {plan['sequences']} sequences, {len(seen['trials'])} starts{said}"

    def finding(self, fx: Effects, layout: Layout, given: Mapping[str, Any], seen: Mapping[str, Any]) -> WorkOutcome:
        notes = []
        if seen["before"] is not None:
            # It was killed. The host settles the switch by itself, and only this is left to do.
            try:
                restore(fx, layout, Rendering(**seen["before"]))
            except (SlotFault, OSError) as error:
                notes = [f"a trial is in place of {given['profile']} until the next switch to it ({error})"]
        why = seen["ended"]["why"]
        if seen["ended"]["how"] == "vanished":
            why = f"{why}; {_served(fx, layout)}"
        plan, found = given["plan"], seen["found"]
        best = "no length" if found is None else f"max_model_len: {found}"
        return WorkOutcome(
            {"found": "passed", "none": "failed", "failed": "failed"}.get(seen["ended"]["how"], "unfinished"),
            [why, *(_theoretical(trial) for trial in seen["trials"] if trial["problem"]), *notes],
            engine_of(given["kind"], seen["version"]),
            {
                "summary": f"{best} for {plan['sequences']} sequences, {len(seen['trials'])} starts",
                "sequences": plan["sequences"],
                "granularity": plan["granularity"],
                "bounds": seen["bounds"],
                "trials": seen["trials"],
                "found": found,
            },
        )

    def shown(self, found: WorkState) -> dict[str, Any]:
        seen = found.seen or nothing_seen()
        return {"trials": seen["trials"], "found": seen["found"]}


def nothing_seen() -> dict[str, Any]:
    """Return what a search has seen before its first start.

    before: the rendering that waits while a trial is in place of the profile.
    """
    return {"trials": [], "now": "", "bounds": None, "found": None, "version": "", "before": None, "ended": None}


def _row(trial: Mapping[str, Any]) -> str:
    if trial["kv_tokens"] is None:
        return f"{trial['length']} tokens do not fit"
    room = f"{trial['length']} tokens, room for {trial['concurrency']:g} sequences"
    return f"{room}, but {trial['problem']}" if trial["problem"] else room


def _theoretical(trial: Mapping[str, Any]) -> str:
    """Return why a length does not pass although the engine reports enough room."""
    return f"{trial['length']} tokens: the engine reports room for {trial['concurrency']:g}, but {trial['problem']}"


def _served(fx: Effects, layout: Layout) -> str:
    """Return what the slot says of itself now; it may still be settling."""
    state = read_state(fx, layout)
    if state is None:
        return "the slot has no state"
    if state.phase == "serving":
        return f"{state.profile_name} is served, {'verified' if state.verified else 'not verified'}"
    return f"nothing is served, the slot is in phase {state.phase}"


def _as_row(trial: Trial, sequences: int) -> dict[str, Any]:
    shown = {key: getattr(trial, key) for key in ("length", "kv_tokens", "concurrency", "seconds", "probes", "problem")}
    return {**shown, "passes": trial.passes(sequences)}


def main(folder: str) -> None:
    """Run the search that the folder's file describes, and go back. Called in the unit."""
    told = commission(folder)
    layout, plan, seen = told.layout, SearchPlan(**told.given["plan"]), nothing_seen()

    def say(search: Search, now: str) -> None:
        seen.update(
            trials=[_as_row(trial, plan.sequences) for trial in search.trials],
            now=now,
            before=search.before and search.before.__dict__,
        )
        told.work.save_seen(seen)

    request = Request(
        slot=layout.slot,
        profile=plan.profile,
        switch_id=api.new_switch_id(stamp(told.fx.clock.now())),
        who=caller(told.given["requested_by"]),
        why=f"search for a context with {plan.sequences} sequences",
    )
    try:
        search = Search(told.fx, layout, request, plan, say)
        seen.update(bounds=asdict(search.bounds))
        told.work.save_seen(seen)
        outcome = search.run()
        seen.update(found=search.found and search.found.length, version=search.version)
        where = f"{outcome.profile_name} is served again, verified" if outcome.verified else "nothing is served"
        if outcome.end is End.UNTOUCHED:
            where = "the engine was not touched"
        failed = outcome.failures[-1]
        if search.found is None:
            how = "told" if failed.told else "failed"
            why = f"the search broke off in {outcome.failures[0].describe()}"
        elif outcome.previous and not outcome.verified:
            how, why = "failed", f"the way back failed in {failed.describe()}"
        elif search.found.length is None:
            how, why = "none", f"no length from {search.bounds.least} has room for {plan.sequences} sequences"
        else:
            how, why = "found", f"{search.found.length} tokens is the longest with {plan.sequences} sequences"
        seen.update(before=search.before and search.before.__dict__)
        why = f"{why}; {where}"
    except SlotFault as fault:
        how, why = "failed", fault.message
    seen.update(ended={"how": how, "why": why, "at": stamp(told.fx.clock.now())}, now="")
    told.work.save_seen(seen)
