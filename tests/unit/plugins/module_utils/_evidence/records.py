# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records as tests need them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.host_class import machine
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import make

HOST: dict[str, Any] = {
    "name": "b70-01",
    "class": "4 x B70, AMD Ryzen Threadripper PRO 5955WX 16-Cores, 32 threads, 126 GiB",
    "machine": machine(),
    "cpu": "AMD Ryzen Threadripper PRO 5955WX 16-Cores",
    "cores": 32,
    "memory_gib": 125.6,
    "kernel": "7.0.0-38-generic",
    "cards": [
        {"address": f"0000:{bus}:00.0", "driver": "xe", "guc": "70.54.0", "power_cap_w": None}
        for bus in ("03", "2b", "43", "63")
    ],
    "launch_latency_us": None,
    "all_reduce_us": None,
}
ANSWERS = {"ok": True, "hashes": {"exact_ok": "565339bc4d33d72817b583024112eb7f5cdf3e5eef0252d6ec1b9c9a94e12bb3"}}


def record(kind: str = "benchmark", began_at: str = "2026-11-23T04:16:00Z", **given: Any) -> dict[str, Any]:
    """Return a valid record of tiny-a on b70-01; what is given replaces its parts. Its number follows the time."""
    parts: dict[str, Any] = {
        "profile": "tiny-a",
        "fingerprint": "sha256:0f3c7c8a",
        "slot": "main",
        "stack": "lab-4ec1d2",
        "engine": {"name": "vllm", "version": "0.21.0"},
        "host": HOST,
        "began_at": began_at,
        "ended_at": began_at,
        "verdict": "passed",
        "reasons": [],
        "canary": {"before": ANSWERS, "after": ANSWERS},
        "data": {},
    }
    number = int(datetime.fromisoformat(began_at.replace("Z", "+00:00")).timestamp())
    return {**make(kind, **{**parts, **given}), "number": number}
