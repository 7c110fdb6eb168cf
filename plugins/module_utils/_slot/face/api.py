# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The public functions of the slot engine: what modules and commands call, and the plain data they get back."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from .. import power
from ..decide.machine import RunKind, SlotSeen, SwitchPlan
from ..do.driver import Driver, Outcome, predict
from ..do.progress import last_progress
from ..look import guards
from ..look.drift import drift_of
from ..look.frontdoor import FrontdoorLink, read_state
from ..look.journal import read_memory, stack_of, stands
from ..look.node_link import mapping
from ..look.observe import (
    engine_answers,
    installed_profiles,
    load_profile,
    load_wanted,
    neighbours,
    other_slots,
    slot_units,
)
from ..model import maintenance, quarantine, replicas, standby
from ..model.journal import JournalMemory, failure_data, passed
from ..model.liveness_file import next_of, read_liveness
from ..model.production import promotion, status_here
from ..model.recorded import recorded, works
from ..model.slot_file import read_slot_file
from ..model.state_file import SlotState, stamp
from ..words.decode import plain
from ..words.effects import RENDERING, SETTLING, Effects
from ..words.types import End, Layout, Mode, Phase, Request, SlotFault, UnitState, Way
from .table import not_looked_at

SHOWN_ATTEMPTS = 5
_TURNS = 2  # of one engine in a settling
ISOLATE_LIMIT_S = 60.0
PROGRESS_BYTES = 64 * 2**10


def new_switch_id(stamp: str) -> str:
    """Return an identifier that sorts by time and is unique on a host."""
    return f"{stamp.replace('-', '').replace(':', '')}-{secrets.token_hex(3)}"


def _side(name: str | None, fingerprint: str | None, verified: bool, enabled: str | None) -> str:
    return (
        f"profile: {name or '-'}\nfingerprint: {fingerprint or '-'}\n"
        f"verified: {'yes' if verified else 'no'}\nenabled unit: {enabled or '-'}\n"
    )


def _diff(before: str, after: str, slot: str) -> dict[str, str]:
    return {"before": before, "after": after, "before_header": f"slot {slot}", "after_header": f"slot {slot}"}


def _before(seen: SlotSeen) -> str:
    state = seen.state
    enabled = ", ".join(unit.name for unit in (*seen.units, *seen.legacy) if unit.enabled)
    if state is None or state.phase != "serving":
        return _side(None, None, False, enabled)
    return _side(state.profile_name, state.fingerprint, state.verified, enabled)


def _after(request: Request, layout: Layout, seen: SlotSeen, plan: SwitchPlan) -> str:
    if plan.kind is RunKind.NOTHING:
        return _before(seen)
    if not request.active or request.profile is None:
        return _side(None, None, False, None)
    units = ", ".join(seen.target_units)
    return _side(request.profile, seen.fingerprint, str(request.gate) == "verified", units)


def switch(fx: Effects, layout: Layout, request: Request) -> dict[str, Any]:
    """Run the switch and return the module's result, with `failed` where it did not reach what was asked.

    In mode RECOVER or BOOT the slot chooses, under its lock, what it should serve. Of several engines it settles one
    after the other, each in a run of its own, and the result is that of the first that failed, or of the last.
    """
    if request.mode is Mode.SWITCH:
        return _told(fx, layout, Driver(fx, layout, request).run())
    result: dict[str, Any] = {}
    left, settled = request, Counter[str]()
    while True:
        outcome = Driver(fx, layout, left).run()
        if not result or (not result["failed"] and outcome.end is not End.UNCHANGED):
            result = _told(fx, layout, outcome)
        told = any(failure.told for failure in outcome.failures)
        settled.update(outcome.units)
        # One that ends again and again is left to the controller, which pauses before it tries again.
        if told or outcome.end is End.INTERRUPTED or not outcome.units or max(settled.values()) > _TURNS:
            return result
        left = replace(left, leave=(*left.leave, *outcome.processes), switch_id=new_switch_id(stamp(fx.clock.now())))


