# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording a baseline: of what is served, of what has to be started first, and where it fails."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.baseline import baseline_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.driver import Driver
from unit.plugins.module_utils._slot.calls import b70ctl
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import World, request

KNOWN = {"name": "exact_ok", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}
LEARNED = {"name": "poem", "prompt": "3 + 4", "max_tokens": 8, "compare": "baseline"}
FILE = baseline_file(LAYOUT, "a")


@pytest.fixture
def world():
    world = World()
    world.render("a", canary__cases=[KNOWN, LEARNED])
    world.render("b")
    for name in "ab":
        world.unit(name).load_s = 1.0
    return world


def test_without_a_baseline_the_profile_is_refused_and_says_what_to_do(world):
    code, text = b70ctl(world, "switch", "a")
    assert (code, "`b70ctl record" in text) == (command.FAILED, True)


def test_recording_serves_the_profile_and_then_it_is_judged(world):
    b70ctl(world, "switch", "b")
    code, text = b70ctl(world, "record", "a", "--why", "new stack")
    assert (code, "recorded as baseline: poem" in text, world.running) == (0, True, [LAYOUT.unit("a")])
    world.promise()
    assert json.loads(world.texts[FILE][0])["cases"]["poem"]["text"] == "7"
    assert b70ctl(world, "switch", "b")[0] == b70ctl(world, "switch", "a")[0] == command.DONE
    # Again, of what is served: it stays served meanwhile.
    starts = world.starts
    assert b70ctl(world, "record", "a")[0] == command.DONE
    assert world.starts == starts
    world.promise()


def test_the_way_back_records_nothing(world):
    b70ctl(world, "record", "a")
    before = world.texts[FILE]
    world.unit("b").fault = "wrong_answer"
    code, text = b70ctl(world, "record", "b")
    assert (code, "a is served again, verified" in text) == (command.FAILED, True)
    assert world.texts[FILE] == before
    assert baseline_file(LAYOUT, "b") not in world.texts


def test_nothing_to_record_is_no_success(world):
    code, text = b70ctl(world, "record", "b")
    assert (code, "nothing to record" in text, world.open) == (command.FAILED, True, True)


def test_a_full_disk_records_nothing_and_harms_nobody(world):
    b70ctl(world, "record", "a")
    world.full = {FILE.parent}
    engine = world.engine().invocation
    code, text = b70ctl(world, "record", "a")
    assert (code, "could not be written" in text) == (command.FAILED, True)
    assert (world.engine().invocation, world.open) == (engine, True)


@pytest.mark.parametrize("start", ["nothing", "a", "b"])
def test_check_mode_predicts_it(world, start):
    if start != "nothing":
        b70ctl(world, "record", start)
    wanted = request("a", record_baseline=True)
    predicted = api.check(world.effects(), LAYOUT, wanted)
    outcome = Driver(world.effects(), LAYOUT, wanted).run()
    assert not outcome.failures
    assert (predicted["actions"], predicted["changed"]) == (list(outcome.actions), True)
    assert "record the baseline of a: poem" in predicted["actions"]
