# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plays over a fleet, with hosts that are folders of this machine."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _fleet_lease
from ansible_collections.arcpro.b70.plugins.plugin_utils import _fleet_run
from checks.plays import hosts, note, play, run_plays, said, write_notes
from unit.plugins.module_utils._slot.calls import host as simulated
from unit.plugins.module_utils._slot.calls import switch as switch_to
from unit.plugins.module_utils._slot.fake_host import LAYOUT
from unit.plugins.module_utils.test_load_balancer_dialect import HEAD, WORKERS, row


class Fleet:
    """Two hosts; what each keeps in its state directory is in a folder with its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("h1", "h2")
        self.inventory = hosts(
            {name: {"host_state_dir": str(folder / name), "ansible_become": False} for name in names}
        )
        self.inventory["b70_hosts"] = {"hosts": {name: {} for name in names}}
        (folder / "inventory.json").write_text(json.dumps(self.inventory))

    def lease(self, host: str, **lease: str) -> dict[str, Any] | None:
        file = self.folder / host / _fleet_lease.FILE
        if lease:
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(lease))
        return json.loads(file.read_text()) if file.exists() else None


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Hosts whose systemd has no unit of a slot."""
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    return Fleet(tmp_path)


def own(point: str, **variables: Any) -> dict[str, Any]:
    role = {"ansible.builtin.include_role": {"name": "arcpro.b70.fleet", "tasks_from": point}, "vars": variables}
    return {"hosts": "b70_hosts", "gather_facts": False, "tasks": [role]}


THEIRS = {"owner": "bob@lap", "what": "the rollout of new", "since": "2026-06-07T09:08:44Z"}


def test_a_host_that_another_run_owns_keeps_a_play_from_every_host(fleet: Fleet) -> None:
    running = {"run": _fleet_run.run_of(os.getpid()), **THEIRS, "until": "2999-01-01T00:00:00Z"}
    fleet.lease("h2", **running)
    done = play("recycle", inventory=str(fleet.folder / "inventory.json"))
    assert done.returncode == 2, done.stdout
    why = "Nothing was started. h2: it belongs to the rollout of new by bob@lap, since 2026-06-07T09:08:44Z"
    assert why in said(done.stdout), done.stdout
    assert (fleet.lease("h1"), fleet.lease("h2")) == (None, running)


def test_what_ended_without_giving_it_up_is_taken_kept_and_given_up(fleet: Fleet) -> None:
    gone = _fleet_run.run_of(os.getpid()).rpartition(":")[0] + ":1"
    fleet.lease("h2", run=gone, **THEIRS, until="2999-01-01T00:00:00Z")
    plays = [own("main", fleet_what="a test"), own("keep"), own("check"), own("release")]
    done = run_plays(fleet.folder, plays, inventory=fleet.inventory)
    assert done.returncode == 0, done.stdout
    assert (fleet.lease("h1"), fleet.lease("h2")) == (None, None)
    lost = run_plays(fleet.folder, [own("main"), own("release"), own("keep")], inventory=fleet.inventory)
    assert lost.returncode == 2
    assert "h1: its lease was given up" in said(lost.stdout), lost.stdout


def test_a_scheduled_restart_leaves_hosts_in_maintenance_alone(fleet: Fleet) -> None:
    inventory = str(fleet.folder / "inventory.json")
    begun = play("maintenance", '{"reason": "a fan"}', inventory=inventory)
    assert begun.returncode == 0, begun.stdout
    records = [fleet.folder / host / "maintenance.json" for host in ("h1", "h2")]
    assert [json.loads(record.read_text())["reason"] for record in records] == ["a fan"] * 2
    done = play("recycle", inventory=inventory)
    assert done.returncode == 0, done.stdout
    assert "h2 is in maintenance and left alone" in said(done.stdout)
    assert "Activate the profile and verify it" not in done.stdout
    ended = play("maintenance", "state=absent", inventory=inventory)
    assert ended.returncode == 0, ended.stdout
    assert not any(record.exists() for record in records)


SERVED = {
    "outcome": "committed",
    "profile": "new",
    "verified": True,
    "fingerprint": "f",
    "phases": [],
    "verified_by": [],
}


