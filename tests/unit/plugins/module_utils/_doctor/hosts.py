# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for the doctor without a host: output that was captured, and effects that answer from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import (
    Answers,
    Command,
    Finding,
    Look,
    Output,
    Read,
    Site,
)
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS

CAPTURED = Path(__file__).parent / "captured"
BY_ID = {check.id: check for check in CHECKS}
SETTINGS: dict[str, Any] = {
    "cards": None, "profiles": [], "slot": "main", "config_dir": "/etc/b70-vllm-slot", "run_dir": "/run/b70",
    "state_dir": "/var/lib/b70", "unit_dir": "/etc/systemd/system", "stack_root": "/opt/b70/stacks",
    "data_dirs": ["/mnt/fast-ai", "/var/cache/b70"], "cache_dirs": ["/mnt/fast-ai/cache"], "user": "b70",
    "frontdoor_url": "http://127.0.0.1:8000", "default_stack": "lab-2.11", "deep": False,
}  # fmt: skip
ACCOUNT = {"uid": 990, "group": "b70", "groups": ["b70", "render"], "gids": [990, 105]}
MANIFEST = {
    "name": "lab-2.11",
    "device": "xpu",
    "cards": 2,
    "os": "Ubuntu 24.04",
    "disk_mib": 81920,
    "torch": {"torch": "2.11.0+xpu"},
    "packages": {"transformers": "5.7.0", "oneccl": "2021.17.2"},
    "oneapi": {"compiler": "2025.3"},
    "driver": {
        "intel-opencl-icd": "26.18.38308.1-0",
        "libze-intel-gpu1": "26.18.38308.1-0",
        "libze1": "1.28.2-1~24.04~ppa1",
    },
    "build": {"peak_rss_gb": 120, "swap_gb": 160, "heaviest_source": "paged_decode_xe2.cpp"},
}
STACK: dict[str, Any] = {
    "id": "lab-2.11-0123456789", "dir": "/opt/b70/stacks/lab-2.11-0123456789", "name": "lab-2.11", "complete": True,
    "reason": "", "created": "2026-06-07T08:00:00Z", "digest": "sha256:0",
}  # fmt: skip


def captured(name: str) -> str:
    return (CAPTURED / name).read_text()


def card(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "address": f"0000:{0x03 + 0x40 * number:02x}:00.0",
        "driver": "xe",
        "numa_node": 0,
        "card_node": f"/dev/dri/card{number + 1}",
        "render_node": f"/dev/dri/renderD{128 + number}",
        **changed,
    }


def profile(name: str = "big", cards: int = 2, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cards": cards,
        "unit": f"b70-slot-main-{name}.service",
        "stack": {"name": STACK["name"], "id": STACK["id"], "dir": STACK["dir"]},
        "model": {"path": f"/mnt/fast-ai/llm-models/{name}"},
        "engine": {"env": {}, "argv": []},
        **changed,
    }


def site(cards: int = 2, **changed: Any) -> Site:
    """A host with cards, everything installed and the profile `big` served."""
    known: dict[str, Any] = {
        "settings": {**SETTINGS, **changed.pop("settings", {})},
        "cards": [card(number) for number in range(cards)],
        "stacks": [STACK],
        "wanted": [profile()],
        "manifests": {"lab-2.11": MANIFEST},
        "account": ACCOUNT,
        "system": {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.4 LTS", "kernel": "6.17.0-23-generic"},
        "installed": True,
    }
    return Site(**{**known, **changed})


def judge(check: str, where: Site, *answers: tuple[Command | Read | Look, Any]) -> Finding:
    """The finding of one check for these answers; raises KeyError where an answer is to nothing that it asks."""
    asked = set(BY_ID[check].probes(where))
    for probe, _answer in answers:
        if probe not in asked:
            raise KeyError(f"{check} does not ask {probe}")
    return BY_ID[check].judge(where, Answers(dict(answers)))


def out(text: str, code: int = 0) -> Output:
    return Output(code, text)


class FakeEffects:
    """Answers what it is told, and counts; everything else is not there."""

    def __init__(self, answers: Mapping[Any, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[Any] = []

    def run(self, command: Command) -> Output:
        self.asked.append(command.argv)
        answer = self.answers.get(command.argv[0], Output(problem=f"{command.argv[0]} is not installed"))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Output)
        return answer

    def read(self, read: Read) -> dict[str, str]:
        self.asked.append(read)
        return {path: self.answers[path] for path in read.patterns if path in self.answers}

    def look(self, look: Look) -> Any:
        self.asked.append(look)
        if look.name not in self.answers:
            raise LookupError(f"{look.name} is not there")
        return self.answers[look.name]
