# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text in the place of a mapping or a list, as a command line gives it, is refused before a host is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from checks.plays import hosts, note, run_plays, said, write_notes

WORDS = (
    'frontdoor_sampling_defaults={"temperature":0.5}',
    "frontdoor_api_keys=alice=geheim",
    "frontdoor_model_aliases=gpt,other",
    "slot_env=A=geheim",
)
REFUSALS = {
    "frontdoor": (
        "frontdoor_sampling_defaults is text and must be",
        "frontdoor_api_keys is text and must be a mapping",
        "frontdoor_model_aliases is text and must be a list",
    ),
    "slot": ("slot_env is text and must be a mapping",),
}


def test_each_is_refused_by_name(tmp_path: Path) -> None:
    tasks: list[dict[str, Any]] = []
    for name in REFUSALS:
        role = {"name": f"arcpro.b70.{name}", "tasks_from": "preflight"}
        failed = [note(name, "ansible_failed_result.msg")]
        tasks.append({"block": [{"ansible.builtin.include_role": role}], "rescue": failed})
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    given = [part for word in WORDS for part in ("-e", word)]
    done = run_plays(tmp_path, [play, write_notes(tmp_path)], "--check", *given, inventory=hosts({"one": {}}))
    assert done.returncode == 0, done.stdout
    found = json.loads((tmp_path / "one.json").read_text())
    for name, reasons in REFUSALS.items():
        assert [reason for reason in reasons if reason not in said(found[name])] == []
    assert "geheim" not in done.stdout


def test_one_host_tells_what_is_wrong_on_another(tmp_path: Path) -> None:
    role = {"name": "arcpro.b70.slot", "tasks_from": "preflight"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role}]}
    here = hosts({"one": {}, "two": {"slot_env": "A=geheim", "slot_evn": {}}})
    done = run_plays(tmp_path, [play], "--check", inventory=here)
    text = said(done.stdout)
    assert done.returncode == 2, text
    assert text.count("fatal:") == 1, text
    assert "slot_env is text and must be a mapping" in text
    assert "The role slot has no variable slot_evn" in text
    assert "geheim" not in text
