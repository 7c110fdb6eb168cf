# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at the host. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any

from ..ask.identity import command_drift, environment_drift
from ..decide.machine import SlotSeen, TargetEngine
from ..model.journal import IDLE, JournalMemory, Verified
from ..model.profile import Profile
from ..model.quarantine import read as read_quarantine
from ..model.rendering import Rendering, alike, check_profile, committed, in_place, pending, without_a_start
from ..model.replicas import as_rendered
from ..model.slot_file import read_slot_file
from ..model.standby import read_sleeper
from ..model.state_file import SlotState, current_env, profile_part
from ..words.effects import Effects
from ..words.types import Gate, Layout, Mode, Neighbour, Request, SlotFault, UnitState
from . import strangers
from .frontdoor import read_state
from .journal import read_memory, with_sleepers
from .memory import lacks_beside

_HEALTH_TIMEOUT_S = 2.0
_HEALTH_TRIES = 3


def installed_profiles(fx: Effects, layout: Layout) -> tuple[str, ...]:
    """Return the names of the profiles rendered on the host."""
    names = fx.files.names(layout.profiles_dir)
    return tuple(name.removesuffix(".json") for name in names if name.endswith(".json"))


def load_profile(fx: Effects, layout: Layout, name: str) -> Profile:
    """Return the profile in place.

    Raise SlotFault if it is unknown (with the closest names), unreadable or of another slot.
    """
    path = layout.profile_json(name)
    text = fx.files.read(path)
    if text is None:
        known = installed_profiles(fx, layout)
        close = get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"closest: {', '.join(close)}" if close else "`b70ctl list` shows those that are"
        raise SlotFault(f"profile {name!r} is not rendered on this host ({hint})")
    return check_profile(layout, name, text, str(path))


def load_wanted(fx: Effects, layout: Layout, name: str) -> Profile:
    """Return the profile as a switch would take it: the pending rendering, else the one in place."""
    new = pending(fx.files, layout, name)
    return load_profile(fx, layout, name) if new is None else _parsed(layout, new)


def _parsed(layout: Layout, rendering: Rendering) -> Profile:
    return check_profile(layout, rendering.name, rendering.profile, f"the rendering of {rendering.name}")


def slot_units(fx: Effects, layout: Layout) -> tuple[tuple[UnitState, ...], tuple[UnitState, ...]]:
    """Return (units of the slot, legacy units that exist)."""
    seen = fx.units.survey(layout.unit_prefix, read_slot_file(fx, layout).legacy_units)
    own = [unit for unit in seen if unit.name.startswith(layout.unit_prefix)]
    return with_sleepers(fx.files, layout, own), tuple(
        unit for unit in seen if not unit.name.startswith(layout.unit_prefix) and unit.exists
    )


def other_slots(fx: Effects, layout: Layout) -> dict[str, Layout]:
    """Return the other slots of the host by their names."""
    others = read_slot_file(fx, layout).others
    return {slot: replace(layout, slot=slot, config_dir=PurePosixPath(folder)) for slot, folder in others.items()}


def _wanted_in(fx: Effects, layout: Layout) -> tuple[str, ...]:
    """Return the profile that a slot is to serve; nothing if that is none."""
    wanted = read_memory(fx, layout).wanted
    return () if wanted is None or wanted.profile is None else (wanted.profile,)


def neighbours(fx: Effects, layout: Layout, profile: Profile) -> tuple[Neighbour, ...]:
    """Return the other slots that use cards which the profile needs: their engines run or sleep on them, or are to.

    Raise SlotFault if one runs a profile that can't be read, because its cards are not known then.
    """
    needed = strangers.cards_of(fx, profile)
    found = []
    for other in other_slots(fx, layout).values() if needed else ():
        there = sorted(slot_units(fx, other)[0], key=attrgetter("asleep"))
        running = [unit.name for unit in there if unit.at_work]
        for name in dict.fromkeys([*map(other.profile_of, running), *_wanted_in(fx, other)]):
            units = tuple(unit for unit in running if other.profile_of(unit) == name)
            try:
                used = strangers.cards_of(fx, load_profile(fx, other, name).on(units))
            except SlotFault:
                if units:
                    raise
                continue  # nothing of it can start
            if both := tuple(card for card in used if card in needed):
                found.append(Neighbour(other, name, units, both))
    return tuple(found)


def wanted_elsewhere(fx: Effects, layout: Layout, but: Sequence[Neighbour] = ()) -> list[Profile]:
    """Return the profiles that other slots are to serve, without those slots and without what can't be read."""
    found = []
    for other in other_slots(fx, layout).values():
        for name in () if other.slot in {one.slot for one in but} else _wanted_in(fx, other):
            with suppress(SlotFault):
                found.append(load_profile(fx, other, name))
    return found


