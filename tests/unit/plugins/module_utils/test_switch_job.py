# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is left to systemd: what its unit is given, what it leaves, and who may read that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._switch_job import SwitchJob, job_of, main
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError
from unit.plugins.module_utils._work.units import Systemd, packed, program

PARAMS = {"slot": "main", "switch_id": "20260607T090844Z-1a2b3c", "reason": "why"}


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(SwitchJob, "systemd", found)
    return found


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {**PARAMS, "run_dir": str(tmp_path / "run")}


def test_a_switch_is_begun_once_however_often_it_is_asked_for(
    systemd: Systemd, params: dict[str, Any], tmp_path: Path
) -> None:
    for _lost in range(2):
        assert job_of(params).start(program(tmp_path)).state == "running"
    (task,) = systemd.started
    assert task.unit == "b70-switch-main-20260607T090844Z-1a2b3c.service"
    assert job_of(params).folder.path.parent.stat().st_mode & 0o777 == 0o700
    # What runs the product's switch must be able to change the host, and is not slowed down beside an engine.
    assert {"--property=ProtectSystem=no", "--property=Nice=0", "--property=KillMode=mixed"} <= set(task.run_argv())
    asked = []

    def run_switch(given: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
        asked.append((given["reason"], check_mode))
        return {"failed": False, "changed": True, "slot": "main"}

    main(str(job_of(params).folder.path), run_switch)
    systemd.end()
    told = {"failed": False, "changed": True, "slot": "main", "state": "ended", "vanished": False}
    assert [job_of(params).answer(step) for step in ("look", "start", "look")] == [told] * 3
    assert (asked, len(systemd.started)) == ([("why", False)], 1)
    left = {path.name for path in job_of(params).folder.path.rglob("*.*")}
    assert left == {"given.json", "seen.json", "result.json"}


def test_a_switch_that_was_killed_left_no_result(systemd: Systemd, params: dict[str, Any], tmp_path: Path) -> None:
    job_of(params).start(program(tmp_path))
    systemd.end()
    for _lost in range(2):
        found = job_of(params).answer("look")
        assert (found["failed"], found["vanished"]) == (True, True)


@pytest.mark.parametrize("switch_id", ["", None, "../x", "a b", "x" * 65])
def test_an_identifier_that_names_no_unit_is_refused(params: dict[str, Any], switch_id: str | None) -> None:
    with pytest.raises(WorkError, match="switch_id names a unit"):
        job_of({**params, "switch_id": switch_id})


def test_what_is_left_of_a_switch_is_removed_after_a_day(
    systemd: Systemd, params: dict[str, Any], tmp_path: Path
) -> None:
    jobs = job_of(params).folder.path.parent
    for name in ("old", "new"):
        (jobs / name / "out").mkdir(parents=True)
    (jobs / ".old.lock").touch()
    for path in (jobs / "old", jobs / ".old.lock"):
        os.utime(path, (0, 0))
    job_of(params).start(program(tmp_path))
    assert sorted(path.name for path in jobs.iterdir()) == [f".{params['switch_id']}.lock", params["switch_id"], "new"]


def test_the_archive_of_the_module_is_a_whole_program(systemd: Systemd, params: dict[str, Any], tmp_path: Path) -> None:
    """What Ansible packs is imported from the archive by the very command that the unit runs."""
    archive = tmp_path / "module.zip"
    names = ("environment", "files", "lock", "slot_module", "slot_overlay", "switch_job", "transient")
    packed(archive, *(f"_{name}.py" for name in names), "_slot/**/*.py", "_work/*.py")
    job_of(params).start(archive)
    command = systemd.started[0].argv
    assert command[0] == sys.executable
    done = subprocess.run(
        [command[0], "-I", *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    # The parameters lack all that a switch needs: it was reached.
    assert "run_switch" in done.stderr, done.stderr
    systemd.end()
    assert job_of(params).answer("look")["msg"].startswith("the switch broke off: KeyError"), done.stderr
