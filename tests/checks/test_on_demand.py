# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor takes what the role writes about models on demand, and slots that there are not are refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from checks.plays import ROOT, hosts, note, run_plays, said, write_notes
from frontdoor.config import Demand, from_table

TRIED = {
    "off": {},
    "right": {"main": ["*"], "aux": ["vec", "vec-2"]},
    "wrong": {"main": ["*"], "other": ["*"]},
    "idle": {"main": ["*"]},
}
TEXT = f"lookup('arcpro.b70.rendered', '{ROOT / 'templates/frontdoor.toml.j2'}')"


def test_models_on_demand(tmp_path: Path) -> None:
    role = {"name": "arcpro.b70.frontdoor", "tasks_from": "preflight", "public": True}
    tasks = [
        {"block": [{"ansible.builtin.include_role": role}], "rescue": [note("failed", "ansible_failed_result.msg")]},
        {**note("config", TEXT), "when": "noted is not defined"},
    ]
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    own = {"b70_slots": {"aux": {"slot_cards": [1]}}, "frontdoor_on_demand_min_serve": 30}
    idle = {"right": {"main": 1800}, "idle": {"main": 60, "aux": 60}}
    found = hosts(
        {
            name: {"frontdoor_on_demand": slots, "frontdoor_on_demand_idle": idle.get(name, {}), **own}
            for name, slots in TRIED.items()
        }
    )
    done = run_plays(tmp_path, [play, write_notes(tmp_path)], "--check", "-e", "__frontdoor_port=1", inventory=found)
    assert done.returncode == 0, done.stdout
    told = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in TRIED}
    assert "there is no slot other" in said(told["wrong"]["failed"])
    assert "frontdoor_on_demand_idle has the slot aux, which" in said(told["idle"]["failed"])
    for name in ("off", "right"):
        config = from_table(tomllib.loads(told[name]["config"]))
        slots = {slot.name: slot.on_demand for slot in (config.slot, *config.slots)}
        assert slots == {one: tuple(TRIED[name].get(one, ())) for one in ("main", "aux")}
        assert config.demand == Demand(min_serve_s=30)
        assert [slot.idle_s for slot in (config.slot, *config.slots)] == ([1800, 0] if name == "right" else [0, 0])
