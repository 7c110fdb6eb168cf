# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases around the engine: guard, journal, close, drain, open, enable, commit, restore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..decide import recover
from ..decide.machine import RunKind, close_action, commit_action, open_action
from ..kinds.table import kind_of
from ..look import guards, wait_estimate
from ..look.frontdoor import FrontdoorLink
from ..look.journal import read_memory
from ..look.observe import slot_units
from ..model import quarantine, replicas
from ..model.journal import (
    IDLE,
    INTERRUPTED,
    JOURNALS_KEPT,
    Wanted,
    begins_with_memory,
    encode,
    encode_memory,
    failure_data,
)
from ..model.rendering import committed, put_in_place
from ..model.state_file import SlotState, current_env, profile_part, stamp
from ..words.decode import plain
from ..words.effects import Effects
from ..words.types import Direction, End, Fault, Layout, Mode, OnFailure, Phase, SlotFault
from .phases import current_engine, disable_all
from .run import EngineRun, Run, Wait, switch_part

DEFAULT_RETRY_AFTER_S = 30
JOURNAL_ROTATE_BYTES = 2**20  # about two hundred switches


def guard_checks(run: Run) -> list[str]:
    """Run the guards, which change nothing, and return their warnings. Raise SlotFault if one fails."""
    warnings = guards.check_all(run.fx, run.layout, run.request, run.seen, run.plan, run.profile)
    if run.seen.previous_problem:
        warnings.append(f"there is no way back: {run.seen.previous_problem}")
    elif run.plan.kind is RunKind.SWITCH and run.plan.previous is None and run.seen.verified is not None:
        warnings.append(f"there is no way back: it is {run.profile.name} itself that is started anew")
    elif run.plan.previous is not None and (lacks := guards.lacking(run.fx, run.plan.previous, run.request.planned)):
        warnings.append(f"there is no way back: {lacks}")
    if Phase.START in run.plan.forward and not run.plan.wakes and (words := run.compiles_first(run.profile)):
        warnings.append(words)
    return warnings


def guard(run: Run) -> None:
    """Judge a switch before anything is touched. What was committed is only warned of: its canary decides."""
    try:
        for warning in guard_checks(run):
            run.warn(warning)
    except SlotFault as fault:
        if run.request.mode is Mode.SWITCH:
            raise
        run.warn(f"{fault.message}{f' ({fault.got})' if fault.got else ''}")


def journal(run: Run) -> None:
    """Begin the journal entry, and end the entry of an interrupted run."""
    try:
        _begin(run)
    except OSError as error:
        if run.request.mode is Mode.SWITCH:
            raise
        # Nobody asked for this run: a full disk is no reason to serve nothing.
        run.warn(f"the journal can't be written to ({error}), so this run will not be in it")


def _begin(run: Run) -> None:
    path = run.layout.journal_file
    if (run.fx.files.size(path) or 0) > JOURNAL_ROTATE_BYTES:
        _rotate(run)
    now = stamp(run.fx.clock.now())
    lost = run.seen.memory.interrupted
    if lost is not None:
        run.fx.files.append(path, encode("end", id=lost.id, at=now, outcome=INTERRUPTED), sync=True)
        run.warn(
            f"the switch {lost.id} from {lost.source or 'nothing'} to {lost.target or 'stopped'} was interrupted in "
            f"phase {lost.phase or 'journal'}; this run settles it"
        )
    line = encode(
        "begin",
        id=run.request.switch_id,
        at=now,
        slot=run.layout.slot,
        kind=str(run.plan.kind),
        **{"from": run.served_before, "to": run.request.profile if run.request.active else None},
        fingerprint=run.seen.fingerprint,
        gate=str(run.request.gate),
        on_failure=str(run.request.on_failure),
        boot=quarantine.boot_id(run.fx),
        mono=round(run.fx.clock.monotonic(), 3),
        mode=str(run.request.mode),
        clears={neighbour.slot: neighbour.profile for neighbour in run.plan.clears},
        who=run.request.who,
        why=run.request.why,
    )
    run.fx.files.append(path, line, sync=True)
    run.evidence.journaled = True


