# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a slot as its state file tells them, and a frontdoor that shows them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

SCENARIO = Path(__file__).with_name("scenario.py")
WRONG = (
    "the last switch failed: phase canary: a canary answer was wrong or missing; then phase health on the way back: "
    "the engine did not become ready"
)
UNIT = "b70-slot-main-gemma4-12b-it-int4-autoround-c8.service"


def _ago(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


def replicas() -> list[dict[str, Any]]:
    """Of four replicas one is being started, and one does not listen; the address of others is empty."""
    row = {"engine": None, "limits": {"max_active_generations": 2, "max_model_len": 32768}, "backend_url": ""}
    closed = {"open": False, "verified": False, "reason": "its engine ended and is being started again"}
    well = {"open": True, "verified": True, "reason": ""}
    gone = {**well, "backend_url": "http://127.0.0.1:1"}
    return [
        {**row, "index": number, "cards": [number], **part} for number, part in enumerate((well, well, closed, gone))
    ]


_QUIET = {"counts": dict.fromkeys(("report", "close", "restart", "rebind", "reboot", "quarantine"), 0), "cards": []}


def liveness(verdicts: Sequence[str], looked_s: float = 4, action: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the watchdog writes of engines, as roles/slot/files/schema/liveness.schema.json says."""
    row = {"unit": UNIT, "invocation_id": "0" * 32, "since": _ago(200), "reason": ""}
    engines = [
        {
            **row,
            "index": number if len(verdicts) > 1 else None,
            "verdict": verdict,
            "flat_s": 190 * (verdict == "wedged"),
        }
        for number, verdict in enumerate(verdicts)
    ]
    name = "gemma4-12b-it-int4-autoround-c8"
    told = {"schema": 1, "at": _ago(looked_s), "slot": "main", "profile": name}
    step = {"wanted": f"{name} is the committed profile", "do": "rest", "why": "", "at": None, "looked": 0}
    if "wedged" in verdicts:
        step |= {"why": "the engine failed; tried twice", "at": _ago(-30)}
    told["next"] = {**step, "book": {"about": name, "tries": {}}}
    return {**told, "policy": "report", "engines": engines, "verification": None, "action": action, **_QUIET}


def phases() -> dict[str, dict[str, Any]]:
    """Changes of the state file, by what the page must then tell."""
    closed: dict[str, Any] = {"open": False, "verified": False, "verified_at": None, "retry_after_s": 30}
    old, new = "qwen36-35b-a3b-int4-autoround", "gemma4-12b-it-int4-autoround-c8"
    move = {"id": "3", "from": old, "to": new, "started_at": _ago(24), "eta_s": 64}
    nothing = {"profile": None, "engine": None}
    went_wrong = f"going back to {old}: phase canary: a canary answer was wrong or missing"
    why = f"{UNIT} is wedged: requests wait, and nothing has moved for 190 s, while it answers /health"
    acted = {"at": _ago(90), "what": "report", "reason": why, "outcome": ""}
    restarted = {**acted, "at": _ago(2 * 24 * 3600), "what": "restart", "outcome": "committed"}
    back = {**move, "from": new, "to": old, "started_at": _ago(2)}
    return {
        "serving": {},
        "unverified": {"verified": False, "verified_at": None},
        "watched": {"liveness": liveness(["busy"], action=restarted)},
        "unwatched": {"liveness": liveness(["wedged"], looked_s=400)},
        "wedged": {"liveness": liveness(["wedged"], action=acted)},
        "half-wedged": {"liveness": liveness(["busy", "wedged"]), "replicas": replicas()[:2]},
        "degraded": {"replicas": replicas()},
        # long enough not to be over when a slow machine looks
        "switching": {**closed, "phase": "switching", "switch": {**move, "started_at": _ago(70), "eta_s": 160}},
        "loading": {**closed, "phase": "switching", "switch": {**move, "loading": True}},
        "settling": {**closed, "phase": "switching", "switch": {**move, "from": new, "loading": True, "eta_s": None}},
        "verifying": {**closed, "phase": "verifying", "switch": {**move, "eta_s": None}},
        "restarting": {**closed, "phase": "verifying", "switch": move, "liveness": liveness(["wedged"], looked_s=400)},
        "overdue": {**closed, "phase": "verifying", "switch": {**move, "started_at": _ago(90)}},
        "back": {**closed, "phase": "switching", "switch": back, "reason": went_wrong},
        "stopping": {**closed, "phase": "switching", "switch": {**move, "to": None, "from": new, "eta_s": None}},
        "stopped": {**closed, **nothing, "phase": "stopped", "reason": "slot main was stopped on request"},
        "idle": {
            **closed,
            **nothing,
            "phase": "stopped",
            "reason": "idle since 2026-06-07T09:08:44Z; where requests load models, the next one loads tiny-a",
            "idle": {"profile": "tiny-a", "since": "2026-06-07T09:08:44Z"},
        },
        "failed": {**closed, **nothing, "phase": "failed", "reason": WRONG},
    }


def slots() -> dict[str, dict[str, Any]]:
    """Changes of the state files of two slots, by what becomes of the second one."""
    all_of = phases()
    busy = {"liveness": liveness(["busy"])}
    return {
        name: {**busy, "second": {**all_of[phase], **more}}
        for name, phase, more in (
            ("two-slots", "degraded", {"liveness": liveness(["busy", "idle", "unknown", "unknown"])}),
            ("two-slots-stopped", "stopped", {}),
            ("two-slots-failed", "failed", {}),
        )
    }


class Show:
    """A frontdoor with visitors, in a process of its own; `keys_file` makes it want API keys.

    `program` and its one argument may be others that do the same. `second` is the name of another slot.
    """

    def __init__(self, keys_file: str = "", program: Path = SCENARIO, second: str = "") -> None:
        words = [
            sys.executable,
            str(program),
            *([keys_file] if keys_file or second else []),
            *([second] if second else []),
        ]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/"

    def __enter__(self) -> Show:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def tell(self, changes: dict[str, Any]) -> None:
        """Change the slot's state."""
        self._say(json.dumps(changes))

    def kill_engine(self) -> None:
        """End the engine; the slot's state goes on saying that it is served."""
        self._say("kill")

    def hang(self) -> None:
        """Let the frontdoor do nothing any more; its connections stay."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a frontdoor that hangs go on."""
        self._process.send_signal(signal.SIGCONT)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End the frontdoor, once."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self.go_on()
            self._process.terminate()
            self._process.wait(120)
