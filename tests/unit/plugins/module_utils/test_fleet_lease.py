# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease of a host: who gets it, who is refused, and what is said."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _fleet_lease
from ansible_collections.arcpro.b70.plugins.module_utils._fleet_lease import FREE, KEPT, RELEASED, TAKEN, decide
from ansible_collections.arcpro.b70.plugins.plugin_utils import _fleet_run

NOW = datetime(2026, 6, 7, 9, 8, 44, tzinfo=UTC)
OURS = _fleet_lease.asked_for("desk:1:7", "ann@desk", "the rollout of new", 120, NOW)
THEIRS = replace(OURS, run="lap:2:9", owner="bob@lap", what="recycle")


@pytest.mark.parametrize("state", [TAKEN, FREE, KEPT])
def test_a_host_of_another_run_is_refused_with_owner_work_and_time(state: str) -> None:
    answer = decide(state, THEIRS, OURS)
    assert (answer.lease, answer.holder) == (THEIRS, THEIRS)
    assert answer.refusal.endswith(
        "recycle by bob@lap, since 2026-06-07T09:08:44Z, until 2026-06-07T11:08:44Z at the latest"
    )


@pytest.mark.parametrize("held", [None, replace(THEIRS, until="2026-06-07T09:08:43Z")])
def test_a_host_of_nobody_is_taken(held: _fleet_lease.Lease | None) -> None:
    assert decide(TAKEN, held, OURS) == _fleet_lease.LeaseDecision(OURS)
    assert decide(FREE, held, OURS) == _fleet_lease.LeaseDecision(held)


def test_a_run_that_has_ended_and_force_give_it_up() -> None:
    assert decide(TAKEN, THEIRS, OURS, over=["lap:2:9"]).lease == OURS
    assert decide(TAKEN, THEIRS, OURS, force=True).lease == OURS


def test_who_has_it_keeps_it_longer_and_says_since_when() -> None:
    later = _fleet_lease.asked_for(OURS.run, OURS.owner, OURS.what, 120, NOW + timedelta(hours=3))
    for state in (TAKEN, KEPT):
        kept = decide(state, OURS, later).lease
        assert kept is not None
        assert (kept.since, kept.until) == (OURS.since, later.until)


def test_a_run_whose_host_was_taken_over_and_given_up_again_does_not_go_on() -> None:
    assert decide(KEPT, None, OURS, force=True).refusal == "its lease was given up or taken by a run that has ended"


def test_only_the_own_lease_is_released() -> None:
    assert (decide(RELEASED, OURS, OURS).lease, decide(RELEASED, THEIRS, OURS).lease) == (None, THEIRS)


def test_a_file_that_cannot_be_read_owns_nothing(tmp_path: Path) -> None:
    with _fleet_lease.alone(tmp_path / "state") as file:
        _fleet_lease.write(file, OURS)
        assert _fleet_lease.read(file) == OURS
        file.write_text('{"run": 3')
        assert _fleet_lease.read(file) is None
        _fleet_lease.write(file, None)
        assert not file.exists()


def test_a_question_leaves_no_trace_on_a_host_that_has_nothing(tmp_path: Path) -> None:
    with _fleet_lease.opened(tmp_path / "state", FREE) as file:
        assert _fleet_lease.read(file) is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_this_controller_has_ended_when_its_process_is_another_or_none() -> None:
    here = _fleet_run.run_of(os.getpid())
    assert not _fleet_run.has_ended(here)
    assert _fleet_run.has_ended(here.rpartition(":")[0] + ":1")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        run = _fleet_run.run_of(process.pid)
        assert not _fleet_run.has_ended(run)
        process.communicate()
    assert _fleet_run.has_ended(run)
    assert not _fleet_run.has_ended("elsewhere:1:1")
    assert not _fleet_run.has_ended("")
