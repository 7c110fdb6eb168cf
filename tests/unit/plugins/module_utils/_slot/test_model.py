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

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import remembered
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder, Mode, OnFailure
from unit.plugins.module_utils._slot.fake_host import (
    FAULTS,
    LAYOUT,
    LOST,
    FakeFiles,
    FakeHost,
    FakeUnit,
    Killed,
    request,
)

NAMES = st.sampled_from("abc")
LEGACY = "minimax-vllm.service"


def failures_of(result):
    return [failure for failure in (result["failure"], *result["failures"]) if failure]


def started_from(engine):
    """The unit and the environment of the process."""
    return engine.name, engine.started_from, tuple(sorted(engine.environ.items()))


def in_quarantine(fake_host):
    """Looked at from outside: no effect, so nobody is killed by it."""
    text, _when = fake_host.texts.get(LAYOUT.quarantine_file, (None, None))
    return text is not None and quarantine.parse(text).boot_id == f"boot-{fake_host.boots}"


class SlotModel(RuleBasedStateMachine):
    """The fake host is the model: `check` runs at every effect, `assert_invariants` after every run that ended."""

    @initialize()
    def make(self):
        self.fake_host = FakeHost()
        for name in "abc":
            self.fake_host.render(name)
            self.fake_host.unit(name).load_s = 1.0
        self.renderings = 1
        self.proven = set()  # what engines were started from while they were served, verified

    def run(self, wanted, **changes):
        fake_host = self.fake_host
        before = (fake_host.running, fake_host.enabled, fake_host.starts)
        held = in_quarantine(fake_host)
        try:
            result = api.switch(fake_host.effects(), LAYOUT, replace(request(wanted), **changes))
        except Killed:
            fake_host.check()
            return
        fake_host.check()
        outcome = result["outcome"]
        assert result["failed"] == (outcome not in ("committed", "unchanged")), result["msg"]
        if outcome == "rolled_back":
            assert started_from(fake_host.engine()) in self.proven, result["msg"]
        if outcome == "committed":
            fake_host.assert_invariants()
            assert fake_host.running == ([LAYOUT.unit(wanted)] if wanted else [])
        elif outcome in ("rolled_back", "stopped"):
            fake_host.assert_invariants()
            assert (outcome == "rolled_back") == bool(fake_host.running)
        elif outcome in ("untouched", "unchanged"):
            assert (fake_host.running, fake_host.enabled, fake_host.starts) == before, result["msg"]
        elif outcome == "left":
            # A stranger on the port of what is only verified is not the engine's fault.
            shared = fake_host.foreign and "recheck" in changes
            assert shared or changes.get("on_failure") is OnFailure.LEAVE
            assert not fake_host.open
        else:
            assert outcome == "stuck"
            assert any(unit.live_fault == "never_stops" for unit in fake_host.units.values())
            assert not fake_host.open
        if outcome == "unchanged" and wanted:
            fake_host.assert_invariants()
        if held and "mode" not in changes:
            begun = {"name": "start", "direction": "forward"}
            assert not any(begun.items() <= phase.items() for phase in result["phases"]), result["msg"]
        lost = any(LOST in line for failure in failures_of(result) for line in failure["log_tail"])
        if lost and not fake_host.full:
            assert in_quarantine(fake_host), result["msg"]

    @rule(mode=st.sampled_from((Mode.BOOT, Mode.RECOVER)))
    def settle(self, mode):
        fake_host = self.fake_host
        before = (fake_host.running, fake_host.starts)
        try:
            result = api.switch(fake_host.effects(), LAYOUT, request("ignored", mode=mode))
        except Killed:
            return
        fake_host.check()
        if result["outcome"] in ("committed", "rolled_back", "stopped"):
            fake_host.assert_invariants()
        elif result["outcome"] in ("untouched", "unchanged"):
            assert (fake_host.running, fake_host.starts) == before, result["msg"]

    @rule(name=NAMES)
    def verify(self, name):
        self.run(name, recheck=True)

    @rule(name=NAMES, after=st.integers(1, 60))
    def verify_that_is_killed(self, name, after):
        self.fake_host.kill_at = self.fake_host.effects_done + after
        self.run(name, recheck=True)
        self.fake_host.kill_at = None

    @rule(name=NAMES)
    def engine_loses_its_card(self, name):
        if self.fake_host.unit(name).up:
            self.fake_host.lose_card(name)

    @rule()
    def quarantine_is_cleared(self):
        if not self.fake_host.full:
            quarantine.clear(self.fake_host.effects(), LAYOUT, "tester", "")
            assert not in_quarantine(self.fake_host)

    @rule(name=NAMES, on_failure=st.sampled_from(OnFailure), drain=st.floats(0, 5))
    def switch(self, name, on_failure, drain):
        self.run(name, on_failure=on_failure, drain_timeout_s=drain)

    @rule(name=NAMES)
    def switch_and_again(self, name):
        self.run(name)
        if LAYOUT.pending(name) in self.fake_host.texts:
            # A new rendering that failed is tried again.
            return
        if self.fake_host.open and self.fake_host.running == [LAYOUT.unit(name)] and not self.fake_host.readonly:
            starts = self.fake_host.starts
            self.run(name)
            assert self.fake_host.starts == starts

    @rule(name=st.one_of(st.none(), NAMES), after=st.integers(1, 160))
    def switch_that_is_killed(self, name, after):
        self.fake_host.kill_at = self.fake_host.effects_done + after
        self.run(name)
        self.fake_host.kill_at = None

    @rule()
    def stop(self):
        self.run(None)

    @rule(name=NAMES)
    def second_caller(self, name):
        self.fake_host.lock_holder = "pid 1: another"
        try:
            self.run(name)
        finally:
            self.fake_host.lock_holder = None

    @rule(name=NAMES, fault=st.sampled_from(("", "", "", "ignore_term", "slow_stop", "never_stops", *FAULTS)))
    def break_or_mend(self, name, fault):
        self.fake_host.unit(name).fault = fault

    @rule(name=NAMES)
    def engine_dies(self, name):
        if self.fake_host.unit(name).up:
            self.fake_host.crash(name)

    @rule(name=NAMES)
    def engine_ends(self, name):
        unit = self.fake_host.unit(name)
        if unit.up:
            self.fake_host._down(unit, "failed")

    @rule()
    def reboot(self):
        self.fake_host.reboot()
        assert not self.fake_host.open
        for name in self.fake_host.running:
            # A unit that somebody enabled is none of the slot's; no rule does that.
            assert name == LEGACY or started_from(self.fake_host.units[name]) in self.proven

    @rule(name=NAMES, fault=st.sampled_from(("", "", "wrong_answer", "exit_at_start")), seen=st.booleans())
    def render_anew(self, name, fault, seen):
        """As the role does: of a profile in use the new rendering waits. seen: the command line tells it."""
        self.renderings += 1
        self.fake_host.mono += 5
        argv = ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", f"/models/{name}", "--port", "18080"]
        changes = {
            "fingerprint": f"sha256:{name}-{self.renderings}",
            "engine__argv": [*argv, "--seed", str(self.renderings)] if seen else argv,
            "engine__env": {"FAULT": fault} if fault else {"VLLM_CPU_KVCACHE_SPACE": "1"},
            "title": f"{name} {self.renderings}",
        }
        verified = remembered(FakeFiles(self.fake_host), LAYOUT).verified
        unit = self.fake_host.unit(name)
        if unit.enabled or unit.active not in ("inactive", "failed") or (verified and verified.profile == name):
            self.fake_host.render_held(name, **changes)
        else:
            self.fake_host.render(name, **changes)
            self.fake_host.texts.pop(LAYOUT.pending(name), None)

    @rule(name=NAMES)
    def someone_starts_a_unit(self, name):
        self.fake_host.effects().units.start(LAYOUT.unit(name))

    @rule(name=NAMES)
    def someone_disables_a_unit(self, name):
        self.fake_host.unit(name).enabled = False

    @rule()
    def a_legacy_unit_appears(self):
        self.fake_host.units.setdefault(LEGACY, FakeUnit(LEGACY))
        if not self.fake_host.running:
            self.fake_host.launch(self.fake_host.units[LEGACY])

    @rule(present=st.booleans(), stuck=st.booleans())
    def frontdoor(self, present, stuck):
        self.fake_host.frontdoor_present, self.fake_host.frontdoor_stuck = present, stuck

    @rule(seconds=st.floats(0, 100))
    def generation(self, seconds):
        self.fake_host.generations = [self.fake_host.mono + seconds]

    @rule(readonly=st.booleans(), full=st.booleans())
    def disk(self, readonly, full):
        self.fake_host.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir} if readonly else set()
        self.fake_host.full = {LAYOUT.state_dir} if full else set()

    @rule(there=st.booleans())
    def stranger_on_the_port(self, there):
        self.fake_host.foreign = (Holder(99, "nc", "root", "", "port 18080"),) if there else ()

    @rule(seconds=st.floats(0, 60))
    def time_passes(self, seconds):
        self.fake_host.mono += seconds
        self.fake_host.tick()

    @invariant()
    def always(self):
        self.fake_host.check()
        engine = self.fake_host.engine()
        if engine is not None and self.fake_host.open and self.fake_host.state.invocation_id == engine.invocation:
            self.proven.add(started_from(engine))


SlotModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("B70_MODEL_EXAMPLES", "40")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSlotModel = SlotModel.TestCase