def test_the_recap_agrees_with_the_table_and_names_a_host_that_is_off(fleet: Fleet) -> None:
    """All were switched; at the end one host is off, and the other one serves nothing."""
    off = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    fleet.inventory["all"]["hosts"]["h2"] |= off
    predicted = {"outcome": "committed", "previous_profile": "old", "verified": False}
    step: dict[str, Any] = {"results": "returned", "record": "{{ __rollout_plan.record | default(omit) }}"}
    plan = {**step, "step": "plan", "profile": "new", "waves": "100%", "dir": str(fleet.folder / "rollouts")}
    judge = {**step, "step": "judge"}
    plans = [
        {"ansible.builtin.set_fact": {"returned": predicted}},
        {"arcpro.b70.b70_rollout": plan, "register": "__rollout_plan", "run_once": True},
        {"ansible.builtin.set_fact": {"returned": SERVED}},
    ]
    waves = [{"arcpro.b70.b70_rollout": judge, "run_once": True}]
    report = {"ansible.builtin.include_role": {"name": "arcpro.b70.rollout", "tasks_from": "report"}}
    slot = {f"slot_{kind}_dir": str(fleet.folder / kind) for kind in ("config", "run", "state", "unit")}
    plays = [
        {"hosts": "b70_hosts", "gather_facts": False, "tasks": plans},
        {"hosts": "b70_hosts", "gather_facts": False, "serial": 1, "tasks": waves},
        {"hosts": "b70_hosts", "gather_facts": False, "vars": slot, "tasks": [report]},
    ]
    done = run_plays(fleet.folder, plays, inventory=fleet.inventory)
    (record,) = (fleet.folder / "rollouts").glob("*/rollout.json")
    members = json.loads(record.read_text())["members"]
    assert [(one["now"], one["result"]["verdict"]) for one in members] == [
        ("nothing", "no longer served"),
        ("off", "unreachable"),
    ], done.stdout
    recap = {line.split()[0]: line for line in done.stdout.splitlines() if " unreachable=" in line}
    assert "failed=1" in recap["h1"], recap
    assert "unreachable=1" in recap["h2"], recap
    assert done.returncode != 0


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[Path]:
    """The master socket of an HAProxy that has h1 in service, and h2 down."""
    drained = {"h1": 0}

    def answer(command: str) -> str:
        words = command.split()
        if "set" in words:
            drained["h1"] = {"drain": 8, "ready": 0}[words[-1]]
            return ""
        if "stat" in words:
            return "# pxname,svname,scur\nb70,h1,0\n"
        rows = (row("h1", admin=drained["h1"]), row("h2", op=0, result=2))
        return WORKERS if words == ["show", "proc"] else "\n".join(("1", HEAD, *rows, ""))

    path = tmp_path / "master.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                connection, _peer = listener.accept()
                with connection, connection.makefile("rw") as file:
                    command = file.readline()
                    if not command:
                        return
                    file.write(answer(command))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(str(path))
        thread.join(10)


@pytest.mark.parametrize("wanted", ["a", ""])
def test_the_status_ends_with_3_where_a_host_should_serve_and_does_not(fleet: Fleet, wanted: str) -> None:
    """Both hosts serve nothing; a person has said of one what it should serve."""
    fleet.inventory["all"]["vars"] |= {
        f"slot_{kind}_dir": str(fleet.folder / kind) for kind in ("config", "run", "unit")
    }
    (fleet.folder / "inventory.json").write_text(json.dumps(fleet.inventory))
    journal = fleet.folder / "h1" / "journal" / "main.jsonl"
    journal.parent.mkdir(parents=True)
    if wanted:
        rig = simulated(wanted)
        switch_to(rig, wanted)
        journal.write_text(rig.texts[LAYOUT.journal_file][0])
    done = play("status", inventory=str(fleet.folder / "inventory.json"))
    assert done.returncode == (3 if wanted else 0), done.stdout
    assert ("h1 does not serve a: no state file" in said(done.stdout)) is bool(wanted)


def test_the_last_host_in_service_is_drained_only_by_who_says_so(fleet: Fleet, haproxy: Path) -> None:
    fleet.inventory["b70_load_balancers"] = {"hosts": {"lb": {}}}
    fleet.inventory["all"]["hosts"]["lb"] = {
        "ansible_become": False,
        "load_balancer_state_dir": str(fleet.folder / "lb"),
    }
    switch = {"ansible.builtin.include_role": {"name": "arcpro.b70.rollout", "tasks_from": "switch"}}
    drain = {"ansible.builtin.include_role": {"name": "arcpro.b70.load_balancer", "tasks_from": "drain"}}
    restore = {"ansible.builtin.include_role": {"name": "arcpro.b70.load_balancer", "tasks_from": "restore"}}
    common = {
        "hosts": "h1",
        "gather_facts": False,
        "module_defaults": {"arcpro.b70.b70_load_balancer_member": {"socket": str(haproxy)}},
    }
    plays = [
        {
            **common,
            "tasks": [
                switch,
                note("refusal", "__load_balancer_refusal"),
                note("served", "__slot_served | default('')"),
            ],
            "vars": {"slot_profile": "new"},
        },
        {
            **common,
            "tasks": [{**drain, "vars": {"b70_min_ready": "0"}}, note("drained", "__load_balancer_members.results")],
        },
        {**write_notes(fleet.folder), "hosts": "h1"},
        {**common, "tasks": [{**restore, "vars": {"load_balancer_restore_wait": False}}, drain]},
    ]
    done = run_plays(fleet.folder, plays, inventory=fleet.inventory)
    noted = json.loads((fleet.folder / "h1.json").read_text())
    why = "draining h1 would leave 0 of 2 hosts in service in the backend b70, and b70_min_ready keeps 1"
    assert (noted["refusal"], noted["served"]) == (why, ""), done.stdout
    assert noted["drained"][0]["summary"] == "h1 is drained, with 0 requests under way"
    assert done.returncode == 2, done.stdout
    assert f"{why}. Wait until another host serves" in said(done.stdout)