def _rotate(run: Run) -> None:
    """Begin a new journal with the memory of the old ones, and drop the oldest.

    The new journal is complete, on disk and readable before the old one is moved.
    """
    files, layout = run.fx.files, run.layout
    files.write(layout.next_journal, encode_memory(run.seen.memory))
    if not begins_with_memory(files.read(layout.next_journal) or ""):
        run.warn(f"{layout.next_journal} does not hold what was written to it; {layout.journal_file} is used on")
        return
    for number in range(JOURNALS_KEPT - 1, 0, -1):
        if files.size(layout.older_journal(number)) is not None:
            files.rename(layout.older_journal(number), layout.older_journal(number + 1))
    files.rename(layout.journal_file, layout.older_journal(1))
    files.rename(layout.next_journal, layout.journal_file)


def record_end(run: Run, outcome: End, profile: str | None, fingerprint: str | None) -> None:
    """End the journal entry with the evidence."""
    since = run.clients.closed_at
    seconds = None if since is None else round(run.fx.clock.monotonic() - since, 3)
    line = encode(
        "end",
        id=run.request.switch_id,
        at=stamp(run.fx.clock.now()),
        outcome=str(outcome),
        kind=str(run.plan.kind),
        way=str(run.way),
        profile=profile,
        fingerprint=fingerprint,
        verified=run.clients.verified,
        reason=run.reason(),
        seconds=seconds,
        turned_away_s=round(run.front.turned_away_s, 3),
        key="" if run.clients.wait is None else run.clients.wait.key,
        loads=plain(run.evidence.loads),
        **({"warmup": [one.as_dict() for one in run.evidence.warmed]} if run.evidence.warmed else {}),
        actions=run.evidence.actions,
        phases=plain(run.evidence.records),
        canary=[result.as_dict() for result in run.evidence.canary],
        failures=list(map(failure_data, run.evidence.failures)),
        warnings=run.evidence.warnings,
    )
    run.fx.files.append(run.layout.journal_file, line, sync=True)
    run.evidence.recorded = True


def _kept(state: SlotState | None) -> dict[str, Any]:
    """Return the fields that stay while the old engine finishes its streams."""
    if state is None:
        return {}
    names = ("profile", "backend_url", "limits", "request", "event_log", "engine", "routing")
    return {name: getattr(state, name) for name in names} | {"replicas": replicas.closed(state.replicas)}


def close(run: Run) -> None:
    """Tell the frontdoor to accept no new generations, and why. A partial run closes only its own engines."""
    if run.clients.closed_at is None:
        run.clients.closed_at = run.fx.clock.monotonic()
    halting = run.direction is Direction.HALT
    action = close_action(run.places)
    if action not in run.evidence.actions:
        run.did(action)
    run.clients.verified = False
    run.clients.served = None
    run.clients.wait = wait_of(run) if run.request.active and not halting else Wait(*_now(run))
    fields: dict[str, Any] = {
        **_kept(run.front.current()),
        "phase": "failed" if halting else "switching",
        "reason": _close_reason(run),
        "retry_after_s": run.retry_after_s(DEFAULT_RETRY_AFTER_S),
    }
    if not halting:
        # An engine that is only verified is not stopped first: clients wait only while it loads.
        verifies = run.direction is Direction.FORWARD and Phase.STOP not in run.plan.forward
        fields["switch"] = switch_part(run, loading=verifies)
    if run.request.mode is Mode.SWITCH and not run.request.active and run.request.who != IDLE:
        # A person stops the slot: no request that waits now brings back what was idle.
        fields["idle"] = None
    if run.partial:
        words = (
            "it is started anew" if run.plan.kind is RunKind.SWITCH or run.evidence.failures else "it is being verified"
        )
        fields |= _with_others(run, "failed" if halting else "switching", _why_closed(run, words))
    try:
        if not run.front.publish(fields):
            run.warn(f"no frontdoor answers at {run.layout.frontdoor_url}; it counts as closed")
    except SlotFault:
        if run.direction is Direction.FORWARD:
            raise
        # The way back and the halt go on: the file is written, and a late frontdoor still applies it.
        run.warn("the frontdoor was slow to close")
    except OSError as error:
        if run.direction is Direction.FORWARD:
            raise
        # The state that it has is either closed, or open for a process that is about to end.
        run.warn(f"{run.layout.state_file} could not be written ({error}); the frontdoor goes by what it says")


