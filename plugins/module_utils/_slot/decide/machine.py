# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state machine of a switch. Pure: it decides from what was seen, and names the next phase after each result.

`plan` turns what was seen on the host into the phases to take. `begin`, `command` and `advance` walk through them:

    state = begin(on_failure)
    while (step := command(state)) is not None:
        state = advance(state, <result of running step>)

A result is a SwitchPlan (from RESOLVE), None (the phase succeeded) or a Failure. When `command` returns None,
`state.end` says how the run ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..model.journal import JournalMemory, Verified
from ..model.profile import Profile, parse_profile
from ..model.quarantine import Quarantine
from ..model.rendering import Rendering, without_a_start
from ..model.state_file import SlotState
from ..words.types import (
    Direction,
    End,
    Failure,
    Gate,
    Mode,
    Neighbour,
    OnFailure,
    Phase,
    Request,
    SlotFault,
    UnitState,
    Way,
)


def _span(first: Phase, last: Phase) -> tuple[Phase, ...]:
    order = tuple(Phase)
    return order[order.index(first) : order.index(last) + 1]


UNTOUCHED = _span(Phase.LOCK, Phase.CLEAR)  # nothing of the slot is touched yet
REPLACING = _span(Phase.CLOSE, Phase.OPEN)  # what each batch of engines takes
STOPPING = _span(Phase.STOP, Phase.RELEASE)
STARTING = _span(Phase.START, Phase.CANARY)  # what fails here may lie with the engine
VERIFYING = _span(Phase.ALIVE, Phase.CANARY)
FINISHING = _span(Phase.OPEN, Phase.COMMIT)
JUDGING = (Phase.IDENTITY, Phase.CANARY)  # what fails here is not explained by the log of an engine that still runs


class RunKind(StrEnum):
    """The task of a run.

    NOTHING: all is as requested. FINISH: the engine is proven, but not yet open, enabled, recorded or shown with its
    limits. VERIFY: verify an engine that runs unproven. RECHECK: verify a served engine again while it serves. SWITCH:
    stop what runs, start the target. STOP: stop what runs.
    """

    NOTHING = "nothing"
    FINISH = "finish"
    VERIFY = "verify"
    RECHECK = "recheck"
    SWITCH = "switch"
    STOP = "stop"


@dataclass(frozen=True)
class TargetEngine:
    """One engine of the target as RESOLVE found it.

    single: one of `Profile.singles`. same: it was started from the current rendering. healthy: it answers /health.
    """

    single: Profile
    unit: UnitState
    same: bool = False
    healthy: bool = False

    @property
    def stands(self) -> bool:
        """Return whether it runs and is not about to end or to restart."""
        return self.unit.running and self.unit.sub != "auto-restart" and self.unit.active != "deactivating"


@dataclass(frozen=True)
class SlotSeen:
    """The host as RESOLVE found it. target: as rendered (or planned) now; None if the slot is to be stopped."""

    target: Profile | None = None
    state: SlotState | None = None
    units: tuple[UnitState, ...] = ()
    legacy: tuple[UnitState, ...] = ()
    looks: tuple[TargetEngine, ...] = ()  # the target's engines
    current_env_matches: bool = False
    published: bool = False  # the state file shows the rendered limits and the like
    rendering: Rendering | None = None  # what the target starts from
    live: Rendering | None = None  # the target's rendering that is in place now
    kept: bool = True  # an engine that stays needs nothing new in place, and its committed copy is current
    memory: JournalMemory = field(default_factory=JournalMemory)
    verified: Verified | None = None  # the last verified profile
    previous: Profile | None = None  # the profile of `verified`, as committed or as in place
    back: Rendering | None = None  # what `previous` starts from
    previous_problem: str = ""  # why there is no `previous` although the journal names one
    quarantine: Quarantine | None = None
    neighbours: tuple[Neighbour, ...] = ()  # other slots that use cards of the target
    crowded: str = ""  # why the target's engine can't start beside what runs
    wakes: int = 0  # the level at which the target's engine sleeps, and can be woken
    drowsy: tuple[str, ...] = ()  # running units whose engine may be put to sleep
    apart: tuple[str, ...] = ()  # running units that are not in the way of the target's engine

    @property
    def target_name(self) -> str | None:
        return None if self.target is None else self.target.name

    @property
    def target_units(self) -> tuple[str, ...]:
        return () if self.target is None else self.target.units

    @property
    def fingerprint(self) -> str | None:
        return None if self.target is None else self.target.fingerprint


