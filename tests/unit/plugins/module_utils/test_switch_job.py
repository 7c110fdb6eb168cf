# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is left to systemd: started once however often it is asked for, and its result read as often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _switch_job
from ansible_collections.arcpro.b70.plugins.module_utils._switch_job import JobError, job_of, main
from unit.plugins.module_utils._work.units import packed

PARAMS = {"slot": "main", "switch_id": "20260607T090844Z-1a2b3c", "reason": "why"}


class Systemd:
    """Knows one unit. refuses: what it says to a start; runs_all_the_same: the unit is there nevertheless."""

    def __init__(self, *, refuses: str = "", runs_all_the_same: bool = False) -> None:
        self.started: list[list[str]] = []
        self.active = "inactive"
        self._refuses, self._runs = refuses, runs_all_the_same

    def __call__(self, argv: list[str], **_limits: Any) -> str:
        if argv[0] == "systemctl":
            return f"{self.active}\n"
        if self._refuses:
            self.active = "active" if self._runs else "inactive"
            raise JobError(self._refuses)
        self.started.append(list(argv))
        self.active = "active"
        return ""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "module.zip"
    path.write_bytes(b"program")
    return path


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {**PARAMS, "run_dir": str(tmp_path / "run")}


def test_a_switch_is_started_once(params: dict[str, Any], archive: Path) -> None:
    systemd = Systemd()
    job = job_of(params, systemd)
    job.start(params, archive)
    job.start(params, archive)
    (argv,) = systemd.started
    assert "--unit=b70-switch-main-20260607T090844Z-1a2b3c.service" in argv
    assert json.loads(job.file("params").read_text()) == params
    assert job.file("zip").read_bytes() == b"program"
    assert job.folder.stat().st_mode & 0o777 == 0o700
    # What runs the product's switch must be able to change the host, and is not slowed down beside an engine.
    assert {"--property=ProtectSystem=no", "--property=Nice=0", "--property=KillMode=mixed"} <= set(argv)


def test_a_switch_that_has_ended_is_not_started_again(params: dict[str, Any], archive: Path) -> None:
    systemd = Systemd()
    job = job_of(params, systemd)
    job.folder.mkdir(parents=True)
    job.file("result").write_text('{"changed": true}')
    job.start(params, archive)
    assert systemd.started == []
    assert [job.collect(), job.collect()] == [{"changed": True}, {"changed": True}]


def test_of_two_starts_at_once_one_is_joined(params: dict[str, Any], archive: Path) -> None:
    job_of(params, Systemd(refuses="it is there already", runs_all_the_same=True)).start(params, archive)
    with pytest.raises(JobError, match="no such property"):
        job_of(params, Systemd(refuses="no such property")).start(params, archive)


def test_a_switch_without_a_result_is_said_to_have_none(params: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="left no result; see journalctl -u b70-switch-main-2026"):
        job_of(params, Systemd()).collect()


@pytest.mark.parametrize("switch_id", ["", None, "../x", "a b", "x" * 65])
def test_an_identifier_that_names_no_unit_is_refused(params: dict[str, Any], switch_id: str | None) -> None:
    with pytest.raises(JobError, match="switch_id names a unit"):
        job_of({**params, "switch_id": switch_id})


def test_what_nobody_collected_is_removed_after_a_day(params: dict[str, Any], archive: Path) -> None:
    job = job_of(params, Systemd())
    job.folder.mkdir(parents=True)
    old, new = job.folder / "old.result", job.folder / "new.result"
    for path in (old, new):
        path.write_text("{}")
    os.utime(old, (0, 0))
    job.start(params, archive)
    assert (old.exists(), new.exists()) == (False, True)


def run(job: _switch_job.Job, run_switch: Any) -> dict[str, Any]:
    main([str(job.file(kind)) for kind in ("zip", "params", "result")], run_switch)
    return job.collect()


def test_the_unit_leaves_the_result_and_nothing_else(params: dict[str, Any], archive: Path) -> None:
    job = job_of(params, Systemd())
    job.start(params, archive)
    asked = []

    def run_switch(given: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
        asked.append((given, check_mode))
        return {"changed": True, "slot": "main"}

    assert run(job, run_switch) == {"changed": True, "slot": "main"}
    assert asked == [(params, False)]
    assert [path.name for path in job.folder.iterdir()] == [job.file("result").name]


def test_a_fault_of_the_program_is_a_result_too(params: dict[str, Any], archive: Path) -> None:
    job = job_of(params, Systemd())
    job.start(params, archive)

    def run_switch(_given: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
        raise RuntimeError("no")

    assert run(job, run_switch) == {"failed": True, "changed": True, "msg": "the switch broke off: RuntimeError: no"}


def test_the_archive_of_the_module_is_a_whole_program(params: dict[str, Any], tmp_path: Path) -> None:
    """What Ansible packs is imported from the archive by the very command that the unit runs."""
    archive = tmp_path / "module.zip"
    names = ("_environment", "_slot_module", "_slot_planned", "_switch_job", "_transient")
    packed(archive, *(f"{name}.py" for name in names), "_slot/**/*.py")
    systemd = Systemd()
    job = job_of({**params, "switch_id": "x"}, systemd)
    job.start({**params, "switch_id": "x"}, archive)
    argv = systemd.started[0]
    command = argv[argv.index("--") + 1 :]
    done = subprocess.run(
        [command[0], "-I", *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert command[0] == sys.executable
    # The parameters lack all that a switch needs: it was reached.
    assert "run_switch" in done.stderr, done.stderr
    assert job.collect()["msg"].startswith("the switch broke off: KeyError"), done.stderr