def engine_process(fx: Effects, profile: Profile, unit: UnitState) -> int:
    """Return the engine's process, or 0. If it is in a container, the unit's own process only manages it."""
    return fx.processes.contained(unit.main_pid) if profile.stack.image else unit.main_pid


def process_drift(fx: Effects, profile: Profile, unit: UnitState) -> str | None:
    """Return how the engine's running process differs from the rendering, as far as it can be read."""
    pid = engine_process(fx, profile, unit)
    argv = command_drift(profile.engine.argv, fx.processes.cmdline(pid))
    return argv or environment_drift(profile.engine.env, fx.processes.environ(pid))


def changed_directives(profile: Profile, state: SlotState) -> str:
    """Return how the profile's part of the unit has changed since the state file's engine started; empty if not."""
    engine = next((part for part in state.engines if part.get("unit") == profile.unit), {})
    had = engine.get("directives")
    if not isinstance(had, list) or had == list(profile.engine.directives):
        return ""
    return f"started with {' '.join(map(str, had))}, rendered is {' '.join(profile.engine.directives)}"


def same_rendering(
    fx: Effects, layout: Layout, profile: Profile, state: SlotState | None, unit: UnitState, text: str | None = None
) -> bool:
    """Return whether the running engine was started from this rendering.

    profile: one of `Profile.singles`. text: of its unit, where only that rendering counts.

    Command line and environment of the process must agree, as far as they can be read. What they don't show, the state
    file tells for the process that it was written for. Any other process (after a reboot, or a restart by systemd) must
    be younger than the rendering.
    """
    if unit.active == "activating" and unit.sub in ("start-pre", "start"):
        # It waits for its turn, or its process has not become the engine yet: its command line tells nothing.
        return not unit.needs_reload and text in (None, fx.files.read(layout.unit_dir / unit.name))
    if unit.main_pid and process_drift(fx, profile, unit) is not None:
        return False
    written_for = () if state is None else tuple(part.get("invocation_id") for part in state.engines)
    if unit.invocation_id and state is not None and unit.invocation_id in written_for:
        return state.fingerprint == profile.fingerprint and not changed_directives(profile, state)
    rendered = fx.files.modified(layout.profile_json(profile.name))
    if rendered is None or not unit.started_at:
        return False
    started = datetime.strptime(unit.started_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    # The start time is known in whole seconds.
    return rendered <= started + timedelta(seconds=1)


def health_of(fx: Effects, backend_url: str) -> str | None:
    """Return what /health answers; None if it does not. It is asked again: a verified engine may miss one look."""
    for attempt in range(_HEALTH_TRIES):
        if attempt:
            fx.clock.sleep(0.3)
        reply = fx.http.get(f"{backend_url}/health", _HEALTH_TIMEOUT_S)
        if reply.status == 200:
            return reply.text
    return None


def engine_answers(fx: Effects, backend_url: str) -> bool:
    """Return whether /health answers."""
    return health_of(fx, backend_url) is not None


def last_verified(memory: JournalMemory, state: SlotState | None, units: tuple[UnitState, ...]) -> Verified | None:
    """Return what the way back leads to: what a live, verified process serves, else what was committed last."""
    served = state is not None and state.phase == "serving" and state.verified
    if state is None or not served or not state.profile_name:
        return memory.verified
    live = any(unit.invocation_id in state.passed and unit.running for unit in units)
    return Verified(state.profile_name, state.fingerprint or "", state.verified_at or "") if live else memory.verified


def standing(profile: Profile, units: Sequence[UnitState], state: SlotState | None) -> Profile:
    """Return the side of the profile that its engine is on: the one that is served, runs or boots; else the first."""
    passed = {} if state is None else state.passed
    for found in (
        [unit.name for unit in units if unit.running and unit.invocation_id in passed],
        [unit.name for unit in units if unit.running],
        [unit.name for unit in units if unit.enabled],
    ):
        if any(side.unit in found for side in profile.sides):
            return profile.on(found)
    return profile


def _exclusive(fx: Effects, layout: Layout, one: str, other: str) -> bool:
    """Return whether systemd would stop one of the two units to start the other."""
    return any(
        f"Conflicts={named}" in (fx.files.read(layout.exclusive(unit)) or "").splitlines()
        for unit, named in ((one, other), (other, one))
    )


def load_standing(fx: Effects, layout: Layout, name: str) -> Profile:
    """Return the profile in place, on the side that its engine is on."""
    return standing(load_profile(fx, layout, name), slot_units(fx, layout)[0], read_state(fx, layout))


def side_of(fx: Effects, layout: Layout, unit: str) -> Profile | None:
    """Return the profile in place on the side of this unit; None if it is not known."""
    try:
        side = load_profile(fx, layout, layout.profile_of(unit)).on([unit])
    except SlotFault:
        return None
    return side if side.unit == unit else None


def _free_side(
    fx: Effects, layout: Layout, profile: Profile, units: Sequence[UnitState], legacy: Sequence[UnitState]
) -> tuple[Profile, str]:
    """Return (the side on which the profile's engine can start beside what runs, why there is none). If there is none,
    the side is the first."""
    if profile.beside is None:
        return profile, f"{profile.name} has one engine, and the slot has no cards for a second one"
    why = lacks_beside(fx, profile)
    for side in () if why else profile.sides:
        why = _taken(fx, layout, side, units, legacy)
        if not why:
            return side, ""
    return profile, why


def _taken(fx: Effects, layout: Layout, side: Profile, units: Sequence[UnitState], legacy: Sequence[UnitState]) -> str:
    ours = [unit.name for unit in (*units, *legacy) if unit.running]
    for name in ours:
        other = side_of(fx, layout, name)
        if other is None or side.meets(other):
            return f"{name} runs, and leaves {side.name} no cards and port of its own"
        if _exclusive(fx, layout, name, side.unit):
            return f"systemd keeps {side.unit} and {name} apart, as they were rendered; run the role slot"
    for neighbour in neighbours(fx, layout, side):
        return f"slot {neighbour.slot} uses {', '.join(neighbour.cards)}"
    holders = [holder for holder in fx.processes.port_holders(side.engine.port) if holder.unit not in ours]
    holders += strangers.staying(fx, side, ours)
    return f"somebody else holds what {side.name} needs ({strangers.named(holders)})" if holders else ""


def observe(fx: Effects, layout: Layout, request: Request) -> SlotSeen:
    """Return everything that `plan` needs to know. Raise SlotFault if the target can't be resolved."""
    state = read_state(fx, layout)
    memory = read_memory(fx, layout)
    units, legacy = slot_units(fx, layout)
    verified = last_verified(memory, state, units)
    copy = committed(fx.files, layout)
    previous, back, problem = _previous(fx, layout, verified, copy)
    previous = previous and standing(previous, units, state)
    seen = SlotSeen(
        state=state,
        units=units,
        legacy=legacy,
        memory=memory,
        verified=verified,
        previous=previous,
        back=back,
        previous_problem=problem,
        quarantine=read_quarantine(fx, layout),
    )
    if not request.active or request.profile is None:
        return replace(seen, drowsy=_drowsy(fx, layout, seen)) if request.who == IDLE else seen
    name = request.profile
    live = in_place(fx.files, layout, name)
    new = _new(fx, layout, request, back)
    target = load_profile(fx, layout, name) if new is None else _parsed(layout, new)
    at_work = {unit.name for unit in (*units, *legacy) if unit.running}
    crowded = ""
    if request.mode is Mode.SWITCH and at_work and not at_work & {side.unit for side in target.sides}:
        target, crowded = _free_side(fx, layout, target, units, legacy)
    else:
        target = standing(target, units, state)
    settles = request.mode is not Mode.SWITCH
    # A slot that settles by itself goes back to one rendering, whatever an interrupted switch has put in place.
    running = target if new is None or settles else _readable(layout, live, target.units)
    texts = [text for text, _env in new.engines] if settles and new is not None and target.replicas else []
    looks = _looks(fx, layout, target, running, state, units, texts)
    # Engines can stay only if all that run were started from the same rendering.
    up = [look for look in looks if look.unit.running]
    same = bool(up) and all(look.same for look in up)
    # The rendering that the slot has if the engine stays.
    stays = live
    if new is not None and live is not None and same:
        stays = new if settles else without_a_start(live, new, asked=False)
    shown = target if stays is None or new is None else _parsed(layout, stays).on(target.units)
    others = [side_of(fx, layout, name) for name in sorted(at_work - {*target.units})] if target.numbers else []
    # After a boot there is no state; then this is what the run will write.
    proven = state.verified if state is not None else request.gate is Gate.VERIFIED
    wanted = current_env(layout.slot, shown, proven)
    unchanged = target.standby and (new is None or new == live)
    return replace(
        seen,
        wakes=min((_sleeps_on(fx, layout, look, state) for look in looks), default=0) if unchanged else 0,
        drowsy=_drowsy(fx, layout, seen) if target.standby and request.mode is Mode.SWITCH else (),
        target=target,
        rendering=new or live,
        live=live,
        kept=live == stays and (copy == stays or stays is None or not proven),
        looks=looks,
        neighbours=neighbours(fx, layout, target),
        crowded=crowded,
        apart=tuple(side.unit for side in others if side is not None and not target.meets(side)),
        current_env_matches=fx.files.read(layout.current_env) == wanted and not fx.files.hidden(layout.current_env),
        published=state is not None
        and not any(fx.files.hidden(path) for path in (layout.run_dir, layout.slot_run_dir, layout.state_file))
        and all(getattr(state, key) == value for key, value in _published(state, shown).items()),
    )


def _sleeps_on(fx: Effects, layout: Layout, look: TargetEngine, state: SlotState | None) -> int:
    """Return the level at which the engine sleeps, if it is the process that was put to sleep, of the rendering in
    place; else 0."""
    single, unit = look.single, look.unit
    known = read_sleeper(fx.files, layout, unit.name) if unit.asleep and unit.settled else None
    if known is None or (known.invocation_id, known.fingerprint) != (unit.invocation_id, single.fingerprint):
        return 0
    return known.level if same_rendering(fx, layout, single, state, unit) else 0


def _drowsy(fx: Effects, layout: Layout, seen: SlotSeen) -> tuple[str, ...]:
    """Return the units whose engine is served and verified, and of a profile that may sleep."""
    passed = {} if seen.state is None else seen.state.passed
    names = [unit.name for unit in seen.units if unit.settled and passed.get(unit.invocation_id)]
    sides, named = ((name, side_of(fx, layout, name)) for name in names), read_slot_file(fx, layout).sleepers
    return tuple(name for name, side in sides if side and side.standby and (not named or side.name in named))


def _published(state: SlotState, profile: Profile) -> dict[str, Any]:
    """Return the state file's fields that follow from the profile, as they have to be."""
    fields = profile_part(profile)
    if state.replicas and not profile.replicas:
        # Clients were moved here from another engine, which the state must not show any more.
        fields["replicas"] = None
    elif state.replicas:
        # The address is that of the first open replica.
        del fields["backend_url"]
        fields["replicas"] = as_rendered(state.replicas, profile)
    return fields


def _looks(
    fx: Effects,
    layout: Layout,
    target: Profile,
    running: Profile | None,
    state: SlotState | None,
    units: tuple[UnitState, ...],
    texts: Sequence[str],
) -> tuple[TargetEngine, ...]:
    """Return a look at each engine of the target.

    running: the profile that the engines in place were started from. texts: of their units, where only these count.
    """
    like = running if running is not None and alike(target, running) else None
    looks = []
    for place, single in enumerate(target.singles):
        unit = next((unit for unit in units if unit.name == single.unit), UnitState(single.unit))
        text = texts[place] if texts else None
        same = unit.running and like is not None and same_rendering(fx, layout, like.singles[place], state, unit, text)
        answers = same and unit.settled and engine_answers(fx, single.engine.backend_url)
        looks.append(TargetEngine(single, unit, same, answers))
    return tuple(looks)


def _readable(layout: Layout, rendering: Rendering | None, units: Sequence[str]) -> Profile | None:
    try:
        return None if rendering is None else _parsed(layout, rendering).on(units)
    except SlotFault:
        return None


def _new(fx: Effects, layout: Layout, request: Request, back: Rendering | None) -> Rendering | None:
    """Return what the target is to start from; None if that is what is in place.

    A switch takes what was rendered since. A restart, and a slot that settles by itself, take what was verified last.
    """
    name = request.profile or ""
    if request.mode is Mode.SWITCH and not request.restart:
        return None if request.recheck else pending(fx.files, layout, name)
    return back if back is not None and back.name == name else None


def near_end(fx: Effects, layout: Layout, request: Request) -> bool:
    """Return whether another run, which holds the lock, has almost done what is requested here.

    Its engine is served and verified with the current rendering; only enabling and recording it are left.
    """
    if request.mode is not Mode.SWITCH or not request.active or request.profile is None:
        return False
    if not (fx.files.read(layout.lock_file) or "").rstrip().endswith(f": {request.profile}"):
        return False
    state = read_state(fx, layout)
    if state is None or not (state.phase == "serving" and state.open and state.verified):
        return False
    try:
        wanted = load_wanted(fx, layout, request.profile)
    except SlotFault:
        return False
    return (state.profile_name, state.fingerprint) == (wanted.name, wanted.fingerprint)


def _previous(
    fx: Effects, layout: Layout, verified: Verified | None, copy: Rendering | None
) -> tuple[Profile | None, Rendering | None, str]:
    """Return (the profile that was verified last, what its engine starts from, why there is none).

    A host that has committed nothing since it began to keep copies has only what is in place.
    """
    if verified is None:
        return None, None, ""
    try:
        if copy is not None and copy.name == verified.profile:
            profile = _parsed(layout, copy)
            if profile.fingerprint == verified.fingerprint:
                return profile, copy, ""
        return load_profile(fx, layout, verified.profile), in_place(fx.files, layout, verified.profile), ""
    except SlotFault as fault:
        return None, None, fault.message