@dataclass(frozen=True)
class SwitchPlan:
    """The plan of a run. stop, disable: units. actions: the same in words, in order.

    partial: the run is about some of several engines, and leaves the others as they are. scope: the places of its
    engines among the target's; all places unless it is partial. batches: places of the engines that are replaced
    together, one batch after the other; empty if all are replaced at once. clears: other slots that are stopped first,
    because they use cards of the target. wakes: the level from which the target's engine is woken, 0 for none. sleeps:
    those of `stop` that may be put to sleep instead.
    """

    kind: RunKind
    forward: tuple[Phase, ...] = ()
    scope: tuple[int, ...] = ()
    partial: bool = False
    stop: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    previous: Profile | None = None
    actions: tuple[str, ...] = ()
    batches: tuple[tuple[int, ...], ...] = ()
    clears: tuple[Neighbour, ...] = ()
    beside: bool = False  # the target starts while the old engine serves
    wakes: int = 0
    sleeps: tuple[str, ...] = ()

    @property
    def way(self) -> Way:
        return Way.BESIDE if self.beside else Way.ROLLING if self.batches else Way.STANDBY if self.wakes else Way.PLAIN

    @property
    def spares(self) -> bool:
        """Return whether it stops only units that are not the target's."""
        return _spares(self.kind, beside=self.beside)


def _spares(kind: RunKind, *, beside: bool) -> bool:
    return beside or kind is RunKind.FINISH


_NEEDS = {Gate.VERIFIED: VERIFYING, Gate.HEALTHY: VERIFYING[:-1], Gate.NONE: VERIFYING[:1]}


def _verifying(profile: Profile | None, gate: Gate = Gate.VERIFIED) -> tuple[Phase, ...]:
    """Return the phases that an engine of the profile has to pass. None: it is served, so it is warm already."""
    warm = profile is not None and profile.warmup is not None
    return tuple(phase for phase in _NEEDS[gate] if warm or phase is not Phase.WARM_UP)


def _of_batch(profile: Profile | None) -> tuple[Phase, ...]:
    return tuple(phase for phase in REPLACING if phase not in VERIFYING or phase in _verifying(profile))


def _beside(profile: Profile | None) -> tuple[Phase, ...]:
    last = (Phase.OPEN, Phase.DRAIN, Phase.STOP, Phase.ENABLE, Phase.COMMIT)
    return (Phase.GUARD, Phase.JOURNAL, Phase.RELEASE, Phase.START, *_verifying(profile), *last)


def _proven(request: Request, seen: SlotSeen, look: TargetEngine) -> bool:
    """Return whether this engine process has passed what the gate requires, with the current rendering."""
    state = seen.state
    if state is None or state.phase != "serving" or state.profile_name != seen.target_name:
        return False
    verified = state.passed.get(look.unit.invocation_id) if look.unit.invocation_id else None
    if verified is None or state.fingerprint != seen.fingerprint:
        return False
    return verified or request.gate is not Gate.VERIFIED


def _kind(request: Request, seen: SlotSeen) -> tuple[RunKind, tuple[int, ...]]:
    """Return (what is to be done, for which of the target's engines)."""
    running = [unit for unit in (*seen.units, *seen.legacy) if unit.running]
    if not request.active:
        running += [unit for unit in seen.units if unit.asleep]
        enabled = any(unit.enabled for unit in (*seen.units, *seen.legacy))
        shown = seen.state is not None and (seen.state.phase != "stopped" or seen.state.open)
        wanted = seen.memory.wanted
        said = wanted is not None and (wanted.profile is not None or bool(wanted.idle and request.mode is Mode.SWITCH))
        recorded = said or seen.memory.interrupted is not None
        return (RunKind.STOP if running or enabled or shown or recorded else RunKind.NOTHING), ()
    looks = seen.looks
    everything = tuple(range(len(looks)))
    up = [look for look in looks if look.unit.running]
    others = [unit.name for unit in running if unit.name not in seen.target_units]
    if not running and request.mode is not Mode.SWITCH and len(looks) > 1 and seen.rendering == seen.live:
        # Verified engines come back one by one, so that a broken one takes no other with it.
        return _of_some(request, seen, list(everything), [])
    if request.mode is not Mode.SWITCH and len(looks) == 1 and _left(request, looks[0].unit):
        return RunKind.NOTHING, everything
    in_the_way = not {*others} <= {*seen.apart}
    settles = request.mode is not Mode.SWITCH and len(looks) > 1
    other = [] if settles else [look for look in up if not look.same]
    if not up or in_the_way or other or not any(look.stands for look in up):
        return RunKind.SWITCH, everything
    proven = [place for place in everything if _proven(request, seen, looks[place])]
    down = [
        place
        for place, look in enumerate(looks)
        if not look.stands or _wedged(request, look) or not (look.same or place in proven)
    ]
    if request.mode is not Mode.BOOT:
        # One that misses a look now and then may be busy: whether it works on is for the liveness to judge.
        down += [place for place in proven if place not in down and looks[place].same and not looks[place].healthy]
    if settles and not down:
        # A replica of another rendering, left by a rolling switch, serves until the others do.
        down = [place for place in everything if not looks[place].same][:1]
    unproven = [place for place in everything if place not in proven and place not in down]
    if down or unproven:
        return (RunKind.SWITCH, everything) if others else _of_some(request, seen, down, unproven)
    boots = sorted(other.name for other in (*seen.units, *seen.legacy) if other.enabled)
    opened = seen.state is not None and seen.state.open
    wanted = seen.memory.wanted
    settled = seen.memory.interrupted is None and (wanted is None or wanted.profile == seen.target_name)
    recorded = seen.current_env_matches and seen.published and seen.kept
    if opened and settled and boots == sorted(seen.target_units) and recorded and not others:
        return RunKind.NOTHING, everything
    return RunKind.FINISH, everything