def _now(run: Run) -> tuple[str, float]:
    return stamp(run.fx.clock.now()), run.fx.clock.monotonic()


def wait_of(run: Run) -> Wait:
    """Return the wait for this direction's engine, which begins now."""
    key = run.load_key(run.profile)
    return Wait(*_now(run), key, wait_estimate.wait_s(run.fx, run.layout, run.seen.memory.load_times, key))


def _close_reason(run: Run) -> str:
    """Return what the fields `phase` and `switch` don't say by themselves."""
    if run.direction is Direction.HALT:
        return f"the last switch failed: {run.reason()}"
    if not run.request.active:
        return f"slot {run.layout.slot} is being stopped"
    return f"going back to {run.profile.name}: {run.reason()}" if run.direction is Direction.BACK else ""


def drain(run: Run) -> None:
    """Let running generations finish. Those left at the limit end with their engine, which is no failure.

    A partial run does not wait: the generations are those of engines that stay. A batch waits for those of its own
    engines. After clients were moved to another engine, the run waits for those of the old one.

    On the plain way forward this is the last moment at which the engine is untouched, so its units are disabled here:
    if systemd can't do that, the switch ends without harm.
    """
    if run.plan.partial:
        return
    places = _left_behind(run.front.current()) if run.spares else run.places
    left = run.front.drain(run.request.drain_timeout_s, places) if places or not run.spares else 0
    run.cut_off = bool(left)
    if left:
        run.warn(f"{left} generations still ran after {run.request.drain_timeout_s:g} s of draining and were ended")
    if run.sets_boot and run.direction is Direction.FORWARD and not run.rolling and not run.spares:
        disable_all(run)


def _left_behind(state: SlotState | None) -> tuple[int, ...]:
    """Return the places of the engines that get no clients any more."""
    rows = state.replicas or () if state is not None else ()
    return tuple(row["index"] for row in rows if not row["open"])


def tell_beside(run: Run, *, loading: bool = False) -> None:
    """Tell the frontdoor that an engine starts beside the one that keeps getting the clients."""
    run.clients.wait = run.clients.wait or wait_of(run)
    state = run.front.current()
    if state is not None:
        _show(run, {**state.fields, "switch": switch_part(run, loading=loading)}, "that an engine is started beside it")


def tell_alone(run: Run) -> None:
    """Tell the frontdoor that the engine to which clients were moved is now the only one."""
    state = run.front.current()
    if state is not None:
        _show(run, {**state.fields, "replicas": None, "switch": None}, "that the engine before it has ended")


def _show(run: Run, fields: dict[str, Any], what: str) -> None:
    try:
        run.front.publish(fields)
    except SlotFault:
        run.warn(f"the frontdoor was slow to show {what}")
    except OSError as error:
        # It keeps its previous state: only what it shows is out of date.
        run.warn(f"{what} could not be written to {run.layout.state_file} ({error})")


def show_coming(run: Run, phase: str, words: str, *, loading: bool) -> None:
    """Tell the frontdoor which profile's engine is coming, and what it does now, without opening anything."""
    profile = run.profile
    if run.beside_old:
        tell_beside(run, loading=loading)
        return
    fields: dict[str, Any] = {
        **profile_part(profile),
        "phase": phase,
        "reason": _close_reason(run),
        "retry_after_s": run.retry_after_s(DEFAULT_RETRY_AFTER_S),
        "switch": switch_part(run, loading=loading),
        "engine": _engine_part(run, run.engines[0]) if run.engines else None,
    }
    if profile.replicas:
        fields |= _with_others(run, phase, _why_closed(run, f"it {words}"))
    _show(run, fields, f"that the engine {words}")


