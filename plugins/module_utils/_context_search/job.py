# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search for a context as a transient unit of the host: begin or join it, look at it, and make its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import _transient
from .._evidence import host_class
from .._evidence.record import make
from .._evidence.store import Store, StoreError
from .._evidence.work import Work, engine_of
from .._slot import api
from .._slot.effects import Effects
from .._slot.frontdoor import read_state
from .._slot.host.clock import SystemClock
from .._slot.host.effects import host_effects
from .._slot.rendering import Rendering
from .._slot.run import describe
from .._slot.state_file import stamp
from .._slot.types import End, Layout, Request, SlotFault
from .._slot_module import layout_of
from .._switch_job import LIMIT_S, PROPERTIES, own_archive
from .driver import Plan, Search, restore
from .lengths import Trial

_LAYOUT = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")


class SearchError(Exception):
    """A search can't be started or read."""


_SYSTEMD = _transient.Systemd(SearchError, "a search for a context")


def work_of(params: Mapping[str, Any]) -> Work:
    slot = params["slot"]
    return Work(Path(params["state_dir"], "context_search", slot), f"b70-context-search-{slot}.service", SearchError)


def answer(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the result of the module b70_context_search."""
    try:
        found = _done(params, check_mode)
    except StoreError as error:
        raise SearchError(f"the record of the search can't be written: {error}") from error
    except (OSError, ValueError) as error:
        where = work_of(params).folder
        why = f"the search in {where} can't be read or written: {error}; put this right and run the same again"
        raise SearchError(why) from error
    result, seen, given = found["result"] or {}, found["seen"] or {}, found["given"] or {}
    return {
        "changed": False,
        "state": found["state"],
        "joined": found["joined"],
        "waits": found["state"] == "running" or (found["state"] == "ended" and not result),
        "line": found["line"],
        "profile": given.get("profile"),
        "trials": seen.get("trials", []),
        "found": seen.get("found"),
        **{key: result.get(key) for key in ("verdict", "reasons", "record", "file")},
    }


def _done(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    if params["state"] == "shown" or check_mode:
        return {**look(params, write=False), "joined": False}
    return start(params) if params["step"] == "start" else {**look(params), "joined": False}


def start(params: Mapping[str, Any], archive: Path | None = None) -> dict[str, Any]:
    """Begin a search, join the one under way, or collect one that ended while nobody watched.

    The same call may come twice, where its answer was lost: its token tells what it has begun or collected.
    """
    plan = Plan(*(params[key] for key in Plan.__dataclass_fields__))
    if plan.sequences < 1 or plan.granularity < 1 or plan.least < 0 or plan.most < 0:
        raise SearchError("sequences and granularity are at least 1, least and most at least 0")
    work, token = work_of(params), params["token"]
    with work.alone():
        told = work.told_to_another(token)
        found = _collect(params, work)
        if found["state"] == "running" or (found["state"] == "ended" and not told):
            _refuse_another(plan, found)
            return {**found, "joined": not work.begun_by(token)}
        _begin(params, work, plan, archive)
    return {**look(params), "joined": False}


def _begin(params: Mapping[str, Any], work: Work, plan: Plan, archive: Path | None) -> None:
    fx, layout = host_effects(SystemClock()), layout_of(params)
    try:
        # What it would be refused for is said here, before anything is begun.
        search = Search(fx, layout, Request(profile=plan.profile), plan, lambda search, now: None)
        search.check()
        profile = search.profile
    except SlotFault as fault:
        raise SearchError(f"nothing is searched: {fault.message}") from fault
    given = {
        "layout": {key: params[key] for key in _LAYOUT},
        "plan": asdict(plan),
        "token": params["token"],
        "host_name": params["host_name"],
        "requested_by": params["requested_by"],
        "began_at": stamp(fx.clock.now()),
        "profile": plan.profile,
        "fingerprint": profile.fingerprint,
        "stack": profile.stack_id,
        "kind": profile.engine.kind,
    }
    work.prepare(given, archive or own_archive())
    task = _transient.Task(
        work.unit,
        "Search for a context",
        work.argv(__name__),
        LIMIT_S,
        directory=str(work.folder),
        properties=PROPERTIES,
    )
    try:
        _SYSTEMD.start(task)
    except SearchError:
        if not _SYSTEMD.state(work.unit).running:  # systemd was slow to say so
            work.remove()
            raise


def _refuse_another(plan: Plan, found: Mapping[str, Any]) -> None:
    """Raise SearchError where the search that is joined or collected is not the one that is asked for."""
    theirs = found["given"]["plan"]
    differs = [f"{key} {theirs[key]}, not {value}" for key, value in asdict(plan).items() if theirs[key] != value]
    if not differs:
        return
    if found["state"] == "running":
        todo = "run it with those options to join it, or run this again when it has ended"
        raise SearchError(f"another search is under way, with {'; '.join(differs)}: {todo}")
    kept = f"it {found['result']['verdict']}, and its record is {found['result']['file']}"
    raise SearchError(f"another search has ended, with {'; '.join(differs)}: {kept}; run this again to begin a new one")


def look(params: Mapping[str, Any], *, write: bool = True) -> dict[str, Any]:
    """``{"state": "none" | "running" | "ended", "line", "given", "seen", "result"}``.

    :param write: whether the record of a search that has ended is made, where there is none yet.
    """
    work = work_of(params)
    found = _look(work)
    if write and _is_open(found):
        with work.alone():
            return _collect(params, work)
    return found


def _is_open(found: Mapping[str, Any]) -> bool:
    return bool(found["state"] == "ended" and found["result"] is None)


def _collect(params: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """Look, and make the record of a search that has ended. The work is held alone."""
    found = _look(work)
    if _is_open(found):
        found["result"] = _finish(work, found["given"], found["seen"], Store(params["records_dir"]), params["token"])
    return found


def _look(work: Work) -> dict[str, Any]:
    given = work.given()
    if given is None:
        return {"state": "none", "line": "no search is under way", "given": None, "seen": None, "result": None}
    # The unit first: one that ends between two looks has left what it saw.
    running = _SYSTEMD.state(work.unit).running
    seen = work.seen() or nothing_seen()
    line = _line(given, seen)
    if running:
        return {"state": "running", "line": line, "given": given, "seen": seen, "result": None}
    return {"state": "ended", "line": line, "given": given, "seen": seen, "result": work.result()}


def nothing_seen() -> dict[str, Any]:
    """What a search has seen before its first start. before: what waits while a trial is in place of the profile."""
    return {"trials": [], "now": "", "bounds": None, "found": None, "version": "", "before": None, "ended": None}


def _line(given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    plan, last = given["plan"], next(iter(seen["trials"][-1:]), None)
    said = f"; the last start: {_row(last)}" if last else ""
    now = f"; {seen['now']}" if seen["now"] else ""
    return f"{plan['profile']} for {plan['sequences']} sequences, {len(seen['trials'])} starts{said}{now}"


def _row(trial: Mapping[str, Any]) -> str:
    if trial["kv_tokens"] is None:
        return f"{trial['length']} tokens do not fit"
    return f"{trial['length']} tokens, room for {trial['concurrency']:g} sequences"


def _finish(work: Work, given: Mapping[str, Any], seen: dict[str, Any], store: Store, token: str) -> dict[str, Any]:
    fx, layout, notes = host_effects(SystemClock()), layout_of(given["layout"]), []
    if seen["before"] is not None:
        # It was killed: the host settles the switch by itself, and this is left.
        try:
            restore(fx, layout, Rendering(**seen["before"]))
        except (SlotFault, OSError) as error:
            notes = [f"a trial is in place of {given['profile']} until the next switch to it ({error})"]
    if seen["ended"] is None:
        why = f"the search broke off: its process was killed, or the host restarted; {_served(fx, layout)}"
        seen["ended"] = {"how": "vanished", "why": why, "at": max(work.last_seen_at(), given["began_at"])}
    plan, found = given["plan"], seen["found"]
    verdict = {"found": "passed", "none": "failed", "failed": "failed"}.get(seen["ended"]["how"], "unfinished")
    best = "no length" if found is None else f"max_model_len: {found}"
    record = make(
        "context_search",
        **{key: given[key] for key in ("profile", "fingerprint", "stack", "began_at")},
        engine=engine_of(given["kind"], seen["version"]),
        slot=given["layout"]["slot"],
        host={"name": given["host_name"], **host_class.look()},
        # The clock may have been set back since.
        ended_at=max(seen["ended"]["at"], given["began_at"]),
        verdict=verdict,
        reasons=[seen["ended"]["why"], *notes],
        canary=None,
        data={
            "summary": f"{best} for {plan['sequences']} sequences, {len(seen['trials'])} starts",
            "sequences": plan["sequences"],
            "granularity": plan["granularity"],
            "bounds": seen["bounds"],
            "trials": seen["trials"],
            "found": found,
        },
    )
    path = store.write(record)
    told = {"verdict": verdict, "reasons": record["reasons"], "collected_by": token}
    result = {"record": record["id"], "file": str(path), **told}
    work.save_result(result)
    return result


def _served(fx: Effects, layout: Layout) -> str:
    """What the slot says of itself now; it may still be settling."""
    state = read_state(fx, layout)
    if state is None:
        return "the slot has no state"
    if state.phase == "serving":
        return f"{state.profile_name} is served, {'verified' if state.verified else 'not verified'}"
    return f"nothing is served, the slot is in phase {state.phase}"


def _as_row(trial: Trial, sequences: int) -> dict[str, Any]:
    shown = {key: getattr(trial, key) for key in ("length", "kv_tokens", "concurrency", "seconds")}
    return {**shown, "passes": trial.passes(sequences)}


def main(folder: str) -> None:
    """Search as the folder's file says, and come back. Runs in the unit."""
    work = Work(Path(folder), "", SearchError)
    given = work.given()
    if given is None:
        raise SearchError(f"{folder} does not say what to search for")
    clock = SystemClock()
    clock.heed_signals()
    fx, layout, plan = host_effects(clock), layout_of(given["layout"]), Plan(**given["plan"])
    seen = nothing_seen()

    def say(search: Search, now: str) -> None:
        seen.update(
            trials=[_as_row(trial, plan.sequences) for trial in search.trials],
            now=now,
            before=search.before and search.before.__dict__,
        )
        work.save_seen(seen)

    request = Request(
        slot=layout.slot,
        profile=plan.profile,
        switch_id=api.new_switch_id(stamp(clock.now())),
        who=api.caller(given["requested_by"]),
        why=f"search for a context with {plan.sequences} sequences",
    )
    try:
        search = Search(fx, layout, request, plan, say)
        seen.update(bounds=asdict(search.bounds))
        work.save_seen(seen)
        outcome = search.run()
        seen.update(found=search.found and search.found.length, version=search.version)
        where = f"{outcome.profile_name} is served again, verified" if outcome.verified else "nothing is served"
        if outcome.end is End.UNTOUCHED:
            where = "the engine was not touched"
        failed = outcome.failures[-1]
        if search.found is None:
            how = "told" if failed.told else "failed"
            why = f"the search broke off in {describe(outcome.failures[0])}"
        elif outcome.previous and not outcome.verified:
            how, why = "failed", f"the way back failed in {describe(failed)}"
        elif search.found.length is None:
            how, why = "none", f"no length from {search.bounds.least} has room for {plan.sequences} sequences"
        else:
            how, why = "found", f"{search.found.length} tokens is the longest with {plan.sequences} sequences"
        before = search.before and search.before.__dict__
        seen.update(before=before, ended={"how": how, "why": f"{why}; {where}", "at": stamp(clock.now())}, now="")
    except SlotFault as fault:
        seen.update(ended={"how": "failed", "why": fault.message, "at": stamp(clock.now())}, now="")
    work.save_seen(seen)