def _wedged(request: Request, look: TargetEngine) -> bool:
    return look.unit.invocation_id in request.wedged


def _of_some(request: Request, seen: SlotSeen, down: list[int], unproven: list[int]) -> tuple[RunKind, tuple[int, ...]]:
    """Return the same as `_kind` if engines are down, or run unproven.

    A slot that settles by itself takes one engine after the other, running ones first, so that the first one is soon
    served and one that fails takes no other with it.
    """
    if request.mode is Mode.SWITCH and seen.rendering != seen.live:
        # A new rendering, such as another canary, applies to all engines, so all have to pass it.
        return (RunKind.SWITCH if down else RunKind.VERIFY), tuple(range(len(seen.looks)))
    if request.mode is Mode.SWITCH or len(seen.looks) == 1:
        return (RunKind.SWITCH if down else RunKind.VERIFY), tuple(sorted([*down, *unproven]))
    running, waiting = (
        tuple(place for place in places if not _left(request, seen.looks[place].unit)) for places in (unproven, down)
    )
    if running:
        return RunKind.VERIFY, running
    return (RunKind.SWITCH, waiting[:1]) if waiting else (RunKind.NOTHING, ())


def _left(request: Request, unit: UnitState) -> bool:
    """Return whether this settling leaves the unit as it is.

    It has dealt with the unit, which runs no new process since; or systemd is about to start the unit again.
    """
    if request.mode is Mode.BOOT and unit.sub.startswith("auto-restart"):
        return True
    return any(unit.name == name and (not unit.settled or unit.invocation_id == told) for name, told in request.leave)


def _in_place(request: Request, seen: SlotSeen) -> tuple[RunKind, tuple[int, ...]]:
    """Return the same as `_kind` to verify what runs in place. Raise SlotFault if only a switch could do that."""
    name = seen.target_name
    units = seen.target_units
    others = [other.name for other in (*seen.units, *seen.legacy) if other.running and other.name not in units]
    standing = tuple(place for place, look in enumerate(seen.looks) if look.stands)
    problem = ""
    if not any(look.unit.running for look in seen.looks):
        problem = "its engine does not run" if len(units) == 1 else "none of its engines runs"
    elif others:
        problem = f"{others[0]} runs beside it"
    elif not standing:
        problem = f"{seen.looks[0].unit.name} is {seen.looks[0].unit.describe()}"
    elif not all(seen.looks[place].same for place in standing):
        problem = "its engine was started from an older rendering than the one on this host"
    if problem:
        raise SlotFault(f"{name} can't be verified where it is: {problem}; `b70ctl switch {name}` starts it anew")
    verified = replace(request, gate=Gate.VERIFIED)
    unproven = tuple(place for place in standing if not _proven(verified, seen, seen.looks[place]))
    return (RunKind.VERIFY, unproven) if unproven else (RunKind.RECHECK, standing)


def _serves(request: Request, seen: SlotSeen) -> bool:
    """Return whether clients are served as this run begins. A run that settles another one has nothing to wait for."""
    served = seen.state is not None and seen.state.open
    return served and request.mode is Mode.SWITCH and seen.memory.interrupted is None