def _told(fx: Effects, layout: Layout, outcome: Outcome) -> dict[str, Any]:
    """Return the result of a run, with the difference that it made."""
    result = _result(layout, outcome.request, outcome)
    if outcome.changed:
        try:
            units, legacy = slot_units(fx, layout)
            enabled = ", ".join(unit.name for unit in (*units, *legacy) if unit.enabled)
        except SlotFault as fault:
            # The run itself is done; only the diff is incomplete.
            enabled = f"unknown: {fault.message}"
        fingerprint = outcome.profile.fingerprint if outcome.profile is not None else None
        after = _side(outcome.profile_name, fingerprint, outcome.verified, enabled)
    else:
        after = _before(outcome.seen)
    result["diff"] = _diff(_before(outcome.seen), after, layout.slot)
    try:
        result["quarantine"] = plain(quarantine.read(fx, layout))
    except OSError as error:
        result["quarantine"] = None
        result["warnings"].append(f"whether this host is in quarantine could not be read: {error}")
    return result


def isolate(fx: Effects, layout: Layout, who: str, reason: str, *, check: bool = False) -> dict[str, Any]:
    """Put the host into quarantine and close its frontdoor, until a person clears it; the engine keeps running.

    It waits for a switch that is about to end. Raise SlotFault where nobody can be kept out, also where the frontdoor
    does not confirm that it is closed.
    """
    note = f"pid {os.getpid()} ({who}) since {stamp(fx.clock.now())}: setting the quarantine"
    with ExitStack() as locks:
        if not check:
            locks.enter_context(fx.locks.hold(layout.lock_file, note, ISOLATE_LIMIT_S))
        state, held = read_state(fx, layout), quarantine.read(fx, layout)
        before = plain(held) or {}
        record = quarantine.by_hand(fx, layout, who, reason, None if state is None else state.profile_name)
        if held is not None and held.reason == reason:
            record = held
        writes, closes = plain(record) != before, state is not None and state.open
        warnings: list[str] = []
        if writes and not check:
            quarantine.write(fx, layout, record)
        if closes and not check:
            # Once the state file says so, the frontdoor applies it as soon as it can.
            try:
                if not FrontdoorLink(fx, layout).publish({"phase": "failed", "reason": record.published()}):
                    warnings.append(f"no frontdoor answers at {layout.frontdoor_url}; it counts as closed")
            except SlotFault as fault:
                written = f"the quarantine is written to {layout.quarantine_file}"
                raise SlotFault(f"{written}, but {fault.message}") from fault
    return {
        "changed": writes or closes,
        "msg": f"{record.describe()}.",
        "quarantine": plain(record),
        "warnings": warnings,
        "diff": {"before": before, "after": plain(record)},
    }


def release(fx: Effects, layout: Layout, who: str, why: str, *, check: bool = False) -> dict[str, Any]:
    """End the quarantine. The frontdoor stays as it is: a verification opens it."""
    held = quarantine.read(fx, layout)
    if held is not None and not check:
        quarantine.clear(fx, layout, who, why)
    words = "this host is not in quarantine"
    if held is not None:
        kept = f"its evidence stays in {held.evidence or layout.evidence_dir}"
        opens = "; `b70ctl verify` opens the frontdoor" if held.reason else ""
        words = f"the quarantine since {held.since} is cleared; {kept}{opens}"
    return {
        "changed": held is not None,
        "msg": words,
        "quarantine": None,
        "warnings": [],
        "diff": {"before": plain(held) or {}, "after": {}},
    }


def maintain(fx: Effects, layout: Layout, who: str, reason: str | None, *, check: bool = False) -> dict[str, Any]:
    """Begin the maintenance of the host, or end it if there is no reason."""
    held = maintenance.read(fx, layout)
    wanted = None if reason is None else maintenance.begun(fx, held, who, reason)
    if wanted != held and not check:
        maintenance.write(fx, layout, wanted)
    told = f"{wanted.describe()}; load balancers send it no requests" if wanted else "this host is not in maintenance"
    before, after = (plain(one) or {} for one in (held, wanted))
    return {
        "changed": wanted != held,
        "msg": f"{told}.",
        "maintenance": after or None,
        "diff": {"before": before, "after": after},
    }


