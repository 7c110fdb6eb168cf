# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller of a slot: it looks at what is wanted and what is there, and takes the step that leads to it.

`controller` names the step and `liveness` judges the engines; this module looks and acts. It acts under the slot's lock
and never during a switch. It may be killed at any moment: the next one continues from what it sees.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

from ..ask import canary as canaries
from ..ask import pooling
from ..decide import recover
from ..decide.controller import BUSY, LOOK_S, STARTS, Book, ControllerStep, Do, View, next_step
from ..decide.machine import STARTING, RunKind
from ..do import transaction
from ..do.driver import Driver, Outcome, predict
from ..face import api
from ..kinds.kernel import CardFault, card_faults
from ..kinds.table import kind_of
from ..look import strangers
from ..look.frontdoor import FrontdoorLink, read_state
from ..look.journal import read_memory
from ..look.node_link import ask
from ..look.observe import health_of, load_profile, slot_units
from ..model import liveness, quarantine, replicas, standby
from ..model.journal import CONTROLLER, WATCHDOG, JournalMemory, encode
from ..model.liveness import Climb, EngineSample, Liveness, LivenessJudgement, LivenessVerdict, Policy, Rung
from ..model.liveness_file import ACTIONS, SCHEMA, Action, CardReading, Next, Row, Told, Verification, read_liveness
from ..model.profile import POOLING, CanaryCase, Profile
from ..model.published import reason_of
from ..model.slot_file import read_slot_file
from ..model.state_file import SlotState, stamp
from ..words.decode import decode, decode_written, document
from ..words.effects import SETTLING, Effects, text_of
from ..words.moment import Moment
from ..words.types import End, Layout, Mode, OnFailure, Phase, Reply, Request, SlotFault, ToldToEndFault, UnitState

KERNEL_S = 60.0
METRICS_LIMIT_S = 5.0
AGAIN_S = 300.0  # between two verifications, for example after one that gave way or could not begin
KERNEL_LINES = 300
UNHEARD_LOOKS = 2  # the engine is ended before the followers end their parts (nodes.FOLLOWER_GRACE_S)
UNKNOWN = LivenessJudgement(LivenessVerdict.UNKNOWN)
Replies = Generator["tuple[int, Reply, float] | None", None, None]


@dataclass(frozen=True)
class WatchdogQuestion:
    """The watchdog's own question that waits for its answer. case: the answer is known; None: any will do."""

    replies: Replies
    case: CanaryCase | None


@dataclass
class Watched:
    """An engine process that is served, or was until the watchdog closed it. single: one of `Profile.singles`."""

    single: Profile
    unit: UnitState
    samples: tuple[EngineSample, ...] = ()
    judged: LivenessJudgement = UNKNOWN
    since: str = ""  # when the verdict became this one
    moved_at: float = 0.0  # monotonic time when it was last seen to work, or was last asked
    question: WatchdogQuestion | None = None
    answered: int = 0  # number of answered questions
    tells: bool = False  # whether its metrics show that it works
    reported: bool = False  # whether it was reported as wedged
    closed: bool = False  # because it was wedged; it stays closed until somebody verifies it
    silent: bool = False  # whether an engine elsewhere did not answer at the last look
    health: str = ""  # the answer of the relay to it that led to a verification last

    @property
    def works(self) -> bool:
        """Return whether it was seen to move at the last look."""
        return self.judged.verdict is LivenessVerdict.BUSY and self.moved_at == self.samples[-1].at

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.unit.name if self.single.replica is None else f"replica {self.single.replica} ({self.unit.name})"


def _at_once(work: Callable[[], None]) -> None:
    work()