def _forward(
    kind: RunKind, gate: Gate, target: Profile | None, *, served: bool, partial: bool, clears: bool, others: bool
) -> tuple[Phase, ...]:
    """Return the phases of the way forward.

    served: whether clients have an engine until it is stopped, and the target's weights are to be read. clears: whether
    other slots make room. others: whether engines run that are not the target's.
    """
    verifying = _verifying(target, gate)
    head = (Phase.GUARD, Phase.JOURNAL)
    if kind is RunKind.NOTHING:
        return ()
    if kind is RunKind.FINISH:
        return (*head, *((Phase.DRAIN, Phase.STOP) if others else ()), *FINISHING)
    if kind is RunKind.RECHECK:
        return (Phase.JOURNAL, *_verifying(None), *FINISHING)
    if kind is RunKind.VERIFY:
        return (*head, Phase.CLOSE, *verifying, *FINISHING)
    if kind is RunKind.STOP:
        return (Phase.JOURNAL, Phase.CLOSE, Phase.DRAIN, *STOPPING, Phase.COMMIT)
    # The other engines' generations go on, and those engines have read the weights.
    prepare = (Phase.PREPARE,) if served and not partial else ()
    clear = (Phase.CLEAR,) if clears else ()
    drain = () if partial else (Phase.DRAIN,)
    return (*head, *prepare, *clear, Phase.CLOSE, *drain, *STOPPING, Phase.START, *verifying, *FINISHING)


def _previous(request: Request, seen: SlotSeen, kind: RunKind, *, partial: bool) -> Profile | None:
    """Return the profile of the way back: the last verified one, unless that would only repeat what just failed.

    A profile that is verified in place can go back to itself, to a fresh process of the same rendering. So can one that
    is restarted, because its rendering has served until now. One that starts from a new rendering can go back to the
    verified rendering. A partial run never leads to another profile, which would take the place of the other engines.
    """
    if not request.active or seen.previous is None or seen.verified is None:
        return None
    if partial:
        same = seen.previous.name == seen.target_name and seen.previous.units == seen.target_units
        return seen.previous if same and seen.previous.fingerprint == seen.verified.fingerprint else None
    if seen.previous.name == seen.target_name:
        unchanged = seen.previous.fingerprint == seen.verified.fingerprint
        again = request.restart or request.wedged or kind in (RunKind.VERIFY, RunKind.RECHECK)
        another = seen.back is not None and seen.back != seen.rendering
        return seen.previous if unchanged and (bool(again) or another) else None
    return seen.previous


def why_plain(request: Request, seen: SlotSeen, kind: RunKind, previous: Profile | None) -> str:
    """Return why clients can't be served throughout a switch; empty if they can.

    A single engine starts beside the old one, several are replaced in batches. Batches of both renderings serve side by
    side meanwhile, so clients must not be able to tell them apart.
    """
    target, state = seen.target, seen.state
    if kind is not RunKind.SWITCH or target is None or state is None or not state.open:
        return "nothing is served"
    if request.mode is not Mode.SWITCH:
        return "the slot settles what was left"
    single, same = len(seen.looks) == 1, previous is not None and previous.name == target.name
    if single and same:
        return f"{target.name} has one engine, which is to be started anew"
    if single and seen.crowded:
        return seen.crowded
    if request.gate is not Gate.VERIFIED or request.on_failure is not OnFailure.ROLLBACK or request.record_baseline:
        return "it takes the gate verified, on_failure rollback, and no baseline to be recorded"
    if previous is None or seen.back is None or not (single or same):
        return "what is served was not verified" if single else f"{target.name} is not what is served and was verified"
    if state.fingerprint != previous.fingerprint or seen.memory.interrupted is not None:
        return "what is served is not what was committed last"
    if seen.neighbours:
        return f"slot {seen.neighbours[0].slot} has to make room first"
    if single:
        served = {unit.name for unit in seen.units if unit.settled and state.passed.get(unit.invocation_id)}
        closed = [name for name in previous.units if name not in served]
        return f"{closed[0]} is not served, or not verified" if closed else ""
    if _seen_by_clients(previous) != _seen_by_clients(target):
        return "number, cards, addresses or served name of the replicas change"
    others = [unit.name for unit in (*seen.units, *seen.legacy) if unit.running and unit.name not in target.units]
    if others:
        return f"{others[0]} runs beside it"
    return (
        "" if any(_serves_clients(seen, look) for look in seen.looks) else "none of its replicas is served and verified"
    )


def _serves_clients(seen: SlotSeen, look: TargetEngine) -> bool:
    """Return whether clients get answers from this engine, and it was verified."""
    passed = {} if seen.state is None else seen.state.passed
    return look.stands and look.unit.settled and bool(passed.get(look.unit.invocation_id))