def _engine_part(run: Run, engine: EngineRun) -> Mapping[str, Any] | None:
    if not engine.invocation_id:
        return None
    # An engine that is verified in place keeps the directives that it was started with.
    before = () if run.seen.state is None else run.seen.state.engines
    same = next((part for part in before if part.get("invocation_id") == engine.invocation_id), None)
    directives = list(engine.profile.engine.directives) if same is None else same.get("directives")
    kind = kind_of(engine.profile.engine.kind)
    return {
        "unit": engine.profile.unit,
        "invocation_id": engine.invocation_id,
        "started_at": engine.started_at,
        "directives": directives,
        "kind": engine.profile.engine.kind,
        "metrics": {"tokens": kind.metrics.tokens, "cache": kind.metrics.cache},
        "dialect": plain(kind.dialect(engine.profile.engine.version or "")),
        **({"health": engine.health} if kind.remote else {}),
    }


def _live(run: Run) -> set[str]:
    """Return the invocation ids of the slot's engines that are up."""
    return {unit.invocation_id for unit in slot_units(run.fx, run.layout)[0] if unit.settled}


def _entries(run: Run, reason: str, *, is_open: bool = False) -> list[dict[str, Any]]:
    """Return the state's entry for each of several engines.

    This run's own engines are open, or closed for this reason. The others keep their entry while their process is the
    same.
    """
    profile, ours = run.profile, {single.unit for single in run.singles}
    engines = {engine.profile.unit: _engine_part(run, engine) for engine in run.engines}
    live = _live(run) if run.partial else set()
    if run.partial:
        _look_back(run)
    rows = []
    told = replicas.known(run.front.current(), profile, any_rendering=run.rolling)
    for single, own, before in zip(profile.singles, profile.replicas, told, strict=True):
        if single.unit in ours:
            part = engines.get(single.unit)
            verified = is_open and run.canary_passed
            rows.append(replicas.entry(single, own.cards, part, is_open=is_open, verified=verified, reason=reason))
        elif before is not None and replicas.still_open(before, live):
            rows += [dict(before)] if run.rolling else replicas.as_rendered([before], profile)
        else:
            was_open = before is not None and before["open"]
            why = replicas.GONE if was_open else (before or {}).get("reason") or replicas.WAITS
            rows.append(replicas.entry(single, own.cards, (before or {}).get("engine"), reason=why))
    return rows


def _look_back(run: Run) -> None:
    """Put the host into quarantine if another engine has lost a card. The next state only says that it is gone."""
    units = slot_units(run.fx, run.layout)[0]
    for text in quarantine.look_back(run.fx, run.layout, run.front.current(), units, run.request.switch_id):
        run.warn(text)


def _with_others(run: Run, phase: str, reason: str) -> dict[str, Any]:
    """Return the state's fields while this run's engines are closed. If others are open, the slot keeps serving."""
    fields = replicas.together(_entries(run, reason))
    if not fields["open"]:
        return {**fields, "phase": phase}
    state = run.front.current()
    kept = {"verified_at": None, "gate": str(run.request.gate)}
    if state is not None:
        kept = {"verified_at": state.verified_at, "gate": state.gate}
    return {
        **profile_part(run.shown()),
        **fields,
        **kept,
        "phase": "serving",
        "reason": "",
        "retry_after_s": None,
        "switch": switch_part(run) if run.rolling else None,
    }


def _why_closed(run: Run, words: str) -> str:
    """Return why one of several engines is closed, in words that everybody may read."""
    if run.direction is Direction.HALT:
        return run.reason()
    return f"{words}: {run.reason()}" if run.evidence.failures else words