def _result(layout: Layout, request: Request, outcome: Outcome) -> dict[str, Any]:
    served = outcome.profile.engine.served_model_name if outcome.profile is not None else None
    if served is None and outcome.profile_name is not None and outcome.seen.state is not None:
        served = (outcome.seen.state.profile or {}).get("served_model_name")
    fingerprint = outcome.profile.fingerprint if outcome.profile is not None else None
    canary = [result.as_dict() for result in outcome.canary]
    asked = [dict(case) for case in passed(canary, outcome.profile_name)] if outcome.profile_name else []
    return {
        "changed": outcome.changed,
        "failed": bool(outcome.failures),
        "msg": message(layout, outcome),
        "slot": layout.slot,
        "switch_id": request.switch_id,
        "outcome": str(outcome.end),
        "way": str(outcome.plan.way),
        "profile": outcome.profile_name,
        "previous_profile": outcome.previous,
        "served_model": served,
        "verified": outcome.verified,
        "verified_at": outcome.verified_at,
        "fingerprint": fingerprint,
        "verified_by": asked or _verified_by(outcome.seen.memory, outcome.profile_name, fingerprint),
        "rolled_back": outcome.end is End.ROLLED_BACK,
        "phases": plain(outcome.phases),
        "canary": canary,
        "recorded": list(outcome.recorded_cases),
        "actions": [],
        "not_looked_at": [],
        "failure": failure_data(outcome.failures[0]) if outcome.failures else None,
        "failures": list(map(failure_data, outcome.failures[1:])),
        "warnings": list(outcome.warnings),
    }


def _verified_by(memory: JournalMemory, profile: str | None, fingerprint: str | None) -> list[dict[str, Any]]:
    """Return the canary cases that verified this profile with this fingerprint last, as the journal remembers them."""
    known = memory.verified
    if known is None or (known.profile, known.fingerprint) != (profile, fingerprint):
        return []
    return [dict(case) for case in known.cases]


def message(layout: Layout, outcome: Outcome) -> str:
    """Return one paragraph: what was wanted, what failed with both sides, where the slot is now."""
    request = outcome.request
    slot, name = f"slot {layout.slot}", outcome.profile_name
    proof = "verified" if outcome.verified else "not verified"
    if not outcome.failures:
        if request.mode is not Mode.SWITCH and outcome.end is End.UNCHANGED and not request.active:
            return f"Nothing to settle in {slot}: {outcome.chosen}."
        if not request.active:
            return f"{slot} is stopped."
        took = sum(record.seconds for record in outcome.phases)
        if outcome.units and outcome.end is not End.UNCHANGED:
            return f"{', '.join(outcome.units)} is served in {slot}, {proof} ({took:.1f} s)."
        verb = "is served already" if outcome.end is End.UNCHANGED else "is served"
        beside = ", beside the engine before it until then" if outcome.plan.beside else ""
        return f"{name} {verb} in {slot}, {proof} ({took:.1f} s{beside})."
    what = f"to {request.profile}" if request.active else "to stopped"
    text = f"The switch of {slot} {what} failed in {outcome.failures[0].describe()}."
    for failure in outcome.failures[1:]:
        text += f" Then {failure.describe()}."
    where = {
        End.UNTOUCHED: f"Nothing was touched: {name} is still served, {proof}." if name else "Nothing was touched.",
        End.ROLLED_BACK: f"{name} is served again, {proof}.",
        End.STOPPED: f"{slot.capitalize()} is stopped and the frontdoor is closed.",
        End.LEFT: f"{slot.capitalize()} was left as it was, and the frontdoor is closed.",
        End.INTERRUPTED: "The controller settles it: after the boot of the host, or when all nodes are back.",
        End.STUCK: f"{slot.capitalize()} could not be stopped; the frontdoor is closed.",
        End.DEFERRED: "What runs was left as it is, and the controller settles it: `b70ctl status` says when.",
        End.DEGRADED: f"It is closed, and the other replicas of {name} are served, {proof}."
        if name
        else "It is closed, and no other replica is served.",
    }
    return f"{text} {where.get(outcome.end, '')}".strip()