def _seen_by_clients(profile: Profile) -> tuple[object, ...]:
    own = tuple((one.cards, single.engine.port) for one, single in zip(profile.replicas, profile.singles, strict=True))
    return profile.units, profile.engine.served_model_name, own


def _batches(request: Request, seen: SlotSeen) -> tuple[tuple[int, ...], ...]:
    """Return the places of the engines that are replaced together, so that enough of them keep serving.

    Those that serve nobody come first.
    """
    count = len(seen.looks)
    order = sorted(range(count), key=lambda place: _serves_clients(seen, seen.looks[place]))
    size = count - (count - 1 if request.min_serving is None else request.min_serving)
    return tuple(tuple(sorted(order[begin : begin + size])) for begin in range(0, count, size))


def _serving_on(
    request: Request, seen: SlotSeen, kind: RunKind, previous: Profile | None, alone: tuple[int, ...]
) -> tuple[bool, tuple[tuple[int, ...], ...]]:
    """Return (whether the target starts beside what is served, the batches); (False, ()) is the plain way.

    Raise SlotFault if `min_serving` is impossible. alone: the only engines that are started anew; empty if all are.
    """
    count, least = len(seen.looks), request.min_serving
    most = 1 if count == 1 else count - (len(alone) or 1)
    words = "one engine goes on serving" if count == 1 else f"at most {most} of {count} replicas go on serving"
    why = "it is 0" if least == 0 else ""
    if count == 1 or not alone:
        why = why or why_plain(request, seen, kind, previous)
    if least and kind is RunKind.SWITCH and (why or least > most):
        raise SlotFault(
            f"min_serving is {least}, which is impossible: {why or words}; "
            "leave it out, and clients are turned away meanwhile"
        )
    if why or alone:
        return False, ()
    return (True, ()) if count == 1 else (False, _batches(request, seen))


def plan(request: Request, seen: SlotSeen, ends: tuple[str, ...] | None = None, *, level: int = 1) -> SwitchPlan:
    """Return the run that leads from what was seen to what was requested.

    ends: the sleepers that end, None where the run decides that by the memory that it finds. level: at which an
    engine falls asleep, 0 for not at all.
    """
    kind, scope = _in_place(request, seen) if request.recheck else _kind(request, seen)
    everything = tuple(range(len(seen.looks)))
    if request.restart:
        kind, scope = RunKind.SWITCH, everything
    elif request.record_baseline and kind in (RunKind.NOTHING, RunKind.FINISH):
        kind = RunKind.RECHECK
    elif request.record_baseline:
        # A baseline takes the answers of all engines.
        scope = everything
    several = len(everything) > 1
    alone = request.mode is not Mode.SWITCH and kind is RunKind.VERIFY
    partial = several and kind is not RunKind.NOTHING and (scope != everything or alone or kind is RunKind.RECHECK)
    known = (*seen.legacy, *seen.units)
    previous = _previous(request, seen, kind, partial=partial)
    beside, batches = _serving_on(request, seen, kind, previous, scope if partial else ())
    clears = seen.neighbours if kind is RunKind.SWITCH and request.mode is Mode.SWITCH and request.make_room else ()
    if kind is RunKind.SWITCH and request.mode is not Mode.SWITCH:
        # Nobody asked for another slot to be stopped. What only starts at boot there is settled by its own controller.
        _check_room(seen)
    served = _serves(request, seen)
    others = any(unit.running and unit.name not in seen.target_units for unit in known)
    # Clients never reach one that was woken and did not pass its canary.
    idle = kind is RunKind.STOP and bool(seen.drowsy)
    standby = idle or (kind is RunKind.SWITCH and not (partial or beside or batches or request.restart))
    # Nothing judges answers that are recorded, so they come from weights that were just loaded.
    wakes = seen.wakes if standby and request.gate is Gate.VERIFIED and not request.record_baseline else 0
    phases = _forward(
        kind,
        request.gate,
        seen.target,
        served=served and wakes != 1,
        partial=partial,
        clears=bool(clears),
        others=others,
    )
    if batches:
        head = phases[: phases.index(Phase.CLOSE)]
        phases = (*head, *_of_batch(seen.target) * len(batches), *FINISHING[1:])
    if beside:
        phases = _beside(seen.target)
    scoped = tuple(seen.target_units[place] for place in scope)
    spares = _spares(kind, beside=beside)
    keep = seen.target_units if request.active and (partial or batches or spares or Phase.STOP not in phases) else ()
    stop = tuple(unit.name for unit in known if unit.running and unit.name not in keep) if Phase.STOP in phases else ()
    if (partial or batches) and Phase.STOP in phases:
        stop = tuple(unit.name for unit in known if unit.running and unit.name in scoped)
    elif Phase.STOP in phases and not spares:
        known_to_end = () if wakes else seen.target_units
        every = not (idle if seen.target is None else seen.target.standby)
        sleepers = tuple(unit.name for unit in seen.units if unit.at_work and unit.asleep)
        stop += tuple(name for name in sleepers if (every or name in known_to_end if ends is None else name in ends))
    if kind is RunKind.NOTHING:
        disable: tuple[str, ...] = ()
    else:
        disable = tuple(unit.name for unit in known if unit.enabled and unit.name not in keep)
    steps = _numbered(phases, Direction.FORWARD, batches)
    sleeps = tuple(name for name in stop if standby and level and name in seen.drowsy and name not in seen.target_units)
    stop = tuple(sorted(stop, key=lambda name: name in sleeps))
    slept = dict.fromkeys(sleeps, level)
    actions = _actions(request, seen, steps, scoped, stop, disable, batches, spares=spares, wakes=wakes, slept=slept)
    return SwitchPlan(
        kind, phases, scope, partial, stop, disable, previous, actions, batches, clears, beside, wakes, sleeps
    )


