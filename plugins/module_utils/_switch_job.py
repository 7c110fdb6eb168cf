# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch as work of its host, which outlives its controller. Its id is its token; each has a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._slot_module import run_switch
from ._work.decide import WorkState
from ._work.folder import WorkError, WorkFolder
from ._work.protocol import Beginning, Job, conclude

LIMIT_S = 24 * 3600  # the switch has limits of its own; this one only bounds a job that hangs
KEPT_S = 24 * 3600
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


def unit_name(slot: str, switch_id: str) -> str:
    return f"b70-switch-{slot}-{switch_id}.service"


class SwitchJob(Job):
    noun = "switch"

    @property
    def unit(self) -> str:
        return unit_name(self.params["slot"], self.params["token"])

    @property
    def folder(self) -> WorkFolder:
        return WorkFolder(Path(self.params["run_dir"], self.params["slot"], "jobs", self.params["token"]))

    def start(self, archive: Path | None = None) -> WorkState:
        jobs = self.folder.path.parent
        jobs.mkdir(mode=0o700, parents=True, exist_ok=True)  # what a switch says is for root alone
        for path in jobs.iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - KEPT_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        return super().start(archive)

    def begin(self) -> Beginning:
        task = self.task(LIMIT_S, directory="", writable=(), properties=PROPERTIES)
        return Beginning({}, task, json.dumps(dict(self.params)))

    def answer(self, step: str) -> dict[str, Any]:
        """Return `state`, then the result of the switch; `vanished` where it left none."""
        found = self.start() if step == "start" else self.look()
        vanished = found.state == "ended" and "found" not in found.seen
        return {"failed": False, "changed": True, **found.result, "state": found.state, "vanished": vanished}


def job_of(params: Mapping[str, Any]) -> SwitchJob:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", params["switch_id"] or ""):
        raise WorkError(f"switch_id names a unit: 1 to 64 letters, digits and _ . -, not {params['switch_id']!r}")
    return SwitchJob({**params, "token": params["switch_id"]})


def main(path: str, run: Callable[..., dict[str, Any]] = run_switch) -> None:
    """Run the switch that the folder describes. Runs in the unit."""
    folder = WorkFolder(Path(path))
    params = json.loads(folder.secret())
    conclude(folder, SwitchJob.noun, lambda: run(params, check_mode=False))