@dataclass
class Controller:
    """The controller of a slot: call `look` again and again.

    say: takes a line for the log. aside: carries out what may take as long as a model loads, while looks go on; by
    default at once. own: the effects for that; None: the same.
    """

    fx: Effects
    layout: Layout
    say: Callable[[str], object]
    aside: Callable[[Callable[[], None]], None] = _at_once
    own: Effects | None = None
    step: ControllerStep = field(default_factory=lambda: ControllerStep(Do.REST))
    looked: float = 0.0  # when the last look began, in monotonic seconds
    book: Book = field(default_factory=Book)
    working: bool = False  # whether something is carried out aside
    engines: dict[str, Watched] = field(default_factory=dict)  # by invocation id
    profile: Profile | None = None  # the served profile
    verification: Verification | None = None
    action: Action | None = None
    counts: Counter[str] = field(default_factory=Counter)  # number of actions, by name
    faults: Counter[str] = field(default_factory=Counter)  # number of faults, by the card's PCI address
    suspect: str = ""  # what happened since the last verification that calls for one
    wanted: bool = False  # the frontdoor saw answers that call for a verification
    _kernel: Sequence[str] | None = None
    _kernel_at: float = float("-inf")
    _verified: Moment = field(default_factory=lambda: Moment(""))  # when what is served was verified
    _not_before: float = float("-inf")  # monotonic time before which no verification begins
    _unheard: int = 0  # successive looks without an answer from this host's own node service
    _lost: dict[str, CardFault] = field(default_factory=dict)  # lost cards, by PCI address
    _chosen: str = ""  # what is to be served, and why
    _by_hand: bool = False  # somebody started or stopped an engine by hand
    _held: quarantine.Quarantine | None = None
    _asleep: tuple[standby.Sleeper, ...] = ()
    _left: tuple[tuple[str, str], ...] = ()  # the engines that are left alone now, with their processes

    def __post_init__(self) -> None:
        # The pauses of a controller before this one go on. The file ends with the boot, and so does its clock.
        told = read_liveness(self.fx, self.layout) or {}
        with suppress(ValueError):
            self.book = decode(Book, (told.get("next") or {}).get("book"))

    def look(self) -> None:
        """Look once and act on it. The report is written before an action and at the end."""
        self.looked = self.fx.clock.monotonic()
        state = read_state(self.fx, self.layout)
        self.profile = self._profile(None if state is None else state.profile_name)
        with suppress(SlotFault):
            self._find(state)
        self._forget_failure(state)
        front = FrontdoorLink(self.fx, self.layout).status()
        self.wanted = bool(((front or {}).get("sentinel") or {}).get("verification_wanted_at"))
        for watched in self._open:
            self._sample(watched, front)
            self._await_remote(watched, state)
        if self.fx.clock.monotonic() - self._kernel_at >= KERNEL_S:
            self._read_kernel_log(self.profile)
        self._heed_node()
        units = slot_units(self.fx, self.layout)[0]
        self._asleep = standby.asleep(self.fx.files, self.layout, units)
        busy = "this controller" if self.working else api.at_work(self.fx, self.layout) or ""
        if not busy:
            self._check_ports()
            state = self._close_dead(read_state(self.fx, self.layout), units)
        self.step = next_step(self._view(state, units, busy))
        if self.step.do not in (Do.REST, Do.ASK):
            self._tell()
        self._perform(self.step)
        if not self.working:
            self._publish()
        self._tell()

    def _view(self, state: SlotState | None, units: Sequence[UnitState], busy: str) -> View:
        """Return everything that the next step follows from."""
        fx, now, profile = self.fx, self.fx.clock.monotonic(), self.profile
        memory, held = read_memory(fx, self.layout), quarantine.read(fx, self.layout)
        self._held = held
        if not self.working:
            self.book = self._booked(memory, state, units)
        starts = _stirring(units)
        wedged = any(one.judged.verdict is LivenessVerdict.WEDGED and not one.reported for one in self.engines.values())
        self._left = self._leave(starts)
        kind = RunKind.NOTHING if busy else self._needed()
        return View(
            now=now,
            busy=busy,
            lasting=held.published() if held is not None and held.reason else "",
            lost=held.published() if held is not None and not held.reason else "",
            needs=kind is not RunKind.NOTHING,
            anew=kind is RunKind.SWITCH,
            starts=bool(starts),
            tries=self.book.tries,
            rung=None if busy else self._rung(anew=kind is RunKind.SWITCH),
            wedged=wedged,
            policy=self._policy(memory),
            verify=self._may_verify(state) and self._verification_due(state),
            ask=profile is not None and state is not None and not kind_of(profile.engine.kind).remote,
        )

    def _close_dead(self, state: SlotState | None, units: Sequence[UnitState]) -> SlotState | None:
        """Close what is open for processes that are gone, and return the state after that."""
        # The end of one that is about to end tells whether somebody stopped it.
        ends = any(unit.active == "deactivating" for unit in units)
        why = "the process that was verified is gone"
        if ends or not recover.without_the_dead(state, units, why):
            return state
        try:
            with self._locked(CONTROLLER):
                front = FrontdoorLink(self.fx, self.layout)
                transaction.close_dead(self.fx, self.layout, front, why, api.new_switch_id(self._now()), self.say)
        except (SlotFault, OSError) as error:
            self.say(f"what is gone could not be closed: {error}")
        return read_state(self.fx, self.layout)

    def _booked(self, memory: JournalMemory, state: SlotState | None, units: Sequence[UnitState]) -> Book:
        """Return the book of failed tries: what is served and verified has none."""
        said = memory.wanted
        book = self.book.of("" if said is None else f"{said.profile} {said.at}")
        passed = {} if state is None or state.phase != "serving" else state.passed
        for unit in units:
            if unit.name in book.tries and unit.settled and passed.get(unit.invocation_id):
                book = book.passed(unit.name)
        return book

    def _leave(self, starts: Sequence[UnitState]) -> tuple[tuple[str, str], ...]:
        """Return the engines that are left alone now, with their processes: they pause, or systemd starts them."""
        paused = self.book.paused(self.fx.clock.monotonic())
        return (
            *((unit, tries.invocation) for unit, tries in paused.items()),
            *((unit.name, unit.invocation_id) for unit in starts),
        )

    def _needed(self) -> RunKind:
        """Return what is to be done now to serve what is wanted."""
        request = self._request(CONTROLLER, mode=Mode.BOOT, leave=self._left)
        predicted = predict(self.fx, self.layout, request)
        self._chosen, self._by_hand = predicted.chosen, predicted.tell
        paused = "" in self.book.paused(self.fx.clock.monotonic())
        if predicted.failure is not None:
            self.say(f"not settled: {predicted.failure.message}")
            return RunKind.NOTHING if paused else RunKind.VERIFY
        if predicted.plan.kind is RunKind.FINISH:
            return RunKind.NOTHING if paused else RunKind.FINISH
        self.book = self.book.passed("")
        return predicted.plan.kind

    def _policy(self, memory: JournalMemory) -> Policy:
        """Return what to do about a wedged engine. One that no restart cures is closed."""
        policy = self._settings.policy
        again = policy is not Policy.RESTART or liveness.may_restart(memory.attempts, self._moment())
        return policy if again else Policy.CLOSE

    def _may_verify(self, state: SlotState | None) -> bool:
        profile = self.profile
        # A verification does not wait until nobody is served: clients get doubtful answers meanwhile.
        idle = all(
            one.question is None and (one.judged.verdict is LivenessVerdict.IDLE or (self._urgent and one.works))
            for one in self._open
        )
        if profile is not None and kind_of(profile.engine.kind).remote:
            # It tells nothing about its requests, and the canary is one of many.
            idle = not any(one.silent for one in self._open)
        return bool(self._open) and idle and profile is not None and state is not None and state.verified

    def _perform(self, step: ControllerStep) -> None:
        profile, settings = self.profile, self._settings
        if step.do is Do.SETTLE:
            self._settle(self._request(CONTROLLER, mode=Mode.BOOT, leave=self._left))
        elif step.do is Do.VERIFY and profile is not None:
            self._aside(lambda: self._verify(profile, settings))
        elif step.do is Do.ASK:
            self._ask()
        elif isinstance(step.do, Policy):
            for watched in self.engines.values():
                if watched.judged.verdict is LivenessVerdict.WEDGED and not watched.reported:
                    watched.reported = True
                    self._on_wedged(watched, step.do)
        elif isinstance(step.do, Rung) and (named := profile or self._quarantined) is not None:
            self._take(step.do, named)

    def _aside(self, work: Callable[[], None]) -> None:
        """Carry out what may take as long as a model loads. One at a time."""

        def whole() -> None:
            try:
                work()
            except (SlotFault, OSError) as error:
                self.say(f"that failed, and is tried again: {error}")
            finally:
                self.working = False

        self.working = True
        self.aside(whole)

    @property
    def _settings(self) -> Liveness:
        return Liveness() if self.profile is None else self.profile.liveness

    @property
    def _quarantined(self) -> Profile | None:
        """The profile whose engine led to the quarantine that holds now."""
        return self._profile(None if self._held is None else self._held.profile)

    @property
    def _open(self) -> tuple[Watched, ...]:
        return tuple(one for one in self.engines.values() if not one.closed)

    # Looking

    def _profile(self, name: str | None) -> Profile | None:
        with suppress(SlotFault, OSError):
            return None if name is None else load_profile(self.fx, self.layout, name)
        return None

    def _find(self, state: SlotState | None) -> None:
        """Find the processes that are served now, and closed ones that still run; forget all others."""
        profile = self.profile
        found: dict[str, Watched] = {}
        served = state is not None and state.open and state.phase == "serving" and profile is not None
        if profile is not None and profile.node is not None and profile.node.rank:
            served = False  # of an engine over several hosts only the leader's part has an API
        closed = [one for one in self.engines.values() if one.closed]
        units = {unit.name: unit for unit in slot_units(self.fx, self.layout)[0]} if served or closed else {}
        passed = state.passed if state is not None else {}
        at_work = [name for name, unit in units.items() if unit.invocation_id in passed]
        for single in profile.on(at_work).singles if profile is not None and served else ():
            unit = units.get(single.unit)
            if unit is None or not unit.settled or state is None or unit.invocation_id not in state.passed:
                continue
            known = self.engines.get(unit.invocation_id)
            if known is None or known.closed:
                known = Watched(single, unit, since=self._now(), moved_at=self.fx.clock.monotonic())
            known.single, known.unit = single, unit
            found[unit.invocation_id] = known
        for one in closed:
            unit = units.get(one.unit.name)
            if unit is not None and unit.settled and unit.invocation_id == one.unit.invocation_id:
                found.setdefault(unit.invocation_id, one)
        self.engines = found

    def _heed_node(self) -> None:
        """Start this host's node service if it is down. If that does not help, end an engine over several nodes.

        Its followers end their parts when they hear nothing.
        """
        group, profile = read_slot_file(self.fx, self.layout).nodes, self.profile
        if not self.engines or profile is None or profile.node is None or group is None:
            self._unheard = 0
            return
        name = self.layout.node_unit
        answer = ask(self.fx, self.layout.node_key_file, group, [group.own])[group.own.name]
        self._unheard = self._unheard + 1 if isinstance(answer, str) else 0
        if not self._unheard:
            return
        with suppress(SlotFault):
            if not self.fx.units.show([name])[0].running:
                self.say(f"{name} does not run; it is started")
                self.fx.units.start(name)
        if self._unheard < UNHEARD_LOOKS or api.at_work(self.fx, self.layout) is not None:
            return
        for watched in self.engines.values():
            reason = f"{name} does not answer ({answer}), so the other nodes end their parts"
            self._did("restart", f"{watched.name} is ended, because {reason}", watched)
            self._close(watched, f"{name} of this host does not answer; the model is served again when it does")
            with suppress(SlotFault):
                self.fx.units.kill(watched.unit.name)
        self._unheard = 0

    def _forget_failure(self, state: SlotState | None) -> None:
        """Forget a failed canary once what is served was verified after it."""
        last = self.verification
        if last is not None and last.passed is False and state is not None and (state.verified_at or "") > last.at:
            self.verification = None

    def _sample(self, watched: Watched, front: Mapping[str, Any] | None) -> None:
        self._await_answer(watched)
        engine, patience_s = watched.single.engine, self._settings.patience_s
        names, text = kind_of(engine.kind).metrics, ""
        if names.progress:
            reply = self.fx.http.get(f"{engine.backend_url}/metrics", METRICS_LIMIT_S)
            text = reply.text if reply.status == 200 else ""
        sample = liveness.sampled(self.fx.clock.monotonic(), names, text, _generations(front, watched.single))
        watched.tells = watched.tells or bool(sample.marks)
        asking = watched.question is not None
        if watched.tells or asking:
            sample = replace(sample, question=asking, marks={**sample.marks, "answered": watched.answered})
        still = bool(watched.samples) and not liveness.moved(watched.samples[-1], sample)
        if not still:
            watched.moved_at = sample.at
        watched.samples = liveness.kept((*watched.samples, sample), patience_s)
        judged = liveness.judge(watched.samples, patience_s)
        if judged.verdict is not LivenessVerdict.WEDGED and watched.judged.verdict is LivenessVerdict.WEDGED:
            if still:
                # The waiting clients have given up, which is no sign of work.
                return
            watched.reported = False
            self.say(f"{watched.name} works on")
        if judged.verdict is not watched.judged.verdict:
            watched.since = self._now()
        watched.judged = judged

    def _await_answer(self, watched: Watched) -> None:
        if watched.question is None:
            return
        come = next(watched.question.replies, (0, Reply(0, error="no answer"), 0.0))
        if come is None:
            return
        case, watched.question = watched.question.case, None
        _index, reply, seconds = come
        if reply.status and reply.status < 500:
            watched.answered += 1
        problem = _wrong(watched.single, case, reply, seconds)
        if problem:
            self.say(f"{watched.name} answered the watchdog's question wrongly: {problem}")
            self.suspect = "an answer was wrong"

    def _read_kernel_log(self, profile: Profile | None) -> None:
        if profile is None or not profile.cards:
            return
        self._kernel_at = self.fx.clock.monotonic()
        lines = self.fx.units.kernel_log(KERNEL_LINES)
        new = liveness.since_before(lines, self._kernel or ())
        if self._kernel is None or lines:
            self._kernel = lines
        ours = set(strangers.addresses_of(self.fx, profile).values())
        for fault in card_faults(new):
            if fault.card not in ours and "" not in ours:
                continue
            self.faults[fault.card] += 1
            self.suspect = "a card had a fault"
            self.say(f"the kernel reports a {'lost card' if fault.lost else 'fault of a card'}: {fault.line}")
            if fault.lost:
                self._lost[fault.card] = fault

    def _await_remote(self, watched: Watched, state: SlotState | None) -> None:
        """Call for a verification of an engine elsewhere that was away since the last one: it may be another one now.

        Its relay answers /health with another text each time that it was away, and the state has that of the last
        verification.
        """
        engine = watched.single.engine
        if not kind_of(engine.kind).remote:
            return
        health, known = health_of(self.fx, engine.backend_url), () if state is None else state.engines
        same = (part for part in known if part.get("invocation_id") == watched.unit.invocation_id)
        watched.silent = health is None
        if health is None or health in (watched.health, next(same, {}).get("health")):
            return
        watched.health = health
        self.say(f"{watched.name} was away, and is verified again")
        self.suspect, self._not_before = "it was away", float("-inf")

    def _check_ports(self) -> None:
        """Close an engine that shares its port: the kernel gives a part of the connections to the other process."""
        for watched in self._open:
            others = strangers.on_port(self.fx, watched.single)
            if others:
                self.say(f"{watched.name} shares its port: {strangers.named(others)}")
                self._close(watched, "the port of the engine is shared with a process that was not verified")

    def _due(self) -> str | None:
        """Return when the next step is due (ISO 8601, UTC); None if only an event leads to another one."""
        if self.step.at is None:
            return None
        left = timedelta(seconds=max(0.0, self.step.at - self.fx.clock.monotonic()))
        return stamp(self.fx.clock.now() + left)

    def _now(self) -> str:
        return stamp(self.fx.clock.now())

    def _moment(self) -> Moment:
        boot = ""
        with suppress(OSError):
            boot = quarantine.boot_id(self.fx)
        return Moment(self._now(), boot, self.fx.clock.monotonic())

    # Acting

    def _ask(self) -> None:
        """Ask each engine that serves no client and was not seen to work for a while."""
        now, settings = self.fx.clock.monotonic(), self._settings
        for one in self._open:
            if one.question is None and liveness.may_ask(one.samples[-1], now - one.moved_at, settings.ask_every_s):
                one.moved_at = now
                # The verdict comes before this limit: a request that was given up has no answer.
                one.question = _question(self.fx, one.single, 2 * settings.patience_s)

    def _on_wedged(self, watched: Watched, policy: Policy) -> None:
        reason = (
            f"{watched.name} is wedged: requests wait, and nothing has moved for {watched.judged.flat_s:.0f} s, "
            f"while it answers /health"
        )
        if policy is not self._settings.policy:
            reason += f"; it was restarted {liveness.RESTARTS} times within an hour, so it is closed now"
        self._did(str(policy), reason, watched)
        if policy is Policy.CLOSE:
            why = f"the engine is wedged since {watched.since}; `b70ctl verify` asks it again"
            watched.closed = self._close(watched, why)
            watched.reported = watched.closed
            if watched.closed:
                now = self.fx.clock.monotonic()
                self.book = self.book.failed(watched.unit.name, why, now, watched.unit.invocation_id, held=True)
        elif policy is Policy.RESTART:
            self._settle(self._request(WATCHDOG, mode=Mode.RECOVER, wedged=(watched.unit.invocation_id,), why=reason))

    def _request(self, who: str, **fields: Any) -> Request:
        return Request(
            slot=self.layout.slot,
            drain_timeout_s=0.0,
            switch_id=api.new_switch_id(self._now()),
            who=who,
            **fields,
        )

    def _settle(self, request: Request) -> None:
        """Bring what is seen closer to what is wanted, of several engines one, and book what failed."""

        def work() -> None:
            outcome = Driver(self.own or self.fx, self.layout, request).run()
            self._note(outcome)
            if request.who == WATCHDOG:
                self._came_of(str(outcome.end))

        self._aside(work)

    def _note(self, outcome: Outcome) -> None:
        failed = outcome.failures and not outcome.failures[-1].told
        if outcome.failures or outcome.changed:
            self.say(api.message(self.layout, outcome))
        if outcome.failures and outcome.failures[0].phase is Phase.LOCK:
            return
        now = self.fx.clock.monotonic()
        if not failed or outcome.end is End.ROLLED_BACK:
            # The next look strikes out the tries of what is as wanted by then, and of nothing else.
            if outcome.plan.kind is RunKind.FINISH:
                self.book = self.book.failed("", "what is served could not be recorded", now)
            return
        try:
            left = {unit.name: unit.invocation_id for unit in slot_units(self.fx, self.layout)[0]}
        except SlotFault:
            left = {}
        reason = reason_of(outcome.failures)
        for unit in outcome.units or outcome.seen.target_units or ("",):
            self.book = self.book.failed(unit, reason, now, left.get(unit, ""))

    def _came_of(self, outcome: str) -> None:
        if self.action is not None:
            self.action = replace(self.action, outcome=outcome)

    def _did(self, what: str, reason: str, watched: Watched | None = None, detail: str = "") -> None:
        """Report the next action, in the journal too. detail: what clients must not see."""
        self.action = Action(self._now(), what, reason)
        self.counts[what] += 1
        self._tell()
        reason += detail and f": {detail}"
        self.say(f"{what}: {reason}")
        line = encode(
            "liveness",
            at=self.action.at,
            slot=self.layout.slot,
            unit=None if watched is None else watched.unit.name,
            invocation_id=None if watched is None else watched.unit.invocation_id,
            action=what,
            reason=reason,
        )
        try:
            self.fx.files.append(self.layout.journal_file, line, sync=True)
        except OSError as error:
            self.say(f"that could not be written to the journal: {error}")

    def _locked(self, who: str) -> AbstractContextManager[None]:
        """Hold the slot's lock for a moment. A command that comes meanwhile waits."""
        note = f"pid {os.getpid()} ({who}) since {self._now()}: {SETTLING}"
        return self.fx.locks.hold(self.layout.lock_file, note, 0.0)

    def _close(self, watched: Watched, reason: str) -> bool:
        """Close the frontdoor for this process. Return whether it was the one that is served, and is closed now."""
        try:
            with self._locked(WATCHDOG):
                state = read_state(self.fx, self.layout)
                live = set() if state is None else {*state.passed} - {watched.unit.invocation_id}
                gone = {} if state is None else replicas.without_the_dead(state, live, reason, reason)
                if state is not None and gone:
                    FrontdoorLink(self.fx, self.layout).publish(state.fields | gone)
                    return True
        except (SlotFault, OSError) as error:
            self.say(f"the frontdoor could not be closed: {error}")
        return False

    # The canary while idle

    def _verification_due(self, state: SlotState | None) -> bool:
        if self.fx.clock.monotonic() < self._not_before:
            return False
        at, now = "" if state is None else state.verified_at or "", self._moment()
        if at != self._verified.at:
            # From the first look at it on, no date that jumps counts.
            age = Moment(at).age_s(now)
            self._verified = Moment(at, now.boot, self.fx.clock.monotonic() - age)
        return bool(self._urgent) or liveness.due(self._settings.verify_every_s, self._verified, now)

    @property
    def _urgent(self) -> str:
        """Return why a verification is due whatever the time; empty if it is not."""
        return self.suspect or ("degenerate answers call for it" if self.wanted else "")

    def _verify(self, profile: Profile, settings: Liveness) -> None:
        """Run the canary on the engines that are served, in the transaction of `b70ctl verify`."""
        self._not_before = self.fx.clock.monotonic() + AGAIN_S
        urgent, remote = self._urgent, kind_of(profile.engine.kind).remote
        # Clients get no answers of an engine that answers wrongly, whatever the policy for one that is only stuck.
        policy = Policy.RESTART if settings.policy is Policy.RESTART else Policy.CLOSE
        wanted = self._request(
            WATCHDOG,
            profile=profile.name,
            recheck=True,
            while_idle=not remote and not urgent,
            # An engine elsewhere may have become another one, which nobody has verified.
            on_failure=OnFailure.ROLLBACK if remote or policy is Policy.RESTART else OnFailure.LEAVE,
            why=f"a canary beside clients: {urgent}" if urgent else "a canary while nobody is served: it was time",
        )
        begun = self._now()
        outcome = Driver(self.own or self.fx, self.layout, wanted).run()
        if not outcome.failures:
            self.suspect = ""
            self.verification = Verification(self._now(), True)
            return
        failure = outcome.failures[0]
        wrong = failure.phase in STARTING and not failure.told
        why_not = "it gave way to clients" if failure.told else reason_of((failure,))
        # A failure dates from the start of the run: a process that was verified later has not failed.
        self.verification = Verification(begun, False if wrong else None, why_not)
        if wrong:
            self.suspect = ""
            self._did(str(policy), "the canary of what is served failed", detail=failure.message)
            self._came_of(str(outcome.end))
        else:
            self.say(f"not verified: {failure.message}")

    # The ladder

    def _rung(self, *, anew: bool) -> Rung | None:
        """Return the next rung for a lost card whose engine does no work; None if there is none."""
        held = self._held
        wedged = any(one.judged.verdict is LivenessVerdict.WEDGED for one in self.engines.values())
        # The engine died of the lost card, and the slot could not restart it. One that a person stopped stays down.
        given_up = anew and held is not None and not held.reason and held.slot == self.layout.slot
        named = self.profile or self._quarantined
        if named is None or not (given_up or (self._lost and wedged)):
            return None
        last = decode_written(Climb, text_of(self.fx, self.layout.climb_file), SCHEMA)
        return liveness.next_rung(named.liveness.device_loss, last, self._moment())

    def _take(self, rung: Rung, profile: Profile) -> None:
        held = self._held
        wedged = tuple(key for key, one in self.engines.items() if one.judged.verdict is LivenessVerdict.WEDGED)
        line = next((fault.line for fault in self._lost.values()), held.line if held is not None else "")
        self._read_kernel_log(profile)  # its lines about this may be newer than the last look
        self._did(str(rung), f"a card of {profile.name} is lost")
        wanted = self._request(
            WATCHDOG,
            mode=Mode.RECOVER,
            wedged=wedged,
            rebind=True,
            lost=tuple(sorted(self._lost)),
            why="a card is lost; its driver is rebound",
        )
        if held is None:
            unit = next((one.unit for one in self.engines.values()), UnitState(profile.unit))
            cause = quarantine.Cause(wanted.switch_id, profile.name, "device_lost", line, unit)
            for text in quarantine.impose(self.fx, self.layout, cause)[1]:
                self.say(text)
        # Recorded first, so that it counts as tried whatever the result.
        self.fx.files.write(self.layout.climb_file, document(Climb(rung, self._moment()), SCHEMA))
        self._lost.clear()
        if rung is Rung.REBIND:
            self._settle(wanted)
        elif rung is Rung.REBOOT:
            self.fx.units.reboot()
        else:
            reason = "a card was lost again after its driver was rebound"
            self.say(str(api.isolate(self.fx, self.layout, WATCHDOG, reason)["msg"]))

    # Telling

    def _publish(self) -> None:
        """Tell clients why nothing is served, and when that is tried again: there is always a state file."""
        state = read_state(self.fx, self.layout)
        # A run at work reports its own steps, and why it failed.
        busy = self.step.why == BUSY or api.at_work(self.fx, self.layout) is not None
        if busy or (state is not None and state.open):
            return
        told = "" if state is None or self._by_hand else state.reason
        # The reason why an engine ended says more than that it starts again.
        first, second = (told, STARTS) if self.step.why == STARTS else (self.step.why, told)
        why = first or second or self._chosen
        at, left = self._due(), (self.step.at or 0.0) - self.fx.clock.monotonic()
        if at is not None:
            why += f"; the next try is at {at}"
        wanted = read_memory(self.fx, self.layout).wanted if state is None else None
        known = {"idle": wanted and wanted.idle_part} if state is None else {**state.fields, "switch": None}
        phase = "failed" if self.step.why else "stopped" if state is None or self._by_hand else state.phase
        if not why or (state is not None and (state.reason, state.phase) == (why, phase)):
            return
        later = None if at is None else max(1, round(left))
        try:
            FrontdoorLink(self.fx, self.layout).publish(
                {**known, "phase": phase, "open": False, "verified": False, "reason": why, "retry_after_s": later}
            )
        except (SlotFault, OSError) as error:
            self.say(f"clients can't be told why nothing is served: {error}")

    def _card_rows(self) -> tuple[CardReading, ...]:
        nodes = {} if self.profile is None else strangers.addresses_of(self.fx, self.profile)
        rows = {pci: CardReading(pci) for pci in (*nodes.values(), *self.faults) if pci}
        for card in self.fx.processes.card_memory(tuple(nodes)):
            rows[nodes[card.node]] = CardReading(nodes[card.node], card.used, card.total, card.ecc)
        return tuple(replace(card, faults=self.faults[pci]) for pci, card in sorted(rows.items()) if pci)

    def _tell(self) -> None:
        profile = self.profile
        rows = tuple(
            Row(
                one.single.replica,
                one.unit.name,
                one.unit.invocation_id,
                str(one.judged.verdict),
                one.since,
                round(one.judged.flat_s),
                _reason(one),
            )
            for one in sorted(self.engines.values(), key=lambda one: one.single.replica or 0)
        )
        told = Told(
            at=self._now(),
            slot=self.layout.slot,
            profile=None if profile is None else profile.name,
            policy=None if profile is None else str(self._settings.policy),
            engines=rows,
            verification=self.verification,
            action=self.action,
            counts={what: self.counts[what] for what in ACTIONS},
            cards=self._card_rows(),
            next=Next(self._chosen, str(self.step.do), self.step.why, self._due(), self.book, self.looked),
            standby=self._asleep,
        )
        try:
            self.fx.files.write(self.layout.liveness_file, document(told, SCHEMA))
        except OSError as error:
            self.say(f"what is seen can't be told: {error}")