def _check_room(seen: SlotSeen) -> None:
    """Raise SlotFault if another slot's engine runs on a card that the target's engine needs."""
    for neighbour in seen.neighbours:
        if neighbour.units:
            raise SlotFault(
                f"slot {neighbour.slot} serves {neighbour.profile} on {', '.join(neighbour.cards)}, which "
                f"{seen.target_name} needs"
            )


def taken(seen: SlotSeen, plan: SwitchPlan) -> SlotSeen:
    """Return `seen` with as much of a new rendering as the plan takes.

    An engine that stays proves nothing that only a start applies.
    """
    old, new = seen.live, seen.rendering
    if plan.kind in (RunKind.SWITCH, RunKind.STOP) or old is None or new is None or new == old:
        return seen
    rendering = without_a_start(old, new, asked=plan.kind in (RunKind.VERIFY, RunKind.RECHECK))
    target = parse_profile(rendering.profile, f"the rendering of {rendering.name}").on(seen.target_units)
    return replace(seen, target=target, rendering=rendering)


def _actions(
    request: Request,
    seen: SlotSeen,
    steps: tuple[SwitchStep, ...],
    scoped: tuple[str, ...],
    stop: tuple[str, ...],
    disable: tuple[str, ...],
    batches: tuple[tuple[int, ...], ...],
    *,
    spares: bool,
    wakes: int,
    slept: Mapping[str, int],
) -> tuple[str, ...]:
    """Return what the steps will change, in the words in which the driver reports each change."""
    actions: list[str] = []
    enabled = {unit.name for unit in seen.units if unit.enabled}
    phases = {step.phase for step in steps}
    for step in steps:
        phase, places = step.phase, () if step.batch is None else batches[step.batch]
        ours = [scoped[place] for place in places] or scoped
        if phase is Phase.CLEAR:
            actions += [clear_action(neighbour) for neighbour in seen.neighbours]
        elif phase is Phase.CLOSE:
            actions.append(close_action(places))
        elif phase is Phase.DRAIN and not spares:
            actions += [f"disable {name}" for name in disable]
        elif phase is Phase.STOP:
            actions += [
                sleep_action(name, slept[name]) if name in slept else f"stop {name}"
                for name in stop
                if not places or name in ours
            ]
        elif phase is Phase.START:
            if seen.rendering is not None and seen.rendering != seen.live and not step.batch:
                actions.append(place_action(seen.rendering, seen.back))
            actions += [wake_action(unit, wakes) if wakes else f"start {unit}" for unit in ours]
        elif phase is Phase.CANARY and request.record_baseline and seen.target is not None:
            cases = tuple(case.name for case in seen.target.canary.cases if case.compare == "baseline")
            actions += [record_action(seen.target.name, cases)] if cases else []
        elif phase is Phase.OPEN:
            actions.append(open_action(seen.target_name or "", places))
        elif phase is Phase.ENABLE:
            if spares or Phase.DRAIN not in phases:
                actions += [f"disable {name}" for name in disable]
            actions += [f"enable {unit}" for unit in seen.target_units if unit not in enabled or unit in disable]
        elif phase is Phase.COMMIT:
            actions.append(commit_action(seen.target_name if request.active else None))
    return tuple(actions)


def clear_action(neighbour: Neighbour) -> str:
    return f"stop slot {neighbour.slot}: {neighbour.profile} uses {', '.join(neighbour.cards)}"


