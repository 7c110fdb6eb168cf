# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is predicted is what is done, and what is as asked for stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from scenarios.matrix import matrix
from scenarios.outcome import assert_serves
from scenarios.rig import JOURNAL, Rig

pytestmark = pytest.mark.scenario


def unverified(rig: Rig) -> None:
    """sim-a runs and is healthy, but its state is lost: it is to be verified in place."""
    rig.have("sim-a")
    rig.must("rm", "/run/b70/main/state.json")


def uncommitted(rig: Rig) -> None:
    """sim-a is served, verified, but would not boot."""
    rig.have("sim-a")
    rig.must("systemctl", "disable", "--quiet", "b70-slot-main-sim-a.service")


def interrupted(rig: Rig) -> None:
    rig.have("sim-a")
    rig.run("/opt/b70/bin/crash-at", "drain", "forward", "begin", "kill", "--", "switch", "sim-b")


def stopped(rig: Rig) -> None:
    rig.have("sim-a")
    assert rig.ctl("stop").code == 0


def failed(rig: Rig) -> None:
    rig.wipe()
    rig.tell("sim-b", "wrong-id")
    assert rig.ctl("switch", "sim-b").code == 1
    rig.wait_settled()
    rig.tell("sim-b")


STATES: dict[str, Callable[[Rig], None]] = {
    "nothing": Rig.wipe,
    "served": lambda rig: rig.have("sim-a"),
    "unverified": unverified,
    "uncommitted": uncommitted,
    "interrupted": interrupted,
    "stopped": stopped,
    "failed": failed,
}
EACH_STATE = [*((state, "sim-b") for state in STATES), ("served", "sim-c")]
KEYS = ("changed", "failed", "outcome", "profile", "served_model")


@pytest.mark.parametrize(("state", "target"), matrix(EACH_STATE, product(STATES, ["sim-a"])))
def test_a_prediction_is_what_is_then_done(rig: Rig, state: str, target: str) -> None:
    STATES[state](rig)
    rig.wait_settled()
    for profile in ("sim-a", "sim-b"):
        rig.tell(profile)
    before = rig.state(), rig.facts(), rig.journal()
    predicted = rig.ctl("switch", target, "--check")
    assert (rig.state(), rig.facts(), rig.journal()) == before, "a prediction changed something"
    done = rig.ctl("switch", target)
    rig.wait_settled()
    result = done.data
    keys = KEYS if not result["failed"] else ("changed", "failed", "outcome")
    assert {key: predicted.data[key] for key in keys} == {key: result[key] for key in keys}
    assert (predicted.code, predicted.data["diff"]) == (done.code, result["diff"])
    ended = [record for record in rig.journal() if record.get("id") == result["switch_id"] and record["event"] == "end"]
    assert predicted.data["actions"] == (ended[0]["actions"] if ended else [])
    if not result["failed"]:
        again = rig.ctl("switch", target)
        assert (again.data["changed"], again.data["outcome"]) == (False, "unchanged"), again
        assert_serves(rig, target)


def test_a_second_stop_changes_nothing(rig: Rig) -> None:
    rig.have("sim-a")
    assert rig.ctl("stop").data["changed"]
    rig.wait_settled()
    before = (rig.root / JOURNAL).read_bytes()
    assert not rig.ctl("stop").data["changed"]
    assert (rig.root / JOURNAL).read_bytes() == before