def open_frontdoor(run: Run) -> None:
    """Open the frontdoor for the engines, after a last check that they are still the same processes."""
    profile = run.profile
    state = run.seen.state
    now = stamp(run.fx.clock.now())
    fields: dict[str, Any] = {
        **profile_part(run.shown(opens=True)),
        "phase": "serving",
        "open": True,
        "reason": run.reason() and f"went back after: {run.reason()}",
        "gate": str(run.request.gate),
    }
    if run.direction is Direction.FORWARD and run.plan.kind is RunKind.FINISH and state is not None:
        run.clients.verified, run.clients.verified_at = state.verified, state.verified_at
        _check_verified(run, state)
        fields["engine"] = state.engine
        if state.replicas is not None and profile.replicas:
            fields |= replicas.together(replicas.as_rendered(state.replicas, profile))
    else:
        for _engine in run.each():
            current_engine(run)
        run.clients.verified = run.canary_passed
        fields["engine"] = _engine_part(run, run.engines[0])
        if profile.replicas:
            fields |= replicas.together(_entries(run, "", is_open=True))
            run.clients.verified = fields["verified"]
        if run.beside_old and run.plan.previous is not None:
            fields |= replicas.moved(
                run.plan.previous, None if state is None else state.engine, profile, fields["engine"]
            )
            fields["switch"] = switch_part(run)
        run.clients.verified_at = now if run.clients.verified else None
    fields |= {"verified": run.clients.verified, "verified_at": run.clients.verified_at}
    try:
        if not run.front.publish(fields):
            run.warn(f"no frontdoor answers at {run.layout.frontdoor_url}; it will find the open slot when it starts")
    except SlotFault as fault:
        run.warn(f"{fault.message}; the engine is served as soon as it does")
    run.clients.served = profile
    run.did(open_action(profile.name, run.places))


def _check_verified(run: Run, state: SlotState) -> None:
    """Raise SlotFault if an engine is not the process that was verified."""
    for name in run.profile.units:
        unit = run.unit(name)
        if unit.invocation_id not in state.passed or not unit.settled:
            raise SlotFault(
                f"{unit.name} is not the process that was verified",
                expected=f"invocation {' or '.join(state.passed)}",
                got=f"invocation {unit.invocation_id}, {unit.describe()}",
            )


def enable(run: Run) -> None:
    """Make the units of the profile, and no others of the slot, start at boot.

    A disk that refuses that causes a warning: it is no reason to stop an engine that is verified and served.
    """
    units, legacy = slot_units(run.fx, run.layout)
    names = run.profile.units
    try:
        for unit in (*legacy, *units):
            if unit.enabled and unit.name not in names:
                run.fx.units.disable(unit.name)
                run.did(f"disable {unit.name}")
        boots = {unit.name for unit in units if unit.enabled}
        for name in names:
            if name not in boots:
                run.fx.units.enable(name)
                run.did(f"enable {name}")
    except SlotFault as fault:
        why = f"{fault.message}: {fault.got}" if fault.got else fault.message
        run.warn(
            f"{run.profile.name} is served, but what starts at boot could not be changed ({why}); "
            "run the switch again when it can"
        )


def _show_boot(run: Run) -> None:
    """Reload systemd if it shows an outdated boot state. This comes last, when no client waits for an engine."""
    try:
        on_disk = [unit for part in slot_units(run.fx, run.layout) for unit in part]
        loaded = [unit for unit in on_disk if unit.load]
        shown = run.fx.units.show([unit.name for unit in loaded])
        if [unit.enabled for unit in shown] != [unit.enabled for unit in loaded]:
            run.fx.units.reload()
    except SlotFault as fault:
        run.warn(f"systemd shows what starts at boot as it was, until its next reload ({fault.message})")


def commit(run: Run) -> None:
    """Make the end durable: identity file and journal."""
    files, layout = run.fx.files, run.layout
    _show_boot(run)
    if run.direction is Direction.HALT:
        _commit_failed(run)
        return
    if not run.request.active:
        run.front.publish({"phase": "stopped", **_why_stopped(run)})
        files.remove(layout.current_env)
        run.did(commit_action(None))
        record_end(run, End.COMMITTED, None, None)
        return
    profile = run.profile
    if run.gave_up:
        state = run.front.current()
        _show(run, {} if state is None else {**state.fields, "switch": None}, "that the switch has ended")
        record_end(run, End.DEGRADED, profile.name, profile.fingerprint)
        return
    run.did(commit_action(profile.name))
    outcome = End.ROLLED_BACK if run.direction is Direction.BACK else End.COMMITTED
    text = current_env(layout.slot, profile, run.clients.verified)
    try:
        _keep(run)
        if files.read(layout.current_env) != text or files.hidden(layout.current_env):
            files.write(layout.current_env, text)
        record_end(run, outcome, profile.name, profile.fingerprint)
    except OSError as error:
        # A verified engine serves, and will after a boot: there is no reason to stop it. The next run records it.
        run.evidence.recorded = True
        run.warn(
            f"{profile.name} is served, but that could not be recorded ({error}); run the switch again when it can"
        )