def sleep_action(unit: str, level: int) -> str:
    return f"put {unit} to sleep{' without its weights' if level == 2 else ''}"


def wake_action(unit: str, level: int) -> str:
    return f"wake {unit}{' and read its weights' if level == 2 else ''}"


def close_action(places: Sequence[int] = ()) -> str:
    return f"close the frontdoor{_for_replicas(places)}"


def _for_replicas(places: Sequence[int]) -> str:
    several = "s" if len(places) > 1 else ""
    return f" for replica{several} {', '.join(map(str, places))}" if places else ""


def place_action(rendering: Rendering, back: Rendering | None) -> str:
    return f"put the {'verified' if rendering == back else 'new'} rendering of {rendering.name} in place"


def open_action(profile: str, places: Sequence[int] = ()) -> str:
    return f"open the frontdoor for {profile}{_for_replicas(places).replace(' for', ',')}"


def record_action(profile: str, cases: tuple[str, ...]) -> str:
    return f"record the baseline of {profile}: {', '.join(cases)}"


def commit_action(profile: str | None) -> str:
    return f"record {profile} as active" if profile else "record the slot as stopped"


@dataclass(frozen=True)
class SwitchStep:
    """A phase to run in a direction.

    batch: the index of the plan's batch that it is about; None: all engines. undoes: it is about the target's engine,
    which no client knows yet. gives_up: it is about a batch that failed both ways. cold: the engine of this direction,
    which was woken and failed, is loaded in place of that.
    """

    phase: Phase
    direction: Direction
    batch: int | None = None
    undoes: bool = False
    gives_up: bool = False
    cold: bool = False


def _numbered(
    phases: Sequence[Phase], direction: Direction, batches: Sequence[object], order: Sequence[int] | None = None
) -> tuple[SwitchStep, ...]:
    """Return the steps of these phases. Each CLOSE begins the next batch in this order."""
    numbers = iter(range(len(batches)) if order is None else order)
    steps: list[SwitchStep] = []
    batch: int | None = None
    for phase in phases:
        if phase is Phase.CLOSE:
            batch = next(numbers, None)
        steps.append(SwitchStep(phase, direction, batch if phase in REPLACING else None))
    return tuple(steps)


@dataclass(frozen=True)
class RunState:
    """The state of a run. todo: the steps left in this direction. opened: the engine to stop next may serve clients."""

    on_failure: OnFailure
    direction: Direction = Direction.FORWARD
    todo: tuple[SwitchStep, ...] = (
        SwitchStep(Phase.LOCK, Direction.FORWARD),
        SwitchStep(Phase.RESOLVE, Direction.FORWARD),
    )
    plan: SwitchPlan | None = None
    failures: tuple[Failure, ...] = ()
    opened: bool = False
    left: bool = False
    gave_up: bool = False  # a batch failed both ways, and is closed and stopped
    end: End | None = None


def begin(on_failure: OnFailure) -> RunState:
    return RunState(on_failure)


def command(state: RunState) -> SwitchStep | None:
    """Return the next step to run, or None at the end."""
    return None if state.end is not None else state.todo[0]


def advance(state: RunState, result: SwitchPlan | Failure | None) -> RunState:
    """Return the state after the current phase ended with `result`."""
    phase = state.todo[0].phase
    if isinstance(result, Failure):
        return _failed(state, phase, result)
    if isinstance(result, SwitchPlan):
        forward = _numbered(result.forward, Direction.FORWARD, result.batches)
        state = replace(state, plan=result, todo=(state.todo[0], *forward))
    if phase is Phase.OPEN:
        state = replace(state, opened=True)
    elif phase is Phase.CLOSE:
        state = replace(state, opened=False)
    return _next(state, phase)


def _next(state: RunState, phase: Phase) -> RunState:
    rest = state.todo[1:]
    return replace(state, todo=rest, end=None if rest else _end(state, phase))


def _end(state: RunState, last: Phase) -> End:
    if last is Phase.RESTORE:
        return End.UNTOUCHED
    if state.direction is Direction.BACK:
        return End.DEGRADED if state.gave_up else End.ROLLED_BACK
    if state.direction is Direction.HALT:
        halting = {failure.phase for failure in state.failures if failure.direction is Direction.HALT}
        if state.plan is not None and state.plan.partial and Phase.STOP not in halting:
            return End.DEGRADED
        return End.STUCK if Phase.STOP in halting else End.LEFT if state.left else End.STOPPED
    if state.plan is None or state.plan.kind is RunKind.NOTHING:
        return End.UNCHANGED
    return End.COMMITTED


