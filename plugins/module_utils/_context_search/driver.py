# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search as one run of the slot's switch: it starts its engine several times, never opens, and goes back.

The run has the switch's own lock, journal entry and way back. A search that is killed is an interrupted switch, which
the host settles by itself, with the profile that was verified before. While a trial is in place of the profile, the
profile's rendering waits for a switch. So whatever becomes of the search, a switch to the profile takes that rendering
and no trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from .._slot.ask import token_prompts
from .._slot.decide import machine
from .._slot.do import phases, transaction
from .._slot.do.driver import Driver, predict
from .._slot.do.run import Run
from .._slot.kinds.symptoms import diagnose
from .._slot.look import guards
from .._slot.look.observe import load_wanted
from .._slot.model.profile import parse_profile
from .._slot.model.rendering import Rendering, engines_in, in_place, pending, put_in_place
from .._slot.words.effects import Effects
from .._slot.words.types import BESIDE, Layout, OnFailure, Phase, Request, SlotFault, ToldToEndFault
from . import probes
from .lengths import Bounds, SearchEnd, Trial, next_length
from .trial import length_of, longest, read_trial, refused_trial, sequences_of, with_length

LOG_LINES = 5000
_DOES_NOT_FIT = "context_does_not_fit"
_DONE = "the search for a context is done, and the slot goes back"


@dataclass(frozen=True)
class SearchPlan:
    """The range of a search. most: 0 takes the longest context that the model knows.

    probe_timeout: seconds for each probe of a length that passes; 0 sends none.
    """

    profile: str
    sequences: int
    granularity: int
    least: int
    most: int
    probe_timeout: float = 0.0