def run(controller: Controller, told: Callable[[], bool], wait: Callable[[float], object]) -> None:
    """Look until told to stop, or until its own files change: systemd then starts the new version.

    wait: takes seconds, and returns earlier if something has happened.
    """
    fx, begun = controller.fx, _program(controller.fx)
    with suppress(ToldToEndFault):
        while not told() and (controller.working or _program(fx) == begun):
            try:
                controller.look()
            except (SlotFault, OSError) as error:
                controller.say(f"this look failed, the next one follows: {error}")
            due = controller.step.at
            wait(LOOK_S if due is None else min(LOOK_S, max(0.1, due - fx.clock.monotonic())))


def _stirring(units: Sequence[UnitState]) -> tuple[UnitState, ...]:
    """Return the units that systemd is about to start again, or that are about to end: they are awaited."""
    awake = [unit for unit in units if not unit.asleep]
    return tuple(unit for unit in awake if unit.sub == "auto-restart" or unit.active == "deactivating")


def _reason(one: Watched) -> str:
    if one.judged.verdict is not LivenessVerdict.WEDGED:
        return ""
    return "closed: requests waited and nothing moved" if one.closed else "requests wait and nothing moves"


def _program(fx: Effects) -> object:
    root = PurePosixPath(__file__).parents[1]
    folders = (root, *(root / name for name in fx.files.names(root)))
    files = (folder / name for folder in folders for name in fx.files.names(folder) if name.endswith(".py"))
    return {file: fx.files.modified(file) for file in files}