def _why_stopped(run: Run) -> dict[str, Any]:
    """Return the reason of a stop and what the next request loads; if nobody asked for the run, as the journal says."""
    wanted = read_memory(run.fx, run.layout).wanted
    if run.request.mode is Mode.SWITCH:
        # What nobody asked for before is so still, where this run has met nothing.
        idle = run.served_before or (wanted and wanted.idle) if run.request.who == IDLE else None
        wanted = Wanted(None, "", "", stamp(run.fx.clock.now()), run.request.who, idle=idle or "")
    if wanted is None or not wanted.idle:
        return {"idle": None, "reason": f"slot {run.layout.slot} was stopped on request"}
    return {"idle": wanted.idle_part, "reason": wanted.published()}


def _keep(run: Run) -> None:
    """Keep this rendering in place and, if it was verified, as the one that the way back and the boot lead to."""
    files, layout, rendering = run.fx.files, run.layout, run.rendering
    if rendering is None:
        return
    copy = committed(files, layout)
    if run.clients.verified and copy != rendering:
        files.write(layout.committed_file, rendering.to_json())
    elif not run.clients.verified and copy is not None and copy.name == rendering.name:
        files.remove(layout.committed_file)
    put_in_place(run.fx, layout, rendering)
    if files.read(layout.pending(rendering.name)) == rendering.to_json():
        files.remove(layout.pending(rendering.name))


def _commit_failed(run: Run) -> None:
    """Let the frontdoor say why the slot, or a replica of it, ends closed."""
    fields: dict[str, Any] = {"phase": "failed", "reason": f"the last switch failed: {run.reason()}"}
    if run.request.on_failure in (OnFailure.STOP, OnFailure.LEAVE):
        fields["idle"] = None
    if run.partial:
        fields |= {**profile_part(run.profile), **_with_others(run, "failed", run.reason())}
    try:
        run.front.publish(fields)
    except SlotFault:
        run.warn("the frontdoor was slow to show why the slot is closed")
    if not fields.get("open"):
        run.fx.files.remove(run.layout.current_env)


def restore(run: Run) -> None:
    """Give the frontdoor its previous state back, as far as that still holds: the engine was not touched."""
    state = run.seen.state
    failed = f"the last switch failed: {run.reason()}"
    if state is None:
        run.front.publish({"phase": "failed", "reason": failed})
        return
    _look_back(run)
    run.front.publish(state.fields | replicas.without_the_dead(state, _live(run), failed))


def close_dead(
    fx: Effects, layout: Layout, front: FrontdoorLink, why: str, switch_id: str, say: Callable[[str], object]
) -> None:
    """Close what is open for processes that are gone, and say what their logs tell of lost cards."""
    state, units = front.current(), slot_units(fx, layout)[0]
    for text in quarantine.look_back(fx, layout, state, units, switch_id):
        say(text)
    gone = recover.without_the_dead(state, units, why)
    if state is not None and gone:
        front.publish(state.fields | gone)


def close_unproven(run: Run, why: str) -> None:
    """Close what is open for a process that is gone: nobody verified what runs now."""
    try:
        close_dead(run.fx, run.layout, run.front, why, run.request.switch_id, run.warn)
    except (Fault, OSError) as fault:
        # The frontdoor also asks systemd which process runs, and lets no client in to another one.
        run.warn(f"whether what is served is still what was verified could not be looked at: {fault}")


def give_up(run: Run, why: str) -> None:
    """Close the frontdoor, or warn that it could not be closed."""
    try:
        run.front.publish({"phase": "failed", "reason": why})
    except (Fault, OSError) as fault:
        # The state may be written: if this run is told to end now, that only ends the wait for the frontdoor.
        run.warn(f"the frontdoor could not be closed: {fault}")
