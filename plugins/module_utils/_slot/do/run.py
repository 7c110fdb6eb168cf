# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The things that the phases of one run share: the effects, what was seen and planned, and the evidence so far."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from .. import caches
from ..ask.canary import CanaryResult
from ..decide.machine import RunKind, SlotSeen, SwitchPlan, SwitchStep
from ..kinds.table import kind_of
from ..look import wait_estimate
from ..look.frontdoor import FrontdoorLink
from ..model.load_times import driver_of, key_of
from ..model.profile import Profile
from ..model.published import reason_of
from ..model.quarantine import BOOT_ID
from ..model.rendering import Rendering
from ..words.effects import Effects, poll, text_of
from ..words.types import (
    Direction,
    Failure,
    GaveWayFault,
    Holder,
    Layout,
    Mode,
    Neighbour,
    PhaseRecord,
    Request,
    SlotFault,
    UnitState,
    Way,
)
from .progress import ProgressFile

KERNEL_RELEASE = PurePosixPath("/proc/sys/kernel/osrelease")
DPKG_STATUS = PurePosixPath(caches.DPKG_STATUS)
_WORTH_A_WORD_S = 60.0  # a start that is expected to be shorter is not announced


@dataclass
class EngineRun:
    """An engine process that this run works with. restarts: the unit's restart count when the run took it over."""

    profile: Profile
    restarts: int = 0
    invocation_id: str = ""
    started_at: str = ""
    begun: float | None = None  # monotonic time of its start, if this run started it
    key: str = ""  # the name under which its load time is remembered
    health: str = ""  # what /health answered before it was verified


@dataclass(frozen=True)
class EngineLoad:
    """The time of an engine from its start until it was healthy."""

    key: str
    seconds: float


@dataclass(frozen=True)
class Wait:
    """The wait of clients in this direction: when it began (UTC, and monotonic), and how long it will probably be."""

    since: str
    begun: float
    key: str = ""
    eta_s: float | None = None


@dataclass(frozen=True)
class Known:
    """The look at the host, and what is done about it. chosen: why mode RECOVER or BOOT chose what it did. beside:
    strangers on cards of the profile to go back to, before anything was touched."""

    seen: SlotSeen = field(default_factory=SlotSeen)
    plan: SwitchPlan = field(default_factory=lambda: SwitchPlan(RunKind.NOTHING))
    chosen: str = ""
    beside: tuple[Holder, ...] = ()


@dataclass
class Evidence:
    """The evidence of a run. journaled: the journal holds its begin; recorded: and its end."""

    records: list[PhaseRecord] = field(default_factory=list)
    canary: list[CanaryResult] = field(default_factory=list)
    recorded_cases: tuple[str, ...] = ()  # canary cases whose answers became the baseline
    loads: list[EngineLoad] = field(default_factory=list)
    warmed: list[Any] = field(default_factory=list)  # of `warming.Warmed`
    actions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failures: tuple[Failure, ...] = ()
    journaled: bool = False
    recorded: bool = False


@dataclass
class Clients:
    """The situation of the slot's clients: what is served now, and what they wait for.

    closed_at: monotonic time at which the run first closed the frontdoor. cleared: other slots that were told to stop.
    """

    served: Profile | None = None
    verified: bool = False
    verified_at: str | None = None
    wait: Wait | None = None
    closed_at: float | None = None
    cleared: list[Neighbour] = field(default_factory=list)


