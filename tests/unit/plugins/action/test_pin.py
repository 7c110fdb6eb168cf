# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action that records what the first host saw."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_pin
from ansible_collections.arcpro.b70.plugins.modules.b70_pin import DOCUMENTATION
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file

NAME, FIRST, OTHER = "xe/bmg_guc_70.bin 70.65", f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})

    def pinned(value: str, host: str = "h1", check_mode: bool = False, file: str = "b70-pins.yml") -> dict[str, Any]:
        plugin = object.__new__(b70_pin.ActionModule)
        arguments = {"section": "firmware", "name": NAME, "value": value, "origin": "https://firmware.example.com"}
        plugin._task = SimpleNamespace(args={**arguments, "file": str(tmp_path / file)}, check_mode=check_mode)
        return dict(plugin.run(None, {"inventory_hostname": host}))

    return pinned


def test_the_first_host_pins_and_every_later_one_must_see_the_same(pin: Any, tmp_path: Path) -> None:
    predicted = pin(FIRST, check_mode=True)
    assert (predicted["changed"], list(tmp_path.iterdir())) == (True, [])
    first = pin(FIRST)
    assert (first["changed"], first["failed"], "at first sight" in first["msg"]) == (True, False, True)
    assert _pins_file.read(str(tmp_path / "b70-pins.yml")).value("firmware", NAME) == FIRST
    assert (pin(FIRST, "h2")["changed"], pin(FIRST, "h2")["failed"]) == (False, False)
    refused = pin(OTHER, "h2")
    assert (refused["changed"], refused["failed"]) == (False, True)
    assert refused["msg"].startswith(f"h2: {NAME}: h2 has the digest {OTHER}, and ")
    assert "first seen by h1" in refused["msg"]
    assert _pins_file.read(str(tmp_path / "b70-pins.yml")).value("firmware", NAME) == FIRST


def test_a_file_that_cannot_be_written_is_a_fault(pin: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"h1: there is no directory .*missing"):
        pin(FIRST, file="missing/b70-pins.yml")


def test_the_options_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]
    known = ("type", "default", "elements", "required", "choices")
    assert {n: {k: one[k] for k in known if k in one} for n, one in said.items()} == b70_pin.OPTIONS