def _failed(state: RunState, phase: Phase, failure: Failure) -> RunState:
    # A run that was told to end as it opened has let clients in, so the next direction drains them.
    if failure.woken:
        return _cold(state)
    opened = state.opened or (phase is Phase.OPEN and failure.told)
    state = replace(state, failures=(*state.failures, failure), opened=opened)
    if state.direction is Direction.HALT:
        # One failure does not skip the other steps towards a closed, stopped slot.
        return _next(state, phase)
    if state.todo[0].undoes or state.todo[0].gives_up:
        # The served engines were not touched, whatever becomes of this one.
        return _next(state, phase)
    if state.direction is Direction.BACK:
        return _failed_on_the_way_back(state, phase, failure)
    if state.plan is None or phase in UNTOUCHED:
        return replace(state, todo=(), end=End.UNTOUCHED)
    if failure.exposed and state.plan.kind in (RunKind.VERIFY, RunKind.RECHECK, RunKind.FINISH):
        return _halt(state, leave=True)
    if failure.host and state.plan.kind is RunKind.VERIFY:
        return replace(state, todo=(), end=End.DEFERRED)
    unharmed = state.plan.kind is RunKind.RECHECK and (failure.told or failure.host)
    batch = state.todo[0].batch
    first = phase in (Phase.CLOSE, Phase.DRAIN) and not batch and not state.plan.beside
    if first or state.plan.kind is RunKind.FINISH or unharmed:
        # The engine is untouched, so the frontdoor's previous state holds again.
        return replace(state, direction=Direction.BACK, todo=(SwitchStep(Phase.RESTORE, Direction.BACK),))
    if state.plan.beside and not opened:
        undo = (SwitchStep(Phase.STOP, Direction.BACK, undoes=True), SwitchStep(Phase.RESTORE, Direction.BACK))
        return replace(state, direction=Direction.BACK, todo=undo)
    if state.plan.batches:
        return _back_in_batches(state, len(state.plan.batches) - 1 if batch is None else batch)
    if state.on_failure is OnFailure.LEAVE:
        return _halt(state, leave=True)
    if state.on_failure is OnFailure.STOP or state.plan.previous is None:
        return _halt(state, leave=False)
    drain = (Phase.DRAIN,) if state.opened else ()
    back = (Phase.CLOSE, *drain, *STOPPING, Phase.START, *_verifying(state.plan.previous), *FINISHING)
    return replace(state, direction=Direction.BACK, todo=_numbered(back, Direction.BACK, ()))


def _cold(state: RunState) -> RunState:
    """Return the state that loads the engine which was woken in vain. Only if that fails too, the direction has."""
    back = state.direction is Direction.BACK or state.plan is None
    previous = None if state.plan is None else state.plan.previous
    whole = (Phase.START, *_verifying(previous), *FINISHING) if back or state.plan is None else state.plan.forward
    phases = (*STOPPING, *whole[whole.index(Phase.START) :])
    return replace(state, todo=tuple(SwitchStep(phase, state.direction, cold=True) for phase in phases))


def _failed_on_the_way_back(state: RunState, phase: Phase, failure: Failure) -> RunState:
    if phase is Phase.RESTORE:
        return replace(state, todo=(), end=End.UNTOUCHED)
    if failure.host:
        # The engines that were verified before are not at fault, so none of them is stopped.
        return replace(state, todo=(), end=End.DEFERRED)
    batch = state.todo[0].batch
    if batch is None:
        return _halt(state, leave=False)
    # As many replicas serve as have to: those of the other batches stay, and the slot replaces them by itself later.
    rest = tuple(step for step in state.todo if step.batch is None)
    stop = tuple(SwitchStep(part, Direction.BACK, batch, gives_up=True) for part in (Phase.CLOSE, Phase.STOP))
    return replace(state, gave_up=True, todo=(*stop, *rest))


def _back_in_batches(state: RunState, last: int) -> RunState:
    """Return the state that takes the touched batches back, the last one first: it is closed already."""
    order = range(last, -1, -1)
    previous = None if state.plan is None else state.plan.previous
    phases = (*_of_batch(previous) * len(order), *FINISHING[1:])
    todo = _numbered(phases, Direction.BACK, order, order)
    return replace(state, direction=Direction.BACK, opened=True, todo=todo)


def _halt(state: RunState, *, leave: bool) -> RunState:
    drain = (Phase.DRAIN,) if state.opened and not leave else ()
    stop = () if leave else (Phase.STOP,)
    todo = _numbered((Phase.CLOSE, *drain, *stop, Phase.COMMIT), Direction.HALT, ())
    return replace(state, direction=Direction.HALT, left=leave, todo=todo)
