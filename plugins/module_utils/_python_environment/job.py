# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An installation as work of its host, and what the module answers of an environment."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._work.decide import WorkState
from .._work.folder import WorkFolder
from .._work.protocol import Beginning, Job, conclude
from . import host, plan, spec

_FOLDERS = Path("/run/b70-installations")
_CONTENT = ("python", "steps", "aliases", "imports", "more_follows")


def answer(place: host.EnvironmentPaths, wanted: plan.WantedEnvironment, *, write: bool) -> dict[str, Any]:
    """Return the result of the module; write: make the environment if it is not as wanted."""
    try:
        work, found = host.look(place, wanted)
        before = found
        if write and work.kind != "nothing":
            work, found = host.make(place, wanted)
    except host.EnvironmentProblem as problem:
        return {"failed": True, "msg": str(problem)}
    except OSError as error:
        return {"failed": True, "msg": f"{error.filename or place.path}: {error.strerror}"}
    changed = work.kind != "nothing"
    after = plan.record(wanted, "", {}, [])
    header = str(place.path)
    listings = {"before": plan.listing(before), "after": plan.listing(after if changed else before)}
    diff = {"before_header": header, "after_header": header, **listings}
    made = {} if found is None else {"python": found["interpreter"], "came": found["came"], "wheels": found["wheels"]}
    return {"changed": changed, "reason": work.why, "diff": diff, **made}


class Installation(Job):
    noun = "installation"
    passing = True

    @property
    def _key(self) -> str:
        return hashlib.sha256(str(self.params["path"]).encode()).hexdigest()[:12]

    @property
    def unit(self) -> str:
        return f"b70-environment-{self._key}.service"

    @property
    def folder(self) -> WorkFolder:
        return WorkFolder(_FOLDERS / self._key)

    @property
    def _asked(self) -> str:
        return hashlib.sha256(json.dumps([self.params[key] for key in _CONTENT]).encode()).hexdigest()

    def begin(self) -> Beginning:
        # Each command has its own limit; this one only ends what hangs in spite of that.
        limit_s = self.params["timeout"] * 4 * (len(self.params["steps"]) + 1)
        # Addresses of sources and of proxies may have a password in them.
        secret = json.dumps({"params": dict(self.params), "variables": dict(os.environ)})
        return Beginning({"asked": self._asked}, self.task(limit_s, properties={"ProtectSystem": "no"}), secret)

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        return [] if given["asked"] == self._asked else [f"other steps for {self.params['path']}"]

    def answer(self, part: str) -> dict[str, Any]:
        """Return `state`, with `progress` while it runs, and then the result of the module."""
        found = self.start() if part == "start" else self.acknowledge() if part == "acknowledge" else self.look()
        progress = _progress(found)
        return {"changed": False, "state": found.state, "joined": found.joined, "progress": progress, **found.result}


def _progress(found: WorkState) -> dict[str, Any]:
    """Return the purpose of the command that runs, and how much it wrote. Empty if there is none."""
    try:
        text = found.seen["now"]
        counters = Path(f"/proc/{found.seen['pid']}/io").read_text(encoding="ascii")
    except (OSError, LookupError):
        return {}
    written = next((line.split()[1] for line in counters.splitlines() if line.startswith("wchar:")), "0")
    return {"text": text, "written_mib": int(written) // 2**20}


def main(path: str) -> None:
    """Make the environment that the folder asks for. Called in the unit."""
    folder = WorkFolder(Path(path))
    asked = json.loads(folder.secret())

    def say(text: str, pid: int) -> None:
        folder.save_seen({"now": text, "pid": pid, "ended": None})

    place = replace(spec.place(asked["params"], asked["variables"]), say=say)
    conclude(folder, Installation.noun, lambda: answer(place, spec.wanted(asked["params"]), write=True))
