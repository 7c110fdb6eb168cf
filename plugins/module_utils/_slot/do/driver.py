# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a switch: asks the machine what is next, does it against the effects, records how it went."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..ask.canary import CanaryResult
from ..decide import machine, recover
from ..decide.machine import JUDGING, STARTING, UNTOUCHED, RunKind, SlotSeen, SwitchPlan, SwitchStep, clear_action
from ..kinds.first_error import FirstError, first_error
from ..kinds.symptoms import Match, diagnose
from ..kinds.table import DEFAULT, kind_of
from ..look import strangers
from ..look.frontdoor import FrontdoorLink, read_state
from ..look.journal import read_memory
from ..look.node_link import lost_part
from ..look.observe import load_profile, near_end, neighbours, observe, other_slots, slot_units
from ..model import quarantine
from ..model.journal import INTERRUPTED, WATCHDOG, Attempt, JournalMemory, encode
from ..model.nodes import for_clients
from ..model.profile import STATUSES, Profile
from ..model.state_file import stamp
from ..words.effects import SETTLING, Effects
from ..words.types import (
    Direction,
    End,
    ExposedFault,
    Failure,
    Fault,
    Holder,
    HostFault,
    Layout,
    Mode,
    Phase,
    PhaseRecord,
    Request,
    SlotFault,
    ToldToEndFault,
    UnitState,
)
from . import asking, phases, standby, transaction, warming
from .phases import kernel_lines
from .prepare import prepare
from .progress import ProgressFile
from .run import EngineRun, Run

LOG_LINES = 12
LOG_CHARS = 240
CAUSE_LINES = 8
KERNEL_LINES = 4
CARD_LIMIT_S = 10.0  # another slot's switch holds a card's lock until it ends
NEAR_END_S = 10.0  # enabling a unit and two lines in the journal, on a slow disk


@dataclass(frozen=True)
class Outcome:
    """Everything a run has to tell. profile: what is served at its end, verified: whether that was proven."""

    end: End
    request: Request  # with what mode RECOVER or BOOT chose
    chosen: str  # and why
    seen: SlotSeen
    plan: SwitchPlan
    profile: Profile | None
    profile_name: str | None
    previous: str | None
    verified: bool
    verified_at: str | None
    phases: tuple[PhaseRecord, ...]
    canary: tuple[CanaryResult, ...]
    recorded_cases: tuple[str, ...]
    actions: tuple[str, ...]
    warnings: tuple[str, ...]
    failures: tuple[Failure, ...]
    units: tuple[str, ...] = ()  # of some engines of several, where it was about these
    processes: tuple[tuple[str, str], ...] = ()  # (unit, invocation id) of the same, as this run left them

    @property
    def changed(self) -> bool:
        return self.end not in (End.UNCHANGED, End.UNTOUCHED)