def _generations(front: Mapping[str, Any] | None, single: Profile) -> int | None:
    """Return how many generations the frontdoor runs on this engine; None if it does not tell."""
    rows = (front or {}).get("replicas")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and row.get("index") == (single.replica or 0):
            found = row.get("active_generations")
            return found if isinstance(found, int) else None
    return None


def _question(fx: Effects, single: Profile, limit_s: float) -> WatchdogQuestion | None:
    """Ask what has a short answer that is known, for one token, or for the numbers of one text; don't wait for it."""
    task, case = single.engine.task, canaries.known_question(single)
    if task == "transcription":
        return None
    if task in POOLING:
        body = pooling.payload(single, pooling.PROBES[task])
    elif case is not None:
        salt = f"watchdog-{fx.clock.monotonic():.6f}"
        body = canaries.salted(single, canaries.payload(single, case), salt)
    else:
        body = canaries.first_token_payload(single, logprobs=False)
    url = f"{single.engine.backend_url}{pooling.PATHS.get(task, canaries.PATH)}"
    return WatchdogQuestion(fx.http.post_together(url, [body], limit_s), case)


def _wrong(single: Profile, case: CanaryCase | None, reply: Reply, seconds: float) -> str:
    """Return what is wrong with the answer to the watchdog's question, or "". One that never came is no answer."""
    if not reply.status:
        return ""
    try:
        if single.engine.task in POOLING:
            return pooling.check_answer(single, pooling.PROBES[single.engine.task], reply, seconds, 1).problem
        got = canaries.answer(reply, single, case)
        result = None if case is None else canaries.evaluate(single, case, got, seconds, 1)
    except SlotFault as fault:
        return fault.message
    return "" if result is None or result.passed else result.problem or "it is another one than the canary's"
