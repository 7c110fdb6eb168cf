# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode predicts what the real run then does, and touches nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.driver import Driver
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot_overlay import PlannedFiles
from unit.plugins.module_utils._slot.calls import check, host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeUnit, rendering, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def fake_host():
    return host("abc")


@pytest.mark.parametrize("start", ["nothing", "a", "b", "rebooted", "crashed", "disabled", "legacy"])
@pytest.mark.parametrize("want", ["a", "b", None])
def test_check_mode_predicts_what_then_happens(fake_host, start, want):
    if start not in ("nothing", "legacy"):
        switch(fake_host, "b" if start == "b" else "a")
    if start == "rebooted":
        fake_host.reboot()
    elif start == "crashed":
        fake_host.crash("a")
    elif start == "disabled":
        fake_host.unit("a").enabled = False
    elif start == "legacy":
        fake_host.units["minimax-vllm.service"] = FakeUnit("minimax-vllm.service", enabled=True)
        fake_host.launch(fake_host.units["minimax-vllm.service"])
    fake_host.mutations.clear()
    before = dict(fake_host.texts)
    predicted = check(fake_host, want)
    assert fake_host.mutations == []
    assert before == fake_host.texts
    outcome = Driver(fake_host.effects(), LAYOUT, request(want)).run()
    assert not outcome.failures
    assert predicted["actions"] == list(outcome.actions)
    assert predicted["changed"] == outcome.changed


def planned(fake_host, name, parts=("unit", "stack", "weights"), slot=None, **changes):
    """Check mode, where earlier tasks of the play would have written the profile and installed these parts."""
    files = {LAYOUT.profile_json(name): rendering(name, **changes).profile}
    if slot is not None:
        files[LAYOUT.slot_file] = json.dumps({"schema": 1, "slot": "main", "refused_statuses": [], **slot})
    effects = fake_host.effects()
    effects = replace(effects, files=PlannedFiles(effects.files, effects.clock, files))
    return api.check(effects, LAYOUT, request(name, planned=parts))


def test_check_mode_on_a_pristine_host():
    fake_host = FakeHost()
    refused = check(fake_host, "a")
    assert refused["failed"]
    assert "not rendered" in refused["msg"]
    predicted = planned(fake_host, "a")
    assert not predicted["failed"]
    assert predicted["changed"]
    assert f"start {A}" in predicted["actions"]
    assert "because this play would install it first: stack, weights" in predicted["msg"]
    assert predicted["not_looked_at"] == ["stack", "weights"]
    assert fake_host.texts == {}
    assert fake_host.mutations == []


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("unit", "stack"), "the weights of a are missing"),
        (("unit", "weights"), "is not installed"),
        (("stack", "weights"), "systemd can't use"),
    ],
)
def test_check_mode_on_a_pristine_host_finds_what_no_task_would_install(parts, words):
    predicted = planned(FakeHost(), "a", parts)
    assert (predicted["failed"], words in predicted["msg"]) == (True, True)


def test_check_mode_does_not_look_for_what_comes_with_the_unit(fake_host):
    sleepy = {"engine__settings": {"enable_sleep_mode": True}}
    assert not planned(fake_host, "a", ("unit",), **sleepy)["failed"]
    fake_host.render("a", **sleepy)
    refused = check(fake_host, "a")
    assert (refused["failed"], "nft is missing" in refused["msg"]) == (True, True)
    assert "set slot_standby and run site.yml" in refused["msg"]


def test_check_mode_predicts_that_a_legacy_unit_will_be_stopped():
    fake_host = FakeHost()
    fake_host.units["minimax-vllm.service"] = FakeUnit("minimax-vllm.service", enabled=True)
    fake_host.launch(fake_host.units["minimax-vllm.service"])
    actions = planned(fake_host, "a", slot={"legacy_units": ["minimax-vllm.service"]})["actions"]
    assert actions[1:4] == ["disable minimax-vllm.service", "stop minimax-vllm.service", f"start {A}"]


def test_check_mode_sees_a_planned_rendering(fake_host):
    switch(fake_host, "a")
    assert planned(fake_host, "a", ())["changed"] is False
    for changes in ({"fingerprint": "sha256:a-2"}, {"engine__argv": ["vllm", "serve", "--max-log-len", "9"]}):
        assert f"start {A}" in planned(fake_host, "a", ("stack",), **changes)["actions"]
    refused = planned(fake_host, "b", status="blocked")
    assert refused["failed"]
    # What is served now stays.
    assert (refused["profile"], refused["served_model"], refused["verified"]) == ("a", "a", True)


def test_check_mode_sees_what_would_wait_for_a_switch_and_what_would_wait_no_longer(fake_host):
    switch(fake_host, "a")
    new = rendering("a", fingerprint="sha256:a-2")

    def predicted(text):
        effects = fake_host.effects()
        files = PlannedFiles(effects.files, effects.clock, {LAYOUT.pending("a"): text})
        return api.check(replace(effects, files=files), LAYOUT, request("a"))["actions"]

    assert "put the new rendering of a in place" in predicted(new.to_json())
    fake_host.render_held("a", fingerprint="sha256:a-3")
    assert (check(fake_host, "a")["changed"], predicted("")) == (True, [])
    files = PlannedFiles(fake_host.effects().files, fake_host.effects().clock, {LAYOUT.pending("a"): ""})
    assert (files.names(LAYOUT.pending_dir), files.size(LAYOUT.pending("a"))) == ((), None)


def test_a_prediction_can_write_nothing(fake_host):
    effects = fake_host.effects()
    files = PlannedFiles(effects.files, effects.clock, {LAYOUT.state_file: "x"})
    assert (files.size(LAYOUT.state_file), files.modified(LAYOUT.state_file)) == (1, effects.clock.now())
    for act in (
        lambda: files.write(LAYOUT.state_file, ""),
        lambda: files.append(LAYOUT.state_file, "", sync=True),
        lambda: files.truncate(LAYOUT.state_file, ""),
        lambda: files.remove(LAYOUT.state_file),
        lambda: files.rename(LAYOUT.state_file, LAYOUT.state_file),
    ):
        with pytest.raises(OSError, match="a prediction writes nothing"):
            act()