class Driver:
    """One run of the transaction. `run` never raises for the host's sake: failures are in the outcome."""

    def __init__(self, fx: Effects, layout: Layout, request: Request) -> None:
        self._fx = fx
        self._locks, self._cards = ExitStack(), ExitStack()
        self._locked = self._tell = False
        self._held: set[str] = set()  # the cards that are locked for this slot
        progress = ProgressFile(fx, layout, request.switch_id, os.getpid())
        self._run = Run(fx, layout, request, FrontdoorLink(fx, layout), progress)
        self._do: dict[Phase, Callable[[Run], None]] = {
            Phase.GUARD: transaction.guard,
            Phase.JOURNAL: transaction.journal,
            Phase.PREPARE: prepare,
            Phase.CLEAR: self._clear,
            Phase.CLOSE: transaction.close,
            Phase.DRAIN: transaction.drain,
            Phase.STOP: self._stop,
            Phase.RELEASE: self._release,
            Phase.START: phases.start,
            Phase.ALIVE: self._alive,
            Phase.HEALTH: self._health,
            Phase.IDENTITY: phases.identity,
            Phase.FIRST_TOKEN: asking.first_token,
            Phase.WARM_UP: warming.warm_up,
            Phase.CANARY: asking.canary,
            Phase.OPEN: self._open,
            Phase.ENABLE: transaction.enable,
            Phase.COMMIT: transaction.commit,
            Phase.RESTORE: transaction.restore,
        }

    def run(self) -> Outcome:
        run = self._run
        state = machine.begin(run.request.on_failure)
        with self._locks, self._cards:
            while (step := machine.command(state)) is not None:
                result = self._phase(step)
                if isinstance(result, Failure) and result.woken:
                    run.warn(f"{run.profile.name} was woken in vain, and is loaded instead: {result.describe()}")
                state = machine.advance(state, result)
                run.evidence.failures, run.gave_up = state.failures, state.gave_up
                if isinstance(result, Failure) and step.phase not in UNTOUCHED:
                    waits = self._begins_anew(step)
                    if waits or self._going_down():
                        # Whatever failed, no rollback begins on a host that is going down: the journal keeps this run
                        # open, and the next one settles it. Until then the failed engine serves no client.
                        state = replace(state, end=End.INTERRUPTED)
                        if waits or (run.rechecking and step.phase in STARTING):
                            transaction.give_up(run, for_clients(run.lost) if waits else run.reason())
                        if waits:
                            self._end_engine()
            end = state.end or End.UNCHANGED
            untouched = end in (End.UNCHANGED, End.UNTOUCHED, End.DEFERRED)
            if self._locked and run.request.mode is not Mode.SWITCH and untouched:
                transaction.close_unproven(run, run.reason() or run.known.chosen)
            if run.evidence.journaled and not run.evidence.recorded and end is not End.INTERRUPTED:
                self._record(end)
            self._cards.close()
            if self._locked and end is not End.INTERRUPTED:
                self._give_back()
            run.progress.say("end", outcome=str(end))
        return self._outcome(end)

    def predict(self) -> Prediction:
        """Return what `run` would do now. Touch nothing."""
        run, warnings = self._run, []
        phase = Phase.RESOLVE
        try:
            act = self._see()
            self._decide(act=act)
            phase = Phase.GUARD
            cause = _lost(self._fx, run)
            if cause is not None:
                run.know(seen=replace(run.seen, quarantine=quarantine.record_of(self._fx, run.layout, cause)))
            if act and run.request.mode is Mode.SWITCH and Phase.GUARD in run.plan.forward:
                warnings += transaction.guard_checks(run)
            if act and run.request.mode is Mode.SWITCH and run.plan.kind in (RunKind.SWITCH, RunKind.STOP):
                ends, level = standby.ending(run, [unit for unit in run.seen.units if unit.name in run.plan.sleeps])
                names = tuple(unit.name for unit in ends)
                run.know(plan=machine.plan(run.request, run.seen, names, level=level))
                warnings += run.evidence.warnings
        except (SlotFault, OSError) as fault:
            if not isinstance(fault, SlotFault):
                fault = HostFault(str(fault))
            failure = Failure(phase, Direction.FORWARD, fault.message, fault.expected, fault.got)
            return Prediction(run.seen, run.plan, failure, (), run.known.chosen, self._tell)
        return Prediction(run.seen, run.plan, None, tuple(warnings), run.known.chosen, self._tell)

    def _see(self) -> bool:
        """Look at the host. Return whether there is anything to plan."""
        act = self._run.request.mode is Mode.SWITCH or self._choose()
        self._run.know(seen=observe(self._fx, self._run.layout, self._run.request))
        return act

    def _decide(self, *, act: bool) -> None:
        run = self._run
        run.know(plan=machine.plan(run.request, run.seen) if act else SwitchPlan(RunKind.NOTHING))
        run.scope = run.plan.scope if run.plan.partial else None
        if run.request.mode is Mode.SWITCH:
            run.know(seen=machine.taken(run.seen, run.plan))

    def _begins_anew(self, step: SwitchStep) -> bool:
        """Tell whether an engine that this run only verified ended because a node was lost.

        Its unit restarts it when all nodes are back, however long that takes, and starts its verification.
        """
        run = self._run
        if step.direction is not Direction.FORWARD or run.plan.kind not in (RunKind.VERIFY, RunKind.RECHECK):
            return False
        try:
            return bool(run.lost) and run.unit(run.profile.unit).enabled
        except SlotFault:
            return False

    def _end_engine(self) -> None:
        """End the engine that lost a node, where it still runs: nothing else would start it anew."""
        run = self._run
        try:
            unit = run.unit(run.profile.unit)
            asked = run.engine.invocation_id if run.engine is not None else unit.invocation_id
            if unit.settled and unit.invocation_id == asked:
                self._fx.units.kill(unit.name)
                run.did(f"kill {unit.name}")
        except (Fault, OSError) as fault:
            run.warn(f"{run.profile.unit} lost a node and could not be ended: {fault}")

    def _going_down(self) -> bool:
        """Tell whether the host goes down; where nobody answers, it counts as going down.

        This run settles what it leaves open in either case.
        """
        try:
            return self._fx.units.stopping()
        except (SlotFault, OSError):
            return True

    def _phase(self, step: SwitchStep) -> SwitchPlan | Failure | None:
        run, clock = self._run, self._fx.clock
        run.about(step)
        if step.cold and step.phase is Phase.STOP:
            run.clients.wait = transaction.wait_of(run)
        begun = clock.monotonic()
        self._announce(step)
        result: SwitchPlan | Failure | None = None
        try:
            result = self._to_its_end(step)
        except Fault as fault:
            result = self._explained(step, fault)
        except OSError as error:
            result = self._explained(step, HostFault(f"{error.strerror or error}: {error.filename or 'no file named'}"))
        except Exception as error:  # a mistake of ours must not leave the host half-way
            result = self._explained(step, SlotFault(f"unexpected {type(error).__name__}: {error}"))
        if isinstance(result, Failure) and run.rechecking and run.partial and run.engine and not result.told:
            # The other served engines go on.
            run.narrow(*(run.wrong or (run.engine,)))
        failed = isinstance(result, Failure)
        seconds = round(clock.monotonic() - begun, 3)
        run.evidence.records.append(PhaseRecord(step.phase, step.direction, seconds, not failed))
        fields = {"text": result.message} if isinstance(result, Failure) else {}
        run.progress.say(
            "phase",
            phase=str(step.phase),
            direction=str(step.direction),
            state="failed" if failed else "end",
            seconds=seconds,
            **fields,
        )
        return result

    def _announce(self, step: SwitchStep) -> None:
        run = self._run
        run.progress.say("phase", phase=str(step.phase), direction=str(step.direction), state="begin")
        if run.evidence.journaled and not run.evidence.recorded:
            line = encode("phase", id=run.request.switch_id, phase=str(step.phase), direction=str(step.direction))
            try:
                self._fx.files.append(run.layout.journal_file, line, sync=True)
            except OSError:
                run.warn("the journal could not be written to")

    def _to_its_end(self, step: SwitchStep) -> SwitchPlan | None:
        """Perform a step.

        A signal to end comes once, and leads back: it does not break off the way back.
        """
        try:
            return self._perform(step)
        except ToldToEndFault as fault:
            if step.direction is Direction.FORWARD or self._going_down():
                raise
            self._run.warn(f"{fault.message} on the way back, which goes on")
            return self._perform(step)

    def _perform(self, step: SwitchStep) -> SwitchPlan | None:
        run = self._run
        if step.phase is Phase.LOCK:
            request = run.request
            what = request.profile if request.active else "stop"
            asked = request.mode is Mode.SWITCH and request.who != WATCHDOG
            note = (
                f"pid {os.getpid()} ({request.who or 'unknown'}) since {stamp(self._fx.clock.now())}: "
                f"{what if asked else SETTLING}"
            )
            patience = max(request.lock_timeout_s, NEAR_END_S if near_end(self._fx, run.layout, request) else 0.0)
            self._locks.enter_context(self._fx.locks.hold(run.layout.lock_file, note, patience))
            self._locked = True
            if request.mode is Mode.SWITCH:
                run.progress.start(slot=run.layout.slot, target=request.profile if request.active else None)
            return None
        if step.phase is Phase.RESOLVE:
            act = self._see()
            self._look_back()
            self._decide(act=act)
            run.know(beside=self._strangers())
            if run.request.mode is not Mode.SWITCH and run.plan.kind is not RunKind.NOTHING:
                # Only now: who watches the switch before this run may still read its last lines.
                run.progress.start(slot=run.layout.slot, target=run.request.profile)
            return run.plan
        self._do[step.phase](run)
        return None

    def _choose(self) -> bool:
        """Settle what this run is to do; return False for nothing."""
        run = self._run
        held = quarantine.read(self._fx, run.layout)
        if held is not None and held.reason:
            run.request = replace(run.request, profile=None, active=False)
            run.know(chosen=held.published())
            return False
        state = read_state(self._fx, run.layout)
        units, _legacy = slot_units(self._fx, run.layout)
        choice = recover.choose(run.layout, state, units, read_memory(self._fx, run.layout), run.request.mode)
        if choice.act and choice.profile is not None and self._waits(choice.profile, units):
            why = f"{choice.profile} waits for the other nodes, and is verified when they are there"
            choice = recover.Choice(None, why, act=False)
        run.request = recover.settled_request(run.request, choice)
        if run.request.mode is Mode.BOOT:
            stopped = tuple((unit.name, unit.invocation_id) for unit in recover.stopped_by_hand(state, units))
            run.request = replace(run.request, leave=(*run.request.leave, *stopped))
        run.know(chosen=choice.why)
        self._tell = choice.tell
        return choice.act

    def _waits(self, name: str, units: Sequence[UnitState]) -> bool:
        """Tell whether the unit still waits for the other nodes before it starts its engine."""
        try:
            profile = load_profile(self._fx, self._run.layout, name)
        except (SlotFault, OSError):
            return False
        starts = any(unit.name == profile.unit and unit.active == "activating" for unit in units)
        return starts and profile.node is not None

    def _look_back(self) -> None:
        """Put the host into quarantine if an engine that was served has lost a card since."""
        run = self._run
        cause = _lost(self._fx, run)
        if cause is None:
            return
        held = self._quarantine(cause)
        run.know(seen=replace(run.seen, quarantine=held))
        # The log of that process has been judged: nobody looks at it again.
        transaction.close_unproven(run, held.published())

    def _quarantine(self, cause: quarantine.Cause) -> quarantine.Quarantine:
        held, problems = quarantine.impose(self._fx, self._run.layout, cause)
        for text in (held.describe(), *problems):
            self._run.warn(text)
        return held

    def _strangers(self) -> tuple[Holder, ...]:
        """Return who holds cards beside the engine, of those to which this run may go back."""
        run, seen = self._run, self._run.seen
        if not run.plan.forward:
            return ()
        ours = [unit.name for unit in (*seen.units, *seen.legacy) if unit.at_work]
        back = (run.plan.previous, seen.target if run.going_back else None)
        return tuple(holder for profile in back if profile for holder in strangers.on_cards(self._fx, profile, ours))

    @staticmethod
    def _open(run: Run) -> None:
        if run.plan.kind is RunKind.FINISH and run.direction is Direction.FORWARD:
            for single in run.singles:
                strangers.check_port(run.fx, single)
        for engine in run.each():
            strangers.check_port(run.fx, engine.profile)
        transaction.open_frontdoor(run)

    @staticmethod
    def _stop(run: Run) -> None:
        try:
            phases.stop(run)
        except SlotFault as fault:
            if not run.spares:
                raise
            # The engine that serves was verified; another one that does not end is no reason to stop it.
            run.warn(f"{fault.message} ({fault.got}); {run.profile.name} is served beside it")
        if run.beside_old:
            transaction.tell_alone(run)

    def _release(self, run: Run) -> None:
        if run.beside_old:
            transaction.tell_beside(run)
        self._hold_cards(run)
        phases.release(run)

    def _hold_cards(self, run: Run) -> None:
        """Lock the cards of the next engine for this slot until the run ends, and look once more who is on them.

        Another slot whose switch is under way has not committed yet, and its engine may not have opened them.
        """
        if not run.request.active:
            return
        note = f"pid {os.getpid()} (slot {run.layout.slot}) since {stamp(self._fx.clock.now())}: {run.profile.name}"
        for node in strangers.cards_of(self._fx, run.profile):
            if node not in self._held:
                self._cards.enter_context(self._fx.locks.hold(run.layout.card_lock(node), note, CARD_LIMIT_S))
                self._held.add(node)
        cleared = {known.slot for known in run.plan.clears}
        for other in neighbours(self._fx, run.layout, run.profile):
            if other.slot not in cleared and (other.units or not run.going_back):
                raise SlotFault(
                    f"slot {other.slot} has taken {', '.join(other.cards)} for {other.profile} meanwhile",
                    expected=f"the cards of {run.profile.name} free",
                )

    @staticmethod
    def _alive(run: Run) -> None:
        phases.alive(run)
        if not run.rechecking:
            transaction.show_coming(run, "switching", "loads", loading=True)

    @staticmethod
    def _health(run: Run) -> None:
        phases.health(run)
        if not run.rechecking:
            transaction.show_coming(run, "verifying", "is being verified", loading=False)

    def _clear(self, run: Run) -> None:
        """Stop the slots that use cards of the target, each in a run of its own, while this slot still serves."""
        for other in run.plan.clears:
            run.progress.say("hint", phase="clear", text=f"slot {other.slot} drains and stops")
            run.did(clear_action(other))
            run.clients.cleared.append(other)
            request = self._of_neighbour(
                other.slot,
                switch_id=_stop_id(run.request.switch_id, other.slot),
                active=False,
                drain_timeout_s=run.request.drain_timeout_s,
                why=f"slot {run.layout.slot} needs its cards for {run.profile.name}",
            )
            outcome = Driver(self._fx, other.layout, request).run()
            if outcome.end in (End.COMMITTED, End.UNCHANGED):
                continue
            if any(failure.told for failure in outcome.failures):
                raise ToldToEndFault()
            raise SlotFault(
                f"slot {other.slot}, which uses cards of {run.profile.name}, did not stop",
                got="; ".join(failure.message for failure in outcome.failures) or str(outcome.end),
            )

    def _of_neighbour(self, slot: str, **fields: Any) -> Request:
        """Return the request of this run to another slot."""
        request = self._run.request
        patience = max(request.lock_timeout_s, NEAR_END_S)
        return Request(slot=slot, lock_timeout_s=patience, who=request.who, make_room=False, **fields)

    def _give_back(self) -> None:
        """Serve again in the slots that this run, or an earlier one, stopped for a switch that then failed.

        A slot whose cards are in use stays stopped, and so does one about which somebody has decided since.
        """
        run = self._run
        cleared = (known for known in reversed(run.seen.memory.attempts) if known.clears)
        last = next(cleared, None)
        owed = {} if last is None or last.outcome == End.COMMITTED else dict.fromkeys(last.clears, last.id)
        owed |= {other.slot: run.request.switch_id for other in run.clients.cleared}
        for slot, switch_id in owed.items():
            try:
                self._serve_again(slot, switch_id)
            except (Fault, OSError) as fault:
                run.warn(f"slot {slot} was stopped by the switch {switch_id}, and does not serve again: {fault}")

    def _serve_again(self, slot: str, switch_id: str) -> None:
        run, layout = self._run, other_slots(self._fx, self._run.layout).get(slot)
        stopped = None if layout is None else _stopped_by(read_memory(self._fx, layout), switch_id, slot)
        if layout is None or stopped is None or stopped.source is None:
            return
        name = stopped.source
        if neighbours(self._fx, layout, load_profile(self._fx, layout, name)):
            return
        run.progress.say("hint", phase="clear", text=f"slot {slot} gets {name} back")
        request = self._of_neighbour(
            slot,
            switch_id=_back_id(switch_id, slot),
            profile=name,
            restart=True,
            accept_status=STATUSES,
            why=f"the switch {switch_id} of slot {run.layout.slot} ended without needing its cards",
        )
        outcome = Driver(self._fx, layout, request).run()
        if outcome.end is not End.COMMITTED:
            raise SlotFault("; ".join(failure.message for failure in outcome.failures) or str(outcome.end))

    def _explained(self, step: SwitchStep, fault: Fault) -> Failure:
        """Return the failure with its evidence; without it if the evidence can't be had: the way back goes on."""
        engine, told = self._run.engine, isinstance(fault, ToldToEndFault)
        bare = Failure(
            step.phase,
            step.direction,
            fault.message,
            fault.expected,
            fault.got,
            fault.log_tail,
            told=told,
            host=isinstance(fault, HostFault),
            exposed=isinstance(fault, ExposedFault),
            woken=self._run.woken and step.phase in STARTING and not told and not isinstance(fault, ExposedFault),
            replica=engine.profile.replica if engine is not None and step.phase in STARTING and not told else None,
        )
        try:
            return self._failure(step, bare)
        except Exception as error:
            self._run.warn(f"why phase {step.phase} failed could not be looked into: {type(error).__name__}: {error}")
            return bare

    def _failure(self, step: SwitchStep, bare: Failure) -> Failure:
        log, unit_settled = self._log(step.phase)
        engine = self._run.engine
        kind = DEFAULT if engine is None else kind_of(engine.profile.engine.kind)
        kernel = kernel_lines(self._run) if step.phase in STARTING else ()
        match = diagnose(log, (bare.message, bare.got or ""), kind, kernel)
        if match is not None and match.symptom.harmless and unit_settled:
            match = None
        error = None if unit_settled and step.phase in JUDGING else first_error(log, kind)
        shown = _end(log, 0 if unit_settled and step.phase in JUDGING else LOG_LINES, match)
        message = bare.message if bare.replica is None else f"replica {bare.replica}: {bare.message}"
        if not bare.told and (lost := self._lost_part(step)):
            message = f"{lost}; {message}"
        failure = replace(
            bare,
            message=message,
            log_tail=bare.log_tail or tuple(line[:LOG_CHARS] for line in shown),
            symptom=match.symptom.id if match is not None else None,
            advice=f"{match.symptom.meaning}. {match.advice}" if match is not None else None,
            cause=() if error is None else _told(error)[:CAUSE_LINES],
            kernel=tuple(line[:LOG_CHARS] for line in _end(kernel, KERNEL_LINES, match)),
            log=_whole_log(engine) if log and engine is not None else None,
        )
        if match is not None and match.symptom.quarantines and match.logged and engine is not None:
            name, unit = engine.profile.name, UnitState(engine.profile.unit, invocation_id=engine.invocation_id)
            cause = quarantine.Cause(self._run.request.switch_id, name, match.symptom.id, match.line, unit, failure)
            self._quarantine(cause)
            if step.direction is Direction.FORWARD:
                return replace(failure, woken=False)  # no other profile is loaded on that card
        return failure

    def _lost_part(self, step: SwitchStep) -> str:
        """Return the node that an engine over several nodes lost, empty for none.

        That is why the engine ended, whatever its own log says.
        """
        run = self._run
        run.lost = ""
        if step.phase in STARTING and run.profile.node is not None:
            epoch = (run.engine.invocation_id if run.engine else "") or run.unit(run.profile.unit).invocation_id
            run.lost = lost_part(self._fx, run.layout, run.profile, epoch)
        return run.lost

    def _log(self, phase: Phase) -> tuple[tuple[str, ...], bool]:
        """Return the last lines of the engine's log, and whether it still runs.

        Empty outside of the phases that wait for it.
        """
        run = self._run
        if run.engine is None or phase not in STARTING:
            return (), False
        try:
            unit = run.unit(run.engine.profile.unit)
            log = self._fx.units.log(unit, quarantine.LOG_LINES)
            if run.engine.invocation_id not in ("", unit.invocation_id):
                # systemd has started it again: what ended it stands in the log of the process before.
                ended = replace(unit, invocation_id=run.engine.invocation_id)
                return (*self._fx.units.log(ended, quarantine.LOG_LINES), *log), False
            return log, unit.settled
        except SlotFault:
            return (), False

    def _record(self, end: End) -> None:
        run = self._run
        kept = end in (End.ROLLED_BACK, End.COMMITTED) and run.clients.served is not None
        profile = run.clients.served if kept else None
        try:
            transaction.record_end(
                run, end, profile.name if profile else None, profile.fingerprint if profile else None
            )
        except OSError as error:
            run.warn(f"the end of this run could not be written to the journal: {error}")

    def _outcome(self, end: End) -> Outcome:
        run, state = self._run, self._run.seen.state
        profile, verified, verified_at = run.clients.served, run.clients.verified, run.clients.verified_at
        if end is End.UNCHANGED and run.request.active and state is not None:
            profile, verified, verified_at = run.seen.target, state.verified, state.verified_at
        elif end in (End.UNTOUCHED, End.DEGRADED, End.DEFERRED):
            state = run.front.current()
            served = state if state is not None and state.open else None
            profile = None if served is None or end is End.UNTOUCHED else run.seen.target
            verified, verified_at = served is not None and served.verified, state.verified_at if state else None
        elif end not in (End.UNCHANGED, End.COMMITTED, End.ROLLED_BACK):
            profile, verified, verified_at = None, False, None
        name = None if profile is None else profile.name
        if end is End.UNTOUCHED:
            name = None if served is None else served.profile_name
        started = {engine.profile.unit: engine.invocation_id for engine in run.engines}
        return Outcome(
            end=end,
            request=run.request,
            chosen=run.known.chosen,
            seen=run.seen,
            plan=run.plan if run.way is run.plan.way else replace(run.plan, wakes=0),
            profile=profile,
            profile_name=name,
            previous=run.served_before,
            verified=verified,
            verified_at=verified_at,
            phases=tuple(run.evidence.records),
            canary=tuple(run.evidence.canary),
            recorded_cases=run.evidence.recorded_cases,
            actions=tuple(run.evidence.actions),
            warnings=tuple(run.evidence.warnings),
            failures=run.evidence.failures,
            units=tuple(single.unit for single in run.singles) if run.plan.partial else (),
            processes=tuple((single.unit, started.get(single.unit, "")) for single in run.singles)
            if run.plan.partial
            else (),
        )