def check(fx: Effects, layout: Layout, request: Request) -> dict[str, Any]:
    """Predict what `switch` would do now, and change nothing."""
    seen, plan, failure, warnings, *_more = predict(fx, layout, request)
    changed = failure is None and plan.kind is not RunKind.NOTHING
    state = seen.state
    serving = state if state is not None and state.phase == "serving" else None
    previous = serving.profile_name if serving is not None else None
    wanted = request.profile if request.active else None
    served = seen.target.engine.served_model_name if seen.target is not None and request.active else None
    if failure is not None:
        # Nothing would be touched, so what is served now is what will be.
        wanted, served = previous, (serving.profile or {}).get("served_model_name") if serving is not None else None
        words = f"The switch would fail in {failure.describe()}. Nothing would be touched."
    elif changed:
        meanwhile = " Clients are served meanwhile." if plan.way is not Way.PLAIN else ""
        words = f"Would {'; '.join(plan.actions)}.{meanwhile}"
    else:
        words = f"Slot {layout.slot} is as asked for."
    fingerprint = seen.fingerprint if failure is None else serving.fingerprint if serving is not None else None
    unseen = [part for part in request.planned if part != "unit"] if Phase.GUARD in plan.forward else []
    if unseen:
        words += f" {not_looked_at(unseen)}."
    return {
        "changed": changed,
        "failed": failure is not None,
        "msg": words,
        "slot": layout.slot,
        "switch_id": request.switch_id,
        "outcome": str(End.UNTOUCHED if failure is not None else End.UNCHANGED if not changed else End.COMMITTED),
        "way": str(plan.way),
        "profile": wanted,
        "previous_profile": previous,
        "served_model": served,
        "verified": bool(serving is not None and serving.verified and not changed),
        "verified_at": serving.verified_at if serving is not None and not changed else None,
        "fingerprint": fingerprint,
        "verified_by": [] if changed else _verified_by(seen.memory, wanted, fingerprint),
        "rolled_back": False,
        "phases": [],
        "canary": [],
        "recorded": [],
        "actions": list(plan.actions) if failure is None else [],
        "not_looked_at": unseen,
        "failure": failure_data(failure),
        "failures": [],
        "warnings": list(warnings),
        "quarantine": plain(seen.quarantine),
        "diff": _diff(_before(seen), _before(seen) if failure else _after(request, layout, seen, plan), layout.slot),
    }


def standing(fx: Effects, layout: Layout) -> str | None:
    """Return the profile that the slot serves, or that was the last to be verified in it."""
    return stands(fx, layout, slot_units(fx, layout)[0])


def taken(fx: Effects, layout: Layout, profile: str) -> str:
    """Return the slots that use cards of the profile, in words; empty for none, or before it is rendered."""
    try:
        found = neighbours(fx, layout, load_wanted(fx, layout, profile)) if other_slots(fx, layout) else ()
    except SlotFault:
        return ""
    return "; ".join(f"slot {one.slot} uses {', '.join(one.cards)} for {one.profile}" for one in found)


def nothing(layout: Layout, why: str = "no profile was named") -> dict[str, Any]:
    """Return the result for a slot where nothing was ever served, and nothing is to be."""
    return {
        "changed": False,
        "failed": False,
        "msg": f"Slot {layout.slot} serves nothing: {why}.",
        "slot": layout.slot,
        "outcome": str(End.UNCHANGED),
        "wanted": None,
        "profile": None,
    }


