# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine on its own: which phase follows which, and where a run ends."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide import machine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.machine import (
    FINISHING,
    RunKind,
    SwitchPlan,
    SwitchStep,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import (
    Direction,
    End,
    Failure,
    Gate,
    OnFailure,
    Phase,
)
from unit.plugins.module_utils._slot.fake_host import profile_data

FORWARD = tuple(Phase)[2:-1]


def profile(name="a"):
    warmup = {"shapes": [{"prompt_tokens": 8, "output_tokens": 8, "concurrency": 1}], "limit_s": 60}
    return parse_profile(json.dumps(profile_data(name, warmup=warmup)), "x")


def walk(on_failure, plan, failing):
    """(steps taken, end) when the named steps fail."""
    state = machine.begin(on_failure)
    steps = []
    while (step := machine.command(state)) is not None:
        steps.append(step)
        told = plan if step.phase is Phase.RESOLVE else None
        state = machine.advance(state, Failure(step.phase, step.direction, "told to") if step in failing else told)
        assert len(steps) < 60
    return steps, state.end


def forward(phase):
    return SwitchStep(phase, Direction.FORWARD)


PLAN = SwitchPlan(RunKind.SWITCH, FORWARD, previous=profile())
NO_WAY_BACK = SwitchPlan(RunKind.SWITCH, FORWARD)


def test_all_goes_well():
    steps, end = walk(OnFailure.ROLLBACK, PLAN, set())
    assert [step.phase for step in steps] == list(Phase)[:-1]
    assert end is End.COMMITTED


@pytest.mark.parametrize("phase", list(Phase)[:4])
def test_before_anything_is_touched(phase):
    steps, end = walk(OnFailure.ROLLBACK, PLAN, {forward(phase)})
    assert steps[-1] == forward(phase)
    assert end is End.UNTOUCHED


@pytest.mark.parametrize("phase", [Phase.CLOSE, Phase.DRAIN])
def test_before_the_engine_is_touched(phase):
    steps, end = walk(OnFailure.ROLLBACK, PLAN, {forward(phase)})
    assert steps[-1] == SwitchStep(Phase.RESTORE, Direction.BACK)
    assert end is End.UNTOUCHED


LATE = FORWARD[FORWARD.index(Phase.STOP) :]


@pytest.mark.parametrize("phase", LATE)
@pytest.mark.parametrize("on_failure", list(OnFailure))
@pytest.mark.parametrize("plan", [PLAN, NO_WAY_BACK])
def test_after_that(phase, on_failure, plan):
    steps, end = walk(on_failure, plan, {forward(phase)})
    if on_failure is OnFailure.LEAVE:
        assert end is End.LEFT
        assert SwitchStep(Phase.STOP, Direction.HALT) not in steps
    elif on_failure is OnFailure.STOP or plan is NO_WAY_BACK:
        assert end is End.STOPPED
        assert SwitchStep(Phase.STOP, Direction.HALT) in steps
    else:
        assert end is End.ROLLED_BACK
        back = [step.phase for step in steps if step.direction is Direction.BACK]
        assert back[0] is Phase.CLOSE
        assert (Phase.DRAIN in back) == (phase in (Phase.ENABLE, Phase.COMMIT))
        assert back[-8:] == list(FORWARD[-8:])


@pytest.mark.parametrize("phase", LATE)
@pytest.mark.parametrize("back", [Phase.CLOSE, *LATE])
def test_a_broken_way_back_halts(phase, back):
    steps, end = walk(OnFailure.ROLLBACK, PLAN, {forward(phase), SwitchStep(back, Direction.BACK)})
    assert end is End.STOPPED
    halt = [step.phase for step in steps if step.direction is Direction.HALT]
    assert [phase for phase in halt if phase is not Phase.DRAIN] == [Phase.CLOSE, Phase.STOP, Phase.COMMIT]


@pytest.mark.parametrize("halt", [Phase.CLOSE, Phase.STOP, Phase.COMMIT])
def test_halting_goes_on_whatever_fails(halt):
    steps, end = walk(OnFailure.STOP, PLAN, {forward(Phase.HEALTH), SwitchStep(halt, Direction.HALT)})
    assert [step.phase for step in steps if step.direction is Direction.HALT] == [Phase.CLOSE, Phase.STOP, Phase.COMMIT]
    assert end is (End.STUCK if halt is Phase.STOP else End.STOPPED)


def test_finishing_that_fails_leaves_the_engine_alone():
    plan = SwitchPlan(RunKind.FINISH, (Phase.GUARD, Phase.JOURNAL, *FINISHING), previous=profile())
    steps, end = walk(OnFailure.ROLLBACK, plan, {forward(Phase.ENABLE)})
    assert steps[-1] == SwitchStep(Phase.RESTORE, Direction.BACK)
    assert end is End.UNTOUCHED


def test_nothing_to_do():
    steps, end = walk(OnFailure.ROLLBACK, SwitchPlan(RunKind.NOTHING), set())
    assert [step.phase for step in steps] == [Phase.LOCK, Phase.RESOLVE]
    assert end is End.UNCHANGED


def test_gates_leave_phases_out():
    needs = machine._NEEDS
    assert needs[Gate.VERIFIED][-1] is Phase.CANARY
    assert Phase.CANARY not in needs[Gate.HEALTHY]
    assert needs[Gate.NONE] == (Phase.ALIVE,)
