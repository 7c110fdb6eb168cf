# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for the doctor without a host: output that was captured, and effects that answer from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

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
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks

CAPTURED = Path(__file__).parent / "captured"
BY_ID = {check.id: check for check in CHECKS}
SETTINGS: dict[str, Any] = {
    "cards": None, "profiles": [], "slot": "main", "config_dir": "/etc/b70-vllm-slot", "run_dir": "/run/b70",
    "state_dir": "/var/lib/b70", "unit_dir": "/etc/systemd/system", "stack_root": "/opt/b70/stacks",
    "data_dirs": ["/mnt/fast-ai", "/var/cache/b70"], "cache_dirs": ["/mnt/fast-ai/cache"], "user": "b70",
    "frontdoor_url": "http://127.0.0.1:8000", "default_stack": "xpu", "deep": False, "guc_accepted": [],
    "driver_source": "github", "driver_packages": {},
    "build_dir": "/mnt/fast-ai/src",
    "build_swap": {"file": "/mnt/fast-ai/b70-build.swap", "total_gib": 176, "reserve_gib": 10},
}  # fmt: skip
SYSTEM: dict[str, Any] = {
    "id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.4 LTS", "machine": "x86_64",
    "kernel": "6.17.0-23-generic", "next_kernel": "6.17.0-23-generic", "kernel_arguments": ["quiet"],
}  # fmt: skip
ACCOUNT = {"uid": 990, "group": "b70", "groups": ["b70", "render"], "gids": [990, 105]}
SHIPPED = load_stacks()
MANIFEST = SHIPPED["lab-minimax"]


def stack(name: str, **changed: Any) -> dict[str, Any]:
    """A complete installation of a shipped stack."""
    identity = f"{name}-0123456789"
    return {
        "id": identity, "dir": f"/opt/b70/stacks/{identity}", "name": name, "complete": True, "reason": "",
        "created": "2026-06-07T08:00:00Z", "digest": "sha256:0", **changed,
    }  # fmt: skip


STACK = stack("lab-minimax")
_ROLE = yaml.safe_load((Path(__file__).parents[5] / "roles/gpu_driver/vars/main.yml").read_text())
# What the role gpu_driver pins of each source, as its variables come to.
PINNED: dict[str, dict[str, str]] = {
    "omix": _ROLE["__gpu_driver_sources"]["omix"]["packages"],
    "ppa": _ROLE["__gpu_driver_sources"]["ppa"]["packages"],
    "github": {deb["name"]: deb["version"] for deb in (*_ROLE["__gpu_driver_loader"], *_ROLE["__gpu_driver_26_27"])}
    | {"clinfo": "*"},
}


def captured(name: str) -> str:
    return (CAPTURED / name).read_text()


def card(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "address": f"0000:{0x03 + 0x40 * number:02x}:00.0",
        "driver": "xe",
        "guc": "",
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
        "stack": {key: STACK[key] for key in ("name", "id", "dir")},
        "model": {"path": f"/mnt/fast-ai/llm-models/{name}"},
        "engine": {"env": {}, "argv": []},
        **changed,
    }


def site(cards: int | list[dict[str, Any]] = 2, **changed: Any) -> Site:
    """A host with cards, everything installed and the profile `big` served."""
    known: dict[str, Any] = {
        "settings": {**SETTINGS, **changed.pop("settings", {})},
        "cards": [card(number) for number in range(cards)] if isinstance(cards, int) else cards,
        "stacks": [STACK],
        "wanted": [profile()],
        "manifests": SHIPPED,
        "account": ACCOUNT,
        "system": SYSTEM,
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