def info(fx: Effects, layout: Layout) -> dict[str, Any]:
    """Return what is in the slot: state, engine, verification, installed profiles, last switches. Reads only."""
    state = read_state(fx, layout)
    memory = read_memory(fx, layout)
    units, legacy = slot_units(fx, layout)
    running = [unit for unit in units if unit.running]
    served = [unit for unit in running if state and unit.invocation_id and unit.invocation_id in state.passed]
    engine = next(iter((*served, *running)), None)
    shown = state if served else None  # the state, as far as it is that of what runs
    name = layout.profile_of(engine.name) if engine is not None else None
    interrupted, working, told = memory.interrupted, at_work(fx, layout), read_liveness(fx, layout)
    about: Mapping[str, Any] = {} if shown is None else shown.profile or {}
    fingerprint, records = None if shown is None else shown.fingerprint, recorded(fx, layout)
    gate = None if name is None else promotion(records, name, fingerprint, about.get("examined"))
    differs: Mapping[str, str] = {}
    several = [] if name is None else _replicas(fx, layout, name, units, state)
    if engine is not None and name is not None:
        differs = _drift(fx, layout, name, running, shown)
    return {
        "changed": False,
        "slot": layout.slot,
        "phase": state.phase if state is not None else "stopped",
        "open": shown is not None and shown.open,
        "reason": _reason(state, live=bool(served)),
        "profile": name,
        "served_model": about.get("served_model_name"),
        "verified": shown is not None and shown.verified,
        "verified_at": None if shown is None else shown.verified_at,
        "verified_by": [dict(case) for case in memory.verified.cases]
        if memory.verified and memory.verified.profile == name
        else [],
        "fingerprint": fingerprint,
        "promotion": gate and {key: gate[key] for key in ("id", "ended_at", "verdict", "summary")},
        "drift": "; ".join(differs.values()) or None,
        "drift_of": dict(differs),
        "stack": None if name is None else stack_of(fx, layout, name)["stack_id"],
        "engine": None if engine is None else _engine(engine, fx, layout),
        "replicas": several or None,
        "degraded": bool(served and several) and not all(row["open"] and row["verified"] for row in several),
        "frontdoor": _load(fx, layout),
        "cards": cards(fx),
        "standby": [
            {"profile": one.profile, "unit": one.unit, "since": one.since, "bytes": one.bytes, "level": one.level}
            for one in standby.asleep(fx.files, layout, units)
        ],
        "enabled_units": [unit.name for unit in (*units, *legacy) if unit.enabled],
        "legacy_units": [unit.name for unit in legacy if unit.running or unit.enabled],
        "profiles": [_short(fx, layout, known, records) for known in installed_profiles(fx, layout)],
        "last_verified": None if memory.verified is None else memory.verified.profile,
        "node": node_report(fx, layout),
        "at_work": working,
        "progress": None if working is None else _progress(fx, layout, working),
        "works": works(fx, layout),
        "wanted": None if memory.wanted is None else memory.wanted.as_dict(),
        "next": next_of(told),
        "interrupted": None if interrupted is None or working is not None else interrupted.as_dict(),
        "quarantine": plain(quarantine.read(fx, layout)),
        "maintenance": plain(maintenance.read(fx, layout)),
        "liveness": told,
        "switches": [attempt.as_dict() for attempt in memory.attempts[-SHOWN_ATTEMPTS:]],
    }


def _reason(state: SlotState | None, *, live: bool) -> str:
    if state is None:
        return "no state file: the slot was not served since the last boot"
    if state.open and not live:
        return "the process that was verified is gone, so the frontdoor is closed"
    return state.reason


def node_report(fx: Effects, layout: Layout) -> dict[str, Any] | None:
    """Return what the service of the host's node last said and heard; None where the host is in no group."""
    group = read_slot_file(fx, layout).nodes
    if group is None:
        return None
    told = mapping(fx.files.read(layout.node_file))
    return {"rank": group.rank, "leader": group.leader.name, "own": told.get("own"), "others": told.get("others") or {}}


def at_work(fx: Effects, layout: Layout) -> str | None:
    """Return the note of the holder of the slot's lock, or None.

    The note of a killed holder names a process that is gone.
    """
    note = (fx.files.read(layout.lock_file) or "").strip()
    return note if fx.processes.cmdline(_pid(note)) else None


def switches(fx: Effects, layout: Layout) -> bool:
    """Tell whether a switch runs that somebody asked for, and that can go back."""
    note = at_work(fx, layout)
    return note is not None and not note.endswith((SETTLING, RENDERING))


def _pid(note: str) -> int:
    word = note.removeprefix("pid ").split(" ")[0]
    return int(word) if word.isdigit() else 0


