# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models of one card on a host with two: the new one is started beside the old one, and clients are moved over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scenarios.outcome import assert_serves
from scenarios.recording import Recording
from scenarios.rig import PREFIX, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
OLD, NEW = "sim-one-a", "sim-one-b"


def assert_all_answered(recording: Recording) -> None:
    """Assert that no client was turned away, and that no answer was cut."""
    broken = [answer for answer in recording.answers if (answer.status, answer.whole) != (200, True)]
    assert not broken, broken


def test_a_switch_there_and_back_turns_no_client_away(rig: Rig, recorded: Begin) -> None:
    rig.have(OLD)
    # A unit of one side keeps those of the same side away, and none of the other.
    second = rig.read(f"etc/systemd/system/{PREFIX}{NEW}@beside.service.d/10-b70-exclusive.conf").splitlines()
    assert f"Conflicts={PREFIX}{NEW}.service" not in second
    assert f"Conflicts={PREFIX}{OLD}@beside.service" in second
    recording = recorded()
    for name, unit in ((NEW, f"{PREFIX}{NEW}@beside.service"), (OLD, f"{PREFIX}{OLD}.service")):
        predicted = rig.ctl("switch", name, "--check").data
        assert predicted["way"] == "beside", predicted
        done = rig.ctl("switch", name, "--min-serving", "1")
        assert (done.code, done.data["way"]) == (0, "beside"), done
        rig.wait_settled()
        entry = rig.journal()[-1]
        assert (entry["way"], entry["turned_away_s"], entry["actions"]) == ("beside", 0.0, predicted["actions"])
        assert rig.facts().running == (unit,)
        assert_serves(rig, name)
    assert_all_answered(recording)
    assert recording.names() == {OLD, NEW}
    assert {state["open"] for state in recording.states()} == {True}
    assert rig.ctl("switch", OLD).data["outcome"] == "unchanged"


def test_a_corrupt_one_is_stopped_and_no_client_notices(rig: Rig, recorded: Begin) -> None:
    rig.have(OLD)
    before = rig.facts().invocation
    rig.tell(NEW, "wrong-answer")
    recording = recorded()
    done = rig.ctl("switch", NEW)
    assert (done.code, done.data["outcome"], done.data["failure"]["phase"]) == (1, "untouched", "canary"), done
    assert "slh cobalt" in done.data["msg"], done
    rig.wait_settled()
    assert_serves(rig, OLD)
    assert rig.facts().invocation == before
    assert_all_answered(recording)
    assert recording.names() == {OLD}


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", ["release", "start", "health", "canary", "open", "drain", "stop", "enable", "commit"])
@pytest.mark.parametrize("state", ["begin", "end"])
def test_one_that_is_killed_is_settled_without_turning_a_client_away(
    rig: Rig, recorded: Begin, phase: str, state: str
) -> None:
    rig.have(OLD)
    rig.tell(NEW)
    recording = recorded()
    done = rig.run("/opt/b70/bin/crash-at", phase, "forward", state, "kill", "--", "switch", NEW)
    assert done.code == -9, done
    rig.wait_settled()
    moved = phase in ("drain", "stop", "enable", "commit") or (phase, state) == ("open", "end")
    assert_serves(rig, NEW if moved else OLD)
    assert rig.state()["replicas"] is None
    assert_all_answered(recording)


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", ["canary", "drain"])
def test_a_reboot_on_the_way_serves_what_was_committed(rig: Rig, phase: str) -> None:
    rig.have(OLD)
    rig.tell(NEW)
    done = rig.run("/opt/b70/bin/crash-at", phase, "forward", "begin", "kill", "--", "switch", NEW)
    assert done.code == -9, done
    rig.lose_power()
    rig.wait_booted()
    assert_serves(rig, OLD)
