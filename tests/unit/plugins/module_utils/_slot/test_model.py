# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random schedules of switches, faults, crashes, reboots and meddling against the same state machine.

B70_MODEL_EXAMPLES sets how many schedules are tried (default 40; thousands take minutes).
"""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.observe import remembered
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Holder, Mode, OnFailure
from unit.plugins.module_utils._slot.fakes import LAYOUT, FakeFiles
from unit.plugins.module_utils._slot.world import FAULTS, LOST, FakeUnit, Killed, World, request

NAMES = st.sampled_from("abc")
LEGACY = "minimax-vllm.service"


def failures_of(result):
    return [failure for failure in (result["failure"], *result["failures"]) if failure]


def started_from(engine):
    """The unit and the environment of the process."""
    return engine.name, engine.started_from, tuple(sorted(engine.environ.items()))


def in_quarantine(world):
    """Looked at from outside: no effect, so nobody is killed by it."""
    text, _when = world.texts.get(LAYOUT.quarantine_file, (None, None))
    return text is not None and quarantine.parse(text).boot_id == f"boot-{world.boots}"


class SlotModel(RuleBasedStateMachine):
    """The world is the model: its `check` runs at every effect, its `promise` after every run that came to an end."""

    @initialize()
    def make(self):
        self.world = World()
        for name in "abc":
            self.world.render(name)
            self.world.unit(name).load_s = 1.0
        self.renderings = 1
        self.proven = set()  # what engines were started from while they were served, verified

    def run(self, wanted, **changes):
        world = self.world
        before = (world.running, world.enabled, world.starts)
        held = in_quarantine(world)
        try:
            result = api.switch(world.effects(), LAYOUT, replace(request(wanted), **changes))
        except Killed:
            world.check()
            return
        world.check()
        outcome = result["outcome"]
        assert result["failed"] == (outcome not in ("committed", "unchanged")), result["msg"]
        if outcome == "rolled_back":
            assert started_from(world.engine()) in self.proven, result["msg"]
        if outcome == "committed":
            world.promise()
            assert world.running == ([LAYOUT.unit(wanted)] if wanted else [])
        elif outcome in ("rolled_back", "stopped"):
            world.promise()
            assert (outcome == "rolled_back") == bool(world.running)
        elif outcome in ("untouched", "unchanged"):
            assert (world.running, world.enabled, world.starts) == before, result["msg"]
        elif outcome == "left":
            assert changes.get("on_failure") is OnFailure.LEAVE
            assert not world.open
        else:
            assert outcome == "stuck"
            assert any(unit.live_fault == "never_stops" for unit in world.units.values())
            assert not world.open
        if outcome == "unchanged" and wanted:
            world.promise()
        if held and "mode" not in changes:
            begun = {"name": "start", "direction": "forward"}
            assert not any(begun.items() <= phase.items() for phase in result["phases"]), result["msg"]
        lost = any(LOST in line for failure in failures_of(result) for line in failure["log_tail"])
        if lost and not world.full:
            assert in_quarantine(world), result["msg"]

    @rule(mode=st.sampled_from((Mode.BOOT, Mode.RECOVER)))
    def settle(self, mode):
        world = self.world
        before = (world.running, world.starts)
        try:
            result = api.switch(world.effects(), LAYOUT, request("ignored", mode=mode))
        except Killed:
            return
        world.check()
        if result["outcome"] in ("committed", "rolled_back", "stopped"):
            world.promise()
        elif result["outcome"] in ("untouched", "unchanged"):
            assert (world.running, world.starts) == before, result["msg"]

    @rule(name=NAMES)
    def verify(self, name):
        self.run(name, recheck=True)

    @rule(name=NAMES, after=st.integers(1, 60))
    def verify_that_is_killed(self, name, after):
        self.world.kill_at = self.world.effects_done + after
        self.run(name, recheck=True)
        self.world.kill_at = None

    @rule(name=NAMES)
    def engine_loses_its_card(self, name):
        if self.world.unit(name).up:
            self.world.lose_card(name)

    @rule()
    def quarantine_is_cleared(self):
        if not self.world.full:
            quarantine.clear(self.world.effects(), LAYOUT, "tester", "")
            assert not in_quarantine(self.world)

    @rule(name=NAMES, on_failure=st.sampled_from(OnFailure), drain=st.floats(0, 5))
    def switch(self, name, on_failure, drain):
        self.run(name, on_failure=on_failure, drain_timeout_s=drain)

    @rule(name=NAMES)
    def switch_and_again(self, name):
        self.run(name)
        if LAYOUT.pending(name) in self.world.texts:
            # A new rendering that failed is tried again.
            return
        if self.world.open and self.world.running == [LAYOUT.unit(name)] and not self.world.readonly:
            starts = self.world.starts
            self.run(name)
            assert self.world.starts == starts

    @rule(name=st.one_of(st.none(), NAMES), after=st.integers(1, 160))
    def switch_that_is_killed(self, name, after):
        self.world.kill_at = self.world.effects_done + after
        self.run(name)
        self.world.kill_at = None

    @rule()
    def stop(self):
        self.run(None)

    @rule(name=NAMES)
    def second_caller(self, name):
        self.world.lock_holder = "pid 1: another"
        try:
            self.run(name)
        finally:
            self.world.lock_holder = None

    @rule(name=NAMES, fault=st.sampled_from(("", "", "", "ignore_term", "slow_stop", "never_stops", *FAULTS)))
    def break_or_mend(self, name, fault):
        self.world.unit(name).fault = fault

    @rule(name=NAMES)
    def engine_dies(self, name):
        if self.world.unit(name).up:
            self.world.crash(name)

    @rule(name=NAMES)
    def engine_ends(self, name):
        unit = self.world.unit(name)
        if unit.up:
            self.world._down(unit, "failed")

    @rule()
    def reboot(self):
        self.world.reboot()
        assert not self.world.open
        for name in self.world.running:
            # A unit that somebody enabled is none of the slot's; no rule does that.
            assert name == LEGACY or started_from(self.world.units[name]) in self.proven

    @rule(name=NAMES, fault=st.sampled_from(("", "", "wrong_answer", "exit_at_start")), seen=st.booleans())
    def render_anew(self, name, fault, seen):
        """As the role does: of a profile in use the new rendering waits. seen: the command line tells it."""
        self.renderings += 1
        self.world.mono += 5
        argv = ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", f"/models/{name}", "--port", "18080"]
        changes = {
            "fingerprint": f"sha256:{name}-{self.renderings}",
            "engine__argv": [*argv, "--seed", str(self.renderings)] if seen else argv,
            "engine__env": {"FAULT": fault} if fault else {"VLLM_CPU_KVCACHE_SPACE": "1"},
            "title": f"{name} {self.renderings}",
        }
        verified = remembered(FakeFiles(self.world), LAYOUT).verified
        unit = self.world.unit(name)
        if unit.enabled or unit.active not in ("inactive", "failed") or (verified and verified.profile == name):
            self.world.render_held(name, **changes)
        else:
            self.world.render(name, **changes)
            self.world.texts.pop(LAYOUT.pending(name), None)

    @rule(name=NAMES)
    def someone_starts_a_unit(self, name):
        self.world.effects().units.start(LAYOUT.unit(name))

    @rule(name=NAMES)
    def someone_disables_a_unit(self, name):
        self.world.unit(name).enabled = False

    @rule()
    def a_legacy_unit_appears(self):
        self.world.units.setdefault(LEGACY, FakeUnit(LEGACY))
        if not self.world.running:
            self.world.launch(self.world.units[LEGACY])

    @rule(present=st.booleans(), stuck=st.booleans())
    def frontdoor(self, present, stuck):
        self.world.frontdoor_present, self.world.frontdoor_stuck = present, stuck

    @rule(seconds=st.floats(0, 100))
    def generation(self, seconds):
        self.world.generations = [self.world.mono + seconds]

    @rule(readonly=st.booleans(), full=st.booleans())
    def disk(self, readonly, full):
        self.world.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir} if readonly else set()
        self.world.full = {LAYOUT.state_dir} if full else set()

    @rule(there=st.booleans())
    def stranger_on_the_port(self, there):
        self.world.foreign = (Holder(99, "nc", "root", "", "port 18080"),) if there else ()

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds):
        self.world.mono += seconds
        self.world.tick()

    @invariant()
    def always(self):
        self.world.check()
        engine = self.world.engine()
        if engine is not None and self.world.open and self.world.state.invocation_id == engine.invocation:
            self.proven.add(started_from(engine))


SlotModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("B70_MODEL_EXAMPLES", "40")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSlotModel = SlotModel.TestCase