def _progress(fx: Effects, layout: Layout, note: str) -> str | None:
    return last_progress(fx.files.tail(layout.progress_file, PROGRESS_BYTES) or "", _pid(note))


def _drift(
    fx: Effects, layout: Layout, name: str, running: Sequence[UnitState], state: SlotState | None
) -> Mapping[str, str]:
    """Return what of the profile's engines differs; of several, what is the same of all is said once."""
    found: dict[str, list[str]] = {}
    for unit in running:
        if layout.profile_of(unit.name) == name:
            for key, text in drift_of(fx, layout, name, unit, state).items():
                found.setdefault(key, []).append(text)
    return {key: "; ".join(dict.fromkeys(texts)) for key, texts in found.items()}


def _replicas(
    fx: Effects, layout: Layout, name: str, units: Sequence[UnitState], state: SlotState | None
) -> list[dict[str, Any]]:
    """Return a row for each engine of a profile that has several."""
    try:
        profile = load_profile(fx, layout, name)
    except SlotFault:
        return []
    found = {unit.name: unit for unit in units}
    rows = []
    for single, own, row in zip(profile.singles, profile.replicas, replicas.known(state, profile), strict=False):
        unit = found.get(single.unit, UnitState(single.unit))
        live = state is not None and state.open and unit.settled and replicas.still_open(row, (unit.invocation_id,))
        said = "" if row is None else str(row["reason"])
        rows.append(
            {
                "index": own.index,
                "backend_url": own.backend_url,
                "cards": list(own.cards),
                "open": live,
                "verified": bool(live and row is not None and row["verified"]),
                "reason": "" if live else said or (replicas.GONE if row and row["open"] else replicas.WAITS),
                "engine": _engine(unit, fx, layout),
            }
        )
    return rows


def _engine(unit: UnitState, fx: Effects, layout: Layout) -> dict[str, Any]:
    try:
        singles = load_profile(fx, layout, layout.profile_of(unit.name)).on([unit.name]).singles
        url = next((single.engine.backend_url for single in singles if single.unit == unit.name), None)
        answers = url is not None and unit.running and engine_answers(fx, url)
    except SlotFault:
        answers = False
    return {
        "unit": unit.name,
        "state": unit.describe(),
        "healthy": answers,
        "invocation_id": unit.invocation_id,
        "started_at": unit.started_at,
        "restarts": unit.restarts,
    }


def _load(fx: Effects, layout: Layout) -> dict[str, int] | None:
    """Return how many generations the frontdoor runs, queues and admits at once; None where it does not tell."""
    said = FrontdoorLink(fx, layout).status() or {}
    found = {name: said.get(f"{name}_generations") for name in ("active", "queued", "max_active")}
    numbers = {name: value for name, value in found.items() if isinstance(value, int)}
    return numbers if len(numbers) == len(found) else None


def cards(fx: Effects) -> list[dict[str, Any]]:
    """Return the cards in the order of masks, with model, address, memory and power cap where their driver has them."""
    nodes = fx.processes.render_nodes()
    told = {card.node: card for card in fx.processes.card_memory(nodes)}
    return [
        {
            "node": node,
            "model": guards.model_of(fx, node),
            "address": fx.processes.pci_address(node),
            "used_bytes": told[node].used if node in told else None,
            "total_bytes": told[node].total if node in told else None,
            "power_cap_w": None if (cap := guards.power_of(fx, node)) is None else cap / power.W,
        }
        for node in nodes
    ]


def _short(fx: Effects, layout: Layout, name: str, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    try:
        profile = load_wanted(fx, layout, name)
    except SlotFault as fault:
        unread = {"name": name, "status": "unreadable", "title": fault.message}
        return {**unread, "cards": 0, "pending": False, "accepted_rules": []}
    new = fx.files.size(layout.pending(name)) is not None
    return {
        "name": name,
        "status": status_here(profile.status, promotion(records, name, profile.fingerprint, profile.examined)),
        "title": profile.title,
        "cards": profile.all_cards,
        "pending": new,
        "accepted_rules": list(profile.accepted_rules),
        **({"remote": profile.engine.remote["base_url"]} if profile.engine.remote else {}),
    }