def _end(lines: Sequence[str], count: int, match: Match | None) -> tuple[str, ...]:
    """Return the last lines; the line of the symptom replaces the first one where it is not among them."""
    shown = tuple(lines[-count:]) if count else ()
    if match is not None and match.line in lines and match.line not in shown:
        return (match.line, *(shown[1:] if len(shown) == count else shown))
    return shown


def _told(error: FirstError) -> tuple[str, ...]:
    """Return an error for display: the process that failed stands before its first line."""
    first, *more = (line[:LOG_CHARS] for line in error.lines)
    return (f"{error.process}: {first}" if error.process else first, *more)


def _whole_log(engine: EngineRun) -> str:
    started = (
        f" _SYSTEMD_INVOCATION_ID={engine.invocation_id}" if engine.invocation_id else f" -u {engine.profile.unit}"
    )
    return f"journalctl -o cat{started}"


def _stop_id(switch_id: str, slot: str) -> str:
    """Return the id of the run that stops another slot for this switch."""
    return f"{switch_id}-{slot}"


def _back_id(switch_id: str, slot: str) -> str:
    """Return the id of the run that serves another slot again."""
    return f"{switch_id}-{slot}-back"


def _stopped_by(memory: JournalMemory, switch_id: str, slot: str) -> Attempt | None:
    """Return the stop of a slot for this switch, if it is the last decision about the slot, else None.

    An interrupted run, and the stop that settled it, are no decisions.
    """
    attempts = list(memory.attempts)
    while attempts:
        last = attempts.pop()
        if last.id == _stop_id(switch_id, slot):
            return last
        settled = bool(attempts) and attempts[-1].outcome == INTERRUPTED and last.target is None
        if not settled and not (last.id == _back_id(switch_id, slot) and last.outcome in (None, INTERRUPTED)):
            return None
    return None


def _lost(fx: Effects, run: Run) -> quarantine.Cause | None:
    """Return why the host is to be put into quarantine before anything else: an engine that was served lost a card."""
    state = run.seen.state
    if run.seen.quarantine is not None or state is None:
        return None
    return quarantine.cause_while_serving(fx, state, run.seen.units, run.request.switch_id)


class Prediction(NamedTuple):
    """The prediction of a run: what it would do now, the failure that would stop it, and what a slot that settles by
    itself is to serve.

    tell: whether clients are told so, because somebody did something by hand.
    """

    seen: SlotSeen
    plan: SwitchPlan
    failure: Failure | None
    warnings: tuple[str, ...]
    chosen: str = ""
    tell: bool = False


def predict(fx: Effects, layout: Layout, request: Request) -> Prediction:
    """Predict a run without touching anything."""
    return Driver(fx, layout, request).predict()
