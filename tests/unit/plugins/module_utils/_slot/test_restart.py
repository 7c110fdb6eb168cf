# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting an engine anew that is served: through the same transaction, from what was verified last."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.calls import check, host, names, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

PROGRAM = ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", "/models/a", "--max-model-len"]
NEW = {"engine__argv": [*PROGRAM, "2032"], "fingerprint": "sha256:a-2", "title": "New"}


@pytest.fixture
def fake_host():
    made = host("ab", load_s=1.0)
    switch(made, "a")
    made.mono += 60
    return made


def test_a_verified_engine_is_drained_and_started_anew(fake_host):
    first = fake_host.engine().invocation
    result = switch(fake_host, "a", restart=True)
    fake_host.assert_invariants()
    assert (result["outcome"], result["verified"], result["profile"]) == ("committed", True, "a")
    assert fake_host.engine().invocation != first
    assert names(result)[4:10] == ["prepare", "close", "drain", "stop", "release", "start"]
    assert "canary" in names(result)
    assert fake_host.open
    assert switch(fake_host, "a")["outcome"] == "unchanged"


def test_every_restart_starts_it_again(fake_host):
    switch(fake_host, "a", restart=True)
    second = fake_host.engine().invocation
    assert switch(fake_host, "a", restart=True)["changed"] is True
    assert fake_host.engine().invocation != second


def test_a_prediction_names_the_restart_and_does_nothing(fake_host):
    first = fake_host.engine().invocation
    result = check(fake_host, "a", restart=True)
    assert result["changed"] is True
    assert f"start {LAYOUT.unit('a')}" in result["actions"]
    assert fake_host.engine().invocation == first


def test_an_engine_that_has_ended_is_started(fake_host):
    fake_host.effects().units.stop(LAYOUT.unit("a"))
    result = switch(fake_host, "a", restart=True)
    fake_host.assert_invariants()
    assert (result["outcome"], result["verified"]) == ("committed", True)


def test_a_rendering_that_waits_for_a_switch_still_waits(fake_host):
    fake_host.render_held("a", **NEW)
    result = switch(fake_host, "a", restart=True)
    assert result["outcome"] == "committed"
    assert fake_host.engine().cmdline[-1] != "2032"
    assert LAYOUT.pending("a") in fake_host.texts
    assert switch(fake_host, "a")["outcome"] == "committed"
    assert fake_host.engine().cmdline[-1] == "2032"


def test_a_restart_that_fails_once_is_tried_once_more(fake_host):
    """The same rendering served until now, so what failed may have been this one start."""
    fake_host.unit("a").fault = "wrong_answer"
    effects = fake_host.effects()
    launch, starts = effects.units.start, []

    def start(name):
        starts.append(name)
        fake_host.unit("a").fault = "wrong_answer" if len(starts) == 1 else ""
        launch(name)

    effects.units.start = start
    result = api.switch(effects, LAYOUT, request("a", restart=True))
    assert len(starts) == 2
    fake_host.assert_invariants()
    assert (result["outcome"], result["failed"], result["profile"]) == ("rolled_back", True, "a")
    assert fake_host.open


def test_one_that_fails_again_is_stopped_and_says_so(fake_host):
    fake_host.unit("a").fault = "wrong_answer"
    result = switch(fake_host, "a", restart=True)
    fake_host.assert_invariants()
    assert (result["outcome"], fake_host.running, fake_host.open) == ("stopped", [], False)
