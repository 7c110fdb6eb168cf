# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording a baseline: of what is served, of what has to be started first, and where it fails."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.baseline import baseline_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.driver import Driver
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.calls import b70ctl
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, request

KNOWN = {"name": "exact_ok", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}
LEARNED = {"name": "poem", "prompt": "3 + 4", "max_tokens": 8, "compare": "baseline"}
FILE = baseline_file(LAYOUT, "a")


@pytest.fixture
def fake_host():
    fake_host = FakeHost()
    fake_host.render("a", canary__cases=[KNOWN, LEARNED])
    fake_host.render("b")
    for name in "ab":
        fake_host.unit(name).load_s = 1.0
    return fake_host


def test_without_a_baseline_the_profile_is_refused_and_says_what_to_do(fake_host):
    code, text = b70ctl(fake_host, "switch", "a")
    assert (code, "`b70ctl record" in text) == (command.FAILED, True)


def test_recording_serves_the_profile_and_then_it_is_judged(fake_host):
    b70ctl(fake_host, "switch", "b")
    code, text = b70ctl(fake_host, "record", "a", "--why", "new stack")
    assert (code, "recorded as baseline: poem" in text, fake_host.running) == (0, True, [LAYOUT.unit("a")])
    fake_host.assert_invariants()
    assert json.loads(fake_host.texts[FILE][0])["cases"]["poem"]["text"] == "7"
    assert b70ctl(fake_host, "switch", "b")[0] == b70ctl(fake_host, "switch", "a")[0] == command.DONE
    # Again, of what is served: it stays served meanwhile.
    starts = fake_host.starts
    assert b70ctl(fake_host, "record", "a")[0] == command.DONE
    assert fake_host.starts == starts
    fake_host.assert_invariants()


def test_the_way_back_records_nothing(fake_host):
    b70ctl(fake_host, "record", "a")
    before = fake_host.texts[FILE]
    fake_host.unit("b").fault = "wrong_answer"
    code, text = b70ctl(fake_host, "record", "b")
    assert (code, "a is served again, verified" in text) == (command.FAILED, True)
    assert fake_host.texts[FILE] == before
    assert baseline_file(LAYOUT, "b") not in fake_host.texts


def test_nothing_to_record_is_no_success(fake_host):
    code, text = b70ctl(fake_host, "record", "b")
    assert (code, "nothing to record" in text, fake_host.open) == (command.FAILED, True, True)


def test_a_full_disk_records_nothing_and_harms_nobody(fake_host):
    b70ctl(fake_host, "record", "a")
    fake_host.full = {FILE.parent}
    engine = fake_host.engine().invocation
    code, text = b70ctl(fake_host, "record", "a")
    assert (code, "could not be written" in text) == (command.FAILED, True)
    assert (fake_host.engine().invocation, fake_host.open) == (engine, True)


@pytest.mark.parametrize("start", ["nothing", "a", "b"])
def test_check_mode_predicts_it(fake_host, start):
    if start != "nothing":
        b70ctl(fake_host, "record", start)
    wanted = request("a", record_baseline=True)
    predicted = api.check(fake_host.effects(), LAYOUT, wanted)
    outcome = Driver(fake_host.effects(), LAYOUT, wanted).run()
    assert not outcome.failures
    assert (predicted["actions"], predicted["changed"]) == (list(outcome.actions), True)
    assert "record the baseline of a: poem" in predicted["actions"]
