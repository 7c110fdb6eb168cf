# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of cards before anything is changed, on stand-ins for hosts: what was read of them is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _host
from checks.plays import hosts, note, run_plays, said, write_notes
from labkit import cards

JUDGE = {"name": "arcpro.b70.gpu_driver", "tasks_from": "before"}


def stand_in(folder: Path, release: str, kernel: str, count: int, **tree: Any) -> dict[str, Any]:
    """What b70_host_info returns of such a host, as far as the judgement reads it; its cards are files."""
    cards.tree(folder, count, **tree)
    missing = ["linux-generic-6.17"] if kernel.startswith("6.8") else []
    system = {
        "id": "ubuntu", "version": release, "name": f"Ubuntu {release} LTS", "machine": "x86_64", "kernel": kernel,
        "next_kernel": kernel, "kernel_arguments": ["quiet"], "guc_file": "",
    }  # fmt: skip
    found = _host.cards(folder)
    return {
        "system": system,
        "cards": found,
        "other_cards": _host.other_cards(folder),
        "restart_reasons": _host.restart_reasons(missing, [], system, found),
    }


def test_four_hosts_hear_what_they_have_to_know(tmp_path: Path) -> None:
    def host(name: str, *about: Any, **tree: Any) -> dict[str, Any]:
        return stand_in(tmp_path / name, *about, **tree)

    found = {
        "fresh": host("fresh", "24.04", "6.8.0-87-generic", 1, driver=""),
        "resolute": host("resolute", "26.04", "7.0.0-27-generic", 2, guc="70.58.0"),
        "hwe": host("hwe", "24.04", "7.0.0-39-generic", 4, guc="70.54.0"),
        "mixed": host("mixed", "24.04", "6.17.0-1010-intel", 2, guc="70.65.0", others={0: "0xe211"}),
    }
    noting = [note(name, f"__gpu_driver_found.{name}") for name in ("outlook", "firmware")]
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": JUDGE}, *noting]}
    inventory = hosts({name: {"__host_now": one, "host_reboot": True} for name, one in found.items()})
    done = run_plays(tmp_path, [play, write_notes(tmp_path)], "--check", inventory=inventory)
    assert done.returncode == 0, done.stdout
    noted = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in found}
    assert {name: told["firmware"] for name, told in noted.items()} == {
        "fresh": "", "resolute": "70.65", "hwe": "", "mixed": ""
    }  # fmt: skip
    told = {name: "\n".join(one["outlook"]) for name, one in noted.items()}
    assert "0000:03:00.0 has no driver under the kernel 6.8.0-87-generic" in told["fresh"]
    assert "site.yml restarts it: a kernel is installed with linux-generic-6.17" in told["fresh"]
    assert told["resolute"].count("runs the GuC firmware 70.58.0 (wanted 70.54.0) under the kernel 7.0.0-27") == 2
    assert "site.yml puts the GuC firmware 70.65 at /lib/firmware/updates" in told["resolute"]
    assert told["hwe"].count("usable: it is what this kernel asks for") == 4
    assert "card 1, Arc Pro B70 at 0000:83:00.0." in told["mixed"]
    assert "An Arc Pro B60 at 0000:03:00.0 is left out" in told["mixed"]
    for line in (line for one in noted.values() for line in one["outlook"]):
        assert line in said(done.stdout).replace("''", "'"), done.stdout


def test_what_no_later_task_repairs_ends_the_play_before_anything_is_changed(tmp_path: Path) -> None:
    """Also a host whose cards only wait for a restart goes on."""

    def host(name: str, *about: Any, offer: bool = True, **tree: Any) -> dict[str, Any]:
        found = stand_in(tmp_path / name, *about, **tree)
        return {"__host_now": found, **({} if offer else {"gpu_driver_guc_file": {}})}

    inventory = {
        "interim": host("interim", "25.10", "6.17.0-5-generic", 1, guc="70.65.0"),
        "refused": host("refused", "26.04", "7.0.0-27-generic", 1, guc="70.58.0", offer=False),
        "offered": host("offered", "26.04", "7.0.0-27-generic", 1, guc="70.58.0"),
        "fresh": host("fresh", "24.04", "6.8.0-87-generic", 1, driver=""),
    }
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": JUDGE}]}
    done = run_plays(tmp_path, [play], inventory=hosts(inventory))
    recap = {line.split()[0]: line for line in done.stdout.partition("PLAY RECAP")[2].splitlines() if " : ok=" in line}
    failed = {name for name, line in recap.items() if "failed=1" in line}
    assert failed == {"interim", "refused"}, done.stdout
    assert all("changed=0" in line for line in recap.values())
    assert "the packages of omix are made for ubuntu 24.04, ubuntu 26.04" in said(done.stdout)
    assert "refused: 0000:03:00.0 runs the GuC firmware 70.58.0 (wanted 70.54.0)" in said(done.stdout)