@dataclass
class Run:
    fx: Effects
    layout: Layout
    request: Request
    front: FrontdoorLink
    progress: ProgressFile
    known: Known = field(default_factory=Known)
    evidence: Evidence = field(default_factory=Evidence)
    clients: Clients = field(default_factory=Clients)
    direction: Direction = Direction.FORWARD
    scope: tuple[int, ...] | None = None  # places of the profile's engines that the run is about now; None: all
    batch: int | None = None  # the index of the plan's batch that is replaced now
    undoing: bool = False  # whether the target's engine is stopped before any client knows it
    gave_up: bool = False  # a batch failed both ways, and is closed and stopped
    cold: bool = False  # the engine of this direction was woken in vain, and is loaded
    cut_off: bool = False  # generations are left that only the end of their engine ends
    slept: dict[str, int] = field(default_factory=dict)  # units whose engine this run put to sleep, with the level
    woken: bool = False  # the engine of this direction was asleep before
    engines: list[EngineRun] = field(default_factory=list)  # one for each engine of the scope
    engine: EngineRun | None = None  # the one that is checked now, or was checked last
    wrong: tuple[EngineRun, ...] = ()  # those that failed a canary while they served
    canary_passed: bool = False  # in this direction
    lost: str = ""  # the node whose loss ended the engine in the phase that failed last, and why
    _driver_words: str = ""

    @property
    def seen(self) -> SlotSeen:
        return self.known.seen

    @property
    def plan(self) -> SwitchPlan:
        return self.known.plan

    def know(self, **fields: Any) -> None:
        """Take over what was seen or planned."""
        self.known = replace(self.known, **fields)

    @property
    def profile(self) -> Profile:
        """The profile that this direction leads to. Raise SlotFault if there is none."""
        profile = self.plan.previous if self.direction is Direction.BACK else self.seen.target
        if profile is None:
            raise SlotFault("this direction leads to no profile")
        return profile

    @property
    def singles(self) -> tuple[Profile, ...]:
        """The profile once for each engine that this run is about."""
        return tuple(
            single for place, single in enumerate(self.profile.singles) if self.scope is None or place in self.scope
        )

    @property
    def rolling(self) -> bool:
        """Return whether engines are replaced in batches. If that fails both ways, all of them stop together."""
        return bool(self.plan.batches) and self.direction is not Direction.HALT

    @property
    def beside_old(self) -> bool:
        """Return whether the target's engine starts and opens while the old one still runs."""
        return self.plan.beside and self.direction is Direction.FORWARD

    @property
    def spares(self) -> bool:
        """Return whether only units that are not the target's are stopped."""
        return self.plan.spares and self.direction is Direction.FORWARD

    @property
    def partial(self) -> bool:
        """Return whether the current step leaves other engines of the profile as they are."""
        return self.plan.partial or self.rolling

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the batch that is being replaced; empty if all engines are."""
        return self.scope or () if self.rolling else ()

    @property
    def last_batch(self) -> bool:
        """Return whether all engines are replaced after this batch."""
        return self.direction is Direction.FORWARD and self.batch in (None, len(self.plan.batches) - 1)

    def shown(self, *, opens: bool = False) -> Profile:
        """Return the profile that the state file describes: the old one until the last batch is open."""
        before = self.plan.previous
        return before if self.rolling and before is not None and not (opens and self.last_batch) else self.profile

    def about(self, step: SwitchStep) -> None:
        """Point the run at the engines of this step."""
        if step.direction is not self.direction:
            self.woken = False
        self.direction, self.batch, self.undoing, self.cold = step.direction, step.batch, step.undoes, step.cold
        if self.plan.batches:
            self.scope = None if step.batch is None else self.plan.batches[step.batch]

    @property
    def wakes(self) -> int:
        """Return the level at which this direction's engine sleeps, and from which it is to be woken; 0 for none."""
        if self.cold or self.direction is Direction.HALT:
            return 0
        return self.plan.wakes if self.direction is Direction.FORWARD else self.slept.get(self.profile.unit, 0)

    @property
    def way(self) -> Way:
        """The way that was taken: an engine that was woken in vain was loaded."""
        return Way.PLAIN if self.cold and self.plan.wakes else self.plan.way

    @property
    def picking(self) -> bool:
        """Return whether the run may go on with the first of several engines that is ready, and with no other."""
        settles = self.partial and self.plan.kind is RunKind.VERIFY and self.request.mode is not Mode.SWITCH
        return settles and self.direction is Direction.FORWARD

    def each(self) -> Iterator[EngineRun]:
        """Yield each engine as the current one: a failure meanwhile is attributed to it."""
        for engine in tuple(self.engines):
            self.engine = engine
            yield engine

    def narrow(self, *engines: EngineRun) -> None:
        """Narrow the run to these engines."""
        self.engine, self.engines = engines[0], list(engines)
        self.scope = tuple(self.profile.units.index(engine.profile.unit) for engine in engines)

    @property
    def rendering(self) -> Rendering | None:
        """Return what the engine of this direction starts from; None if it has no files."""
        return self.seen.back if self.direction is Direction.BACK else self.seen.rendering

    @property
    def going_back(self) -> bool:
        """Return whether this direction leads to what was verified before, not to what somebody requests now."""
        return self.direction is Direction.BACK or self.request.mode is not Mode.SWITCH

    @property
    def sets_boot(self) -> bool:
        """Return whether the run disables units before it stops them. If nobody asked for it, what boots is what is
        wanted."""
        return self.request.mode is Mode.SWITCH or not self.request.active

    @property
    def rechecking(self) -> bool:
        """Return whether an engine is verified again while it serves."""
        return self.plan.kind is RunKind.RECHECK and self.direction is Direction.FORWARD

    @property
    def served_before(self) -> str | None:
        """The profile whose engine was in the slot when the run began."""
        state = self.seen.state
        if state is not None and state.phase == "serving" and state.profile_name:
            return state.profile_name
        running = next((unit.name for unit in self.seen.units if unit.running), None)
        if running is not None:
            return self.layout.profile_of(running)
        return self.seen.verified.profile if self.seen.verified is not None else None

    @property
    def warm(self) -> bool:
        """Return whether the profile was started since the boot, so that its weights may be in the host's memory."""
        boot = (text_of(self.fx, BOOT_ID) or "").strip()
        return any(one.target == self.profile.name and one.boot == boot for one in self.seen.memory.attempts)

    def load_key(self, profile: Profile) -> str:
        """Return the name under which the next start of the profile is remembered."""
        cache = kind_of(profile.engine.kind).cache_folder(profile.engine.env)
        cached = cache is None or not self._cold(profile, PurePosixPath(cache))
        driver = self._driver() if profile.cards > 0 else ""
        return key_of(profile.name, profile.stack.id, driver, cached=cached, asleep=self.wakes)

    def _cold(self, profile: Profile, cache: PurePosixPath) -> str:
        """Return in a word why the next start finds nothing compiled in this cache; empty if it finds something."""
        names = self.fx.files.names
        packages = text_of(self.fx, DPKG_STATUS) if profile.cards > 0 and not profile.stack.image else None
        wanted = caches.provenance(profile.stack.id, profile.stack.image, packages, cards=profile.cards > 0)
        have = text_of(self.fx, cache / caches.FILE)
        if caches.warm(cache.name, names(cache), have, names(cache.parent), wanted):
            return ""
        return "stale" if caches.is_stale(have, wanted) else "cold"

    def compiles_first(self, profile: Profile) -> str:
        """Return a sentence about a start that compiles for minutes before it serves; empty if it does not."""
        engine = profile.engine
        kind = kind_of(engine.kind)
        cache = kind.cache_folder(engine.env)
        cold = cache and kind.compiles(engine.settings, engine.env) and self._cold(profile, PurePosixPath(cache))
        if not cold:
            return ""
        eta_s = wait_estimate.wait_s(self.fx, self.layout, self.seen.memory.load_times, self.load_key(profile))
        if eta_s is not None and eta_s < _WORTH_A_WORD_S:
            return ""
        most = "" if eta_s is not None else "up to "
        minutes = math.ceil((engine.start_timeout_s if eta_s is None else eta_s) / 60)
        return (
            f"the compile cache of {profile.name} is {cold}: expect {most}{minutes} minutes until its engine is ready"
        )

    def _driver(self) -> str:
        """Return the driver and compiler of this host, looked up once."""
        if not self._driver_words:
            self._driver_words = driver_of(text_of(self.fx, KERNEL_RELEASE), text_of(self.fx, DPKG_STATUS))
        return self._driver_words

    def retry_after_s(self, default: int) -> int:
        """Return what clients are told: the rest of the wait, or the default if no earlier start is known."""
        wait = self.clients.wait
        if wait is None or wait.eta_s is None:
            return default
        return max(1, math.ceil(wait.eta_s - (self.fx.clock.monotonic() - wait.begun)))

    def give_way(self) -> None:
        """Raise GaveWayFault if the engine may only be asked while no client is served, and one is."""
        if not (self.request.while_idle and self.rechecking):
            return
        told = self.front.status() or {}
        if any(told.get(f"{name}_generations") for name in ("active", "queued")):
            raise GaveWayFault

    def did(self, action: str) -> None:
        self.evidence.actions.append(action)

    def warn(self, text: str) -> None:
        if text not in self.evidence.warnings:
            self.evidence.warnings.append(text)
            self.progress.say("note", text=text)

    def poll(self, limit_s: float, interval_s: float) -> Iterator[float]:
        return poll(self.fx.clock, limit_s, interval_s)

    def unit(self, name: str) -> UnitState:
        return self.fx.units.show([name])[0]

    def reason(self) -> str:
        """Return the failures so far in one line for the frontdoor's answer, without anything that they quote."""
        return reason_of(self.evidence.failures)


def switch_part(run: Run, *, loading: bool = False) -> Mapping[str, Any]:
    """Return the `switch` part of the state file. loading: the engine's process runs, and does not answer yet."""
    eta_s = None if run.clients.wait is None else run.clients.wait.eta_s
    return {
        "id": run.request.switch_id,
        "from": run.served_before,
        "to": run.profile.name if run.direction is not Direction.HALT and run.request.active else None,
        "started_at": "" if run.clients.wait is None else run.clients.wait.since,
        "eta_s": None if eta_s is None else round(eta_s),
        "loading": loading,
    }