class _Files:
    """The host's files. Until the first start, the trial takes the place of the rendering that waits for a switch."""

    def __init__(self, fx: Effects, place: PurePosixPath) -> None:
        self._files, self._place = fx.files, place
        self.trial: Rendering | None = None

    def read(self, path: PurePosixPath) -> str | None:
        if path == self._place and self.trial is not None:
            return self.trial.to_json()
        return self._files.read(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class Search(Driver):
    """`run` searches and goes back. If the search broke off, `found` is None and the outcome says why.

    :param say: is called before each step, with the search as it is then.
    :raises SlotFault: if there is nothing to search; nothing was touched.
    """

    def __init__(
        self, fx: Effects, layout: Layout, request: Request, plan: SearchPlan, say: Callable[[Search, str], None]
    ) -> None:
        self._plan, self._say, self._real = plan, say, fx
        self._base, self.profile = base(fx, layout, plan.profile), load_wanted(fx, layout, plan.profile)
        length = length_of(self._base)
        config = fx.files.read(PurePosixPath(self.profile.model.path) / "config.json")
        self.bounds = Bounds(plan.least or plan.granularity, plan.most or longest(config, length))
        self.trials: list[Trial] = []
        self.found: SearchEnd | None = None
        self.version = ""  # what the engine answers at /version
        self.before: Rendering | None = None  # the rendering that waits for a switch because a trial has its place
        self._files = _Files(fx, layout.pending(plan.profile))
        super().__init__(replace(fx, files=self._files), layout, replace(request, on_failure=OnFailure.ROLLBACK))
        step = self._next()
        if step is None:
            raise SlotFault(
                f"no multiple of {plan.granularity} lies between {self.bounds.least} and {self.bounds.most}"
            )
        self._files.trial = with_length(self._base, step)
        self._do[Phase.GUARD] = self._guard
        self._do[Phase.START] = self._keep_and_start
        self._do[Phase.ALIVE] = self._search_or_alive
        self._do[Phase.COMMIT] = self._commit_and_put_back
        self._begin = fx.clock.monotonic

    def check(self) -> None:
        """Raise SlotFault if the search would be refused now. Touch nothing."""
        most, wanted = sequences_of(self.profile), self._plan.sequences
        if most is not None and most < wanted:
            raise SlotFault(
                f"the engine of {self.profile.name} works on {most} sequences at once, so {wanted} never fill its "
                f"cache together; set engine.settings.max_num_seqs to {wanted} or more, or search for {most} at most"
            )
        found = predict(self._fx, self._run.layout, self._run.request)
        if found.failure is not None:
            raise SlotFault(found.failure.describe())
        _check_way_back(self._fx, found.seen, found.plan)

    def _guard(self, run: Run) -> None:
        transaction.guard(run)
        _check_way_back(run.fx, run.seen, run.plan)
        if base(self._real, run.layout, self._plan.profile) != self._base:
            raise SlotFault(f"{self._plan.profile} was rendered anew as the search began; run it again")

    def _keep_and_start(self, run: Run) -> None:
        """Start the first trial. It takes the place of the profile's rendering, which then waits for a switch."""
        if not run.going_back:
            self._files.trial = None  # the switch has read it
            place = run.layout.pending(self._plan.profile)
            if self._files.read(place) is None:
                self.before = self._base
                self._say(self, "keeps the rendering of the profile")
                self._files.write(place, self._base.to_json())
        phases.start(run)

    def _commit_and_put_back(self, run: Run) -> None:
        transaction.commit(run)
        try:
            if self.before is not None:
                _put_back(self._real, run.layout, self.before)
                self.before = None
        except (SlotFault, OSError) as error:
            run.warn(f"a trial is in place of {self._plan.profile} until the next switch to it ({error})")

    def _next(self) -> int | None:
        step = next_length(self.trials, self._plan.sequences, self._plan.granularity, self.bounds)
        if isinstance(step, SearchEnd):
            self.found = step
            return None
        self._say(self, f"starts the engine with {step} tokens")
        return step

    def _search_or_alive(self, run: Run) -> None:
        """Do what every switch does on the way back. Forward, run all trials, then fail to begin the way back."""
        if run.going_back:
            self._alive(run)
            return
        while True:
            self._try(run)
            step = self._next()
            if step is None:
                self._say(self, "goes back to the profile that was served")
                raise SlotFault(_DONE)
            new = with_length(self._base, step)
            phases.stop(run)
            phases.release(run)
            run.know(
                seen=replace(run.seen, target=parse_profile(new.profile, f"the trial of {new.name}"), rendering=new)
            )
            run.engine = None
            phases.start(run)

    def _try(self, run: Run) -> None:
        length, begun = run.profile.engine.max_model_len or 0, self._begin()
        try:
            self._alive(run)
            phases.health(run)
        except SlotFault:
            lines = self._log(Phase.HEALTH)[0]
            match = diagnose(lines)
            if match is None or match.symptom.id != _DOES_NOT_FIT:
                raise
            self.trials.append(refused_trial(length, lines, self._begin() - begun))
            return
        self.version = run.fx.http.get(f"{run.profile.engine.backend_url}/version", 5.0).text
        lines = run.fx.units.log(run.unit(run.profile.unit), LOG_LINES)
        trial = read_trial(length, lines, self._begin() - begun)
        asks = self._plan.probe_timeout > 0 and run.profile.engine.task == "generate"
        if not (asks and trial.passes(self._plan.sequences)):
            self.trials.append(trial)
            return
        found, problem = self._probe(run, length)
        log, runs = self._log(Phase.HEALTH)
        match = diagnose(log) if problem else None
        if match is not None and (match.symptom.quarantines or not runs):
            problem = f"{problem}; {match.symptom.meaning}"
        self.trials.append(replace(trial, probes=found, problem=problem))
        if match is not None and match.symptom.quarantines:
            raise SlotFault(f"{length} tokens: {problem}")

    def _probe(self, run: Run, length: int) -> tuple[dict[str, Any], str]:
        """Return the figures of the probes by name, and why the last one failed (empty: none did)."""
        found: dict[str, Any] = {}
        limit_s, turn = self._plan.probe_timeout, 0
        try:
            known = token_prompts.tokens(run.fx, run.profile, limit_s)
        except SlotFault as fault:
            raise SlotFault(f"{fault.message}; probe_timeout 0 sends none", got=fault.got) from fault
        for probe in probes.probes(length, self._plan.sequences):
            self._say(self, f"sends {probe.requests} requests {probe.words} of {length} tokens")
            sent = probes.bodies(run.profile, probe, known, turn)
            turn += len(sent)
            try:
                row = probes.send(run.fx, run.profile, probe, sent, limit_s, lambda: phases.current_engine(run))
            except ToldToEndFault:
                raise
            except SlotFault as fault:
                return found, f"{fault.message}, while it was asked {probe.words}"
            found[probe.name] = row
            if row["failed"]:
                return found, f"{row['failed']} of {probe.requests} requests {probe.words} failed: {row['error']}"
        return found, ""


def base(fx: Effects, layout: Layout, name: str) -> Rendering:
    """Return what a switch to the profile would take; raise SlotFault if there is nothing."""
    found = pending(fx.files, layout, name) or in_place(fx.files, layout, name)
    if found is None:
        load_wanted(fx, layout, name)  # its fault says which names there are
        raise SlotFault(f"a part of the rendering of {name} is missing; run switch.yml to {name} once")
    if found.more and BESIDE not in engines_in(found.profile):
        count = len(found.engines)
        raise SlotFault(
            f"{name} has {count} replicas, and a search is about one engine; search with a profile that extends {name} "
            "and sets replicas: 1, the length holds for each of them"
        )
    return found


def restore(fx: Effects, layout: Layout, before: Rendering) -> None:
    """Put back what a killed search has kept, unless something else was rendered or switched to since.

    The trial may still run: the host stops it when it settles the search.
    """
    with fx.locks.hold(layout.lock_file, "putting back what a search for a context replaced", 60.0):
        _put_back(fx, layout, before)


def _put_back(fx: Effects, layout: Layout, before: Rendering) -> None:
    place = layout.pending(before.name)
    if fx.files.read(place) == before.to_json():
        put_in_place(fx, layout, before)
        fx.files.remove(place)


def _check_way_back(fx: Effects, seen: machine.SlotSeen, plan: machine.SwitchPlan) -> None:
    """Raise SlotFault unless what runs can be started again: a search always goes back to what was verified last."""
    back = plan.previous
    running = [unit.name for unit in (*seen.units, *seen.legacy) if unit.running]
    if running and (back is None or not {*back.units} & {*running}):
        why = f" ({seen.previous_problem})" if seen.previous_problem else ""
        raise SlotFault(
            f"there is no way back to {running[0]}, which runs{why}: it is not what was verified last; "
            "switch to a profile with the gate `verified`, or stop the slot"
        )
    lacks = "" if back is None else guards.lacking(fx, back, ())
    if lacks:
        raise SlotFault(f"there is no way back: {lacks}")
