# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch as a transient unit that outlives its controller: start or join it, and read its result.

The unit runs the archive that Ansible copies to the host for the module. Ansible removes that archive when the module
ends, so a copy lies beside the parameters and the result. All are named after the switch and only root can read them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _slot_module, _transient

LIMIT_S = 24 * 3600  # the switch has limits of its own; this one only bounds a job that hangs
KEPT_S = 24 * 3600
_MAIN = f"import sys; sys.path.insert(0, sys.argv[1]); from {__name__} import main; main(sys.argv[2:])"
# Like the unit that verifies a slot by itself, which runs the same code. Clients wait: it gives way to nobody.
PROPERTIES = {
    "KillMode": "mixed",
    "TimeoutStopSec": "15",
    "CollectMode": "inactive-or-failed",
    "Nice": "0",
    "CPUWeight": "100",
    "IOWeight": "100",
    "OOMScoreAdjust": "0",
    "ProtectSystem": "no",
}


class JobError(Exception):
    """The switch cannot be started, or left no result."""


_SYSTEMD = _transient.Systemd(JobError, "a switch")


def unit_name(slot: str, switch_id: str) -> str:
    return f"b70-switch-{slot}-{switch_id}.service"


def folder_of(run_dir: str, slot: str) -> str:
    return f"{run_dir}/{slot}/jobs"


def result_file(run_dir: str, slot: str, switch_id: str) -> str:
    return f"{folder_of(run_dir, slot)}/{switch_id}.result"


@dataclass(frozen=True)
class Job:
    """The unit and files of one switch. ask: runs a command of systemd."""

    slot: str
    switch_id: str
    folder: Path
    ask: Callable[..., str] = _SYSTEMD.ask

    @property
    def unit(self) -> str:
        return unit_name(self.slot, self.switch_id)

    def file(self, kind: str) -> Path:
        return self.folder / f"{self.switch_id}.{kind}"

    def running(self) -> bool:
        shown = self.ask(["systemctl", "show", "--property=ActiveState", "--value", self.unit])
        return shown.strip() in _transient.RUNNING

    def start(self, params: Mapping[str, Any], archive: Path) -> None:
        """Start the switch, unless an earlier call whose answer was lost has done so."""
        if self.file("result").exists() or self.running():
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget_old()
        shutil.copyfile(archive, self.file("zip"))
        self.file("params").write_text(json.dumps(dict(params)), encoding="utf-8")
        words = [str(self.file(kind)) for kind in ("zip", "params", "result")]
        argv = [sys.executable, "-c", _MAIN, words[0], *words]
        task = _transient.Task(self.unit, f"Switch of the b70 slot {self.slot}", argv, LIMIT_S, properties=PROPERTIES)
        try:
            self.ask(task.run_argv())
        except JobError:
            if not (self.file("result").exists() or self.running()):
                raise

    def collect(self) -> dict[str, Any]:
        """Return the result. It stays for a day because an answer may be lost. Raises JobError if there is none."""
        try:
            result: dict[str, Any] = json.loads(self.file("result").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise JobError(f"the switch {self.switch_id} left no result; see journalctl -u {self.unit}") from error
        return result

    def _forget_old(self) -> None:
        for path in self.folder.iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - KEPT_S:
                    path.unlink()


def job_of(params: Mapping[str, Any], ask: Callable[..., str] = _SYSTEMD.ask) -> Job:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", params["switch_id"] or ""):
        raise JobError(f"switch_id names a unit: 1 to 64 letters, digits and _ . -, not {params['switch_id']!r}")
    return Job(params["slot"], params["switch_id"], Path(folder_of(params["run_dir"], params["slot"])), ask)


def own_archive() -> Path:
    """Return the archive from which this module was imported."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is None:
        raise JobError(
            "the module does not run from the archive that Ansible makes of it, so it can't be left to systemd"
        )
    return Path(archive)


def main(words: list[str], run: Callable[..., dict[str, Any]] = _slot_module.run_switch) -> None:
    """Run the switch that the file of parameters describes, and write its result in one step. Runs in the unit."""
    archive, given, result = map(Path, words)
    params = json.loads(given.read_text(encoding="utf-8"))
    try:
        found = run(params, check_mode=False)
    except Exception as error:
        traceback.print_exc()
        found = {"failed": True, "changed": True, "msg": f"the switch broke off: {type(error).__name__}: {error}"}
    new = result.with_suffix(".new")
    new.write_text(json.dumps(found), encoding="utf-8")
    os.replace(new, result)
    for path in (archive, given):
        path.unlink(missing_ok=True)
