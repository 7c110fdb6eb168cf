# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hosts as a fleet: the table of all hosts, waves, restarts, and the timer for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves
from scenarios.rig import SETTINGS, Rig

pytestmark = pytest.mark.fleet
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COUNT = 3
LIMIT_S = 1200
SITE = ("--tags", "always,slot,frontdoor,activate")
DOOR = "b70-openai-frontdoor.service"
SERVICE, TIMER = "b70-recycle.service", "b70-recycle.timer"
CONTROL = "/usr/local/lib/b70-control"


class Fleet:
    """The hosts, and plays over all of them."""

    def __init__(self, rigs: list[Rig]) -> None:
        self.rigs = rigs

    def play(self, playbook: str, *words: str, inventories: tuple[Path, ...] = (), **variables: Any) -> tuple[int, str]:
        """(exit status, everything that was printed)."""
        # The simulated engine is no stack that can be installed, so an empty host would refuse its profiles.
        names = [*(rig.host.name for rig in self.rigs), *(path.stem for path in inventories)]
        given = {**SETTINGS, "profiles_choose": False, "b70_target": ":".join(names)}
        sources = [word for path in ("inventory/lab.yml", *inventories) for word in ("-i", str(path))]
        done = subprocess.run(
            [
                "ansible-playbook",
                *sources,
                playbook,
                *words,
                "-e",
                json.dumps(given | variables),
            ],
            cwd=ROOT,
            env={**os.environ, "B70_LAB": self.rigs[0].lab.name, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "150"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return done.returncode, done.stdout + done.stderr

    def must(self, playbook: str, *words: str, **variables: Any) -> str:
        code, said = self.play(playbook, *words, **variables)
        assert code == 0, said
        return said

    def have(self, *profiles: str) -> None:
        """Have each host serve its profile with a healthy engine."""
        for rig, profile in zip(self.rigs, profiles, strict=True):
            rig.have(profile)

    def engines(self) -> list[str]:
        return [rig.facts().invocation for rig in self.rigs]

    def doors(self) -> list[str]:
        shown = ("systemctl", "show", "--value", "--property=InvocationID", DOOR)
        return [rig.must(*shown).strip() for rig in self.rigs]


@pytest.fixture
def hosts(fleet: list[Rig]) -> Fleet:
    """Three of the hosts."""
    return Fleet(fleet[:COUNT])


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    """An inventory with one more host, on which nobody listens."""
    path = tmp_path / "gone.yml"
    path.write_text("b70_hosts:\n  hosts:\n    gone: {ansible_host: 127.0.0.1, ansible_port: 1}\n")
    return path


def test_the_status_shows_all_hosts_with_one_down_and_one_different(hosts: Fleet, gone: Path, tmp_path: Path) -> None:
    hosts.have("sim-a", "sim-b", "sim-a")
    names = [rig.host.name for rig in hosts.rigs]
    code, said = hosts.play("status.yml", inventories=(gone,), status_json=str(tmp_path / "status.json"))
    assert code != 0, said
    document = json.loads((tmp_path / "status.json").read_text())
    told = {host["host"]: host for host in document["hosts"]}
    assert sorted(told) == sorted([*names, "gone"])
    assert [told[name]["profile"] for name in names] == ["sim-a", "sim-b", "sim-a"]
    assert [told[name]["differs"] for name in names] == [[], ["profile"], []]
    assert [told[name]["frontdoor"] for name in names] == [{"active": 0, "queued": 0, "max_active": 8}] * 3
    assert "unreachable" in told["gone"]["problem"]
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line.split()[:1] and "serving" in line}
    assert [rows[name][1:5] for name in names] == [
        ["sim-a", "serving", "yes", "0/8"],
        ["sim-b*", "serving", "yes", "0/8"],
        ["sim-a", "serving", "yes", "0/8"],
    ]
    assert "3 of 4 hosts serve a verified model; 1 could not be read; 1 differ from most (*)" in said
    assert "Not read: gone; the table says why." in said
    assert "at boot:" not in said, "everything about each host is for one host"


def test_the_status_of_one_host_has_all_that_is_known(hosts: Fleet) -> None:
    hosts.rigs[0].have("sim-a")
    said = hosts.must("status.yml", "--limit", hosts.rigs[0].host.name)
    assert "at boot: b70-slot-main-sim-a.service" in said
    assert "1 of 1 hosts serve a verified model" in said


def test_a_canary_host_that_fails_ends_site_before_anything_else_restarts(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-a", "sim-a")
    hosts.rigs[0].tell("sim-b", "wrong_answer")
    engines, doors = hosts.engines(), hosts.doors()
    code, said = hosts.play("site.yml", *SITE, profile="sim-b")
    assert code != 0, said
    assert hosts.engines()[1:] == engines[1:]
    assert hosts.doors() == doors
    for rig in hosts.rigs:
        rig.wait_settled()
        assert_serves(rig, "sim-a")


def test_site_restarts_in_waves_and_then_nothing(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-b", "sim-a")
    engines, doors = hosts.engines(), hosts.doors()
    hosts.must("site.yml", *SITE, profile="sim-b")
    for rig in hosts.rigs:
        assert_serves(rig, "sim-b")
    assert hosts.engines()[1] == engines[1], "an engine that serves the profile already was restarted"
    assert hosts.doors() == doors
    ends = [[record for record in rig.journal() if record["event"] == "end"][-1]["at"] for rig in hosts.rigs]
    begins = [[record for record in rig.journal() if record["event"] == "begin"][-1]["at"] for rig in hosts.rigs]
    assert ends[0] <= begins[2], "the second wave began before the first one had ended"
    engines = hosts.engines()
    said = hosts.must("site.yml", *SITE, profile="sim-b")
    assert (hosts.engines(), hosts.doors()) == (engines, doors)
    assert said.count(" changed=0 ") == COUNT, said
    assert "skipping: no hosts matched" in said


def test_a_frontdoor_that_fails_stops_site_at_the_first_host(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-a", "sim-a")
    engines, doors = hosts.engines(), hosts.doors()
    # Something else has the port that the frontdoor is to take.
    with hosts.rigs[0].popen("python3", "-m", "http.server", "8099") as other:
        try:
            code, said = hosts.play("site.yml", *SITE, frontdoor_port=8099, frontdoor_start_timeout=8)
        finally:
            other.terminate()
    assert code != 0, said
    assert hosts.doors()[1:] == doors[1:], said
    assert hosts.engines() == engines
    for rig in hosts.rigs:
        assert_serves(rig, "sim-a")


def test_recycle_restarts_one_host_after_the_other(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-b", "sim-a")
    engines, doors = hosts.engines(), hosts.doors()
    hosts.must("playbooks/recycle.yml", reason="leak")
    spans = []
    for rig, profile in zip(hosts.rigs, ("sim-a", "sim-b", "sim-a"), strict=True):
        rig.wait_settled()
        assert_serves(rig, profile)
        last = [record for record in rig.journal() if record["event"] in ("begin", "end")][-2:]
        assert (last[0]["why"], last[0]["from"], last[0]["to"]) == ("leak", profile, profile)
        spans += [last[0]["at"], last[1]["at"]]
    assert spans == sorted(spans), "two hosts were restarted at once"
    assert not set(hosts.engines()) & set(engines)
    assert hosts.doors() == doors


def test_recycle_ends_at_the_first_host_that_fails(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-a", "sim-a")
    hosts.rigs[1].tell("sim-a", "wrong_answer")
    engines = hosts.engines()
    code, said = hosts.play("playbooks/recycle.yml")
    assert code != 0, said
    assert hosts.engines()[2] == engines[2]
    assert_serves(hosts.rigs[0], "sim-a")
    assert hosts.rigs[1].facts().running == ()


def test_recycle_does_the_restart_that_an_update_of_a_library_made_due(hosts: Fleet) -> None:
    hosts.have("sim-a", "sim-a", "sim-a")
    engines, doors = hosts.engines(), hosts.doors()
    first = hosts.rigs[0]
    process = first.must("systemctl", "show", "--value", "--property=MainPID", DOOR).strip()
    maps = first.must("cat", f"/proc/{process}/maps").splitlines()
    library = next(line.split()[-1] for line in maps if "/libc.so" in line)
    first.must("sh", "-c", f"cp --preserve {library} {library}.new && mv {library}.new {library}")
    only = {"doctor_only": ["restarts"]}
    said = hosts.must("doctor.yml", **only)
    assert f"a restart is due because of {library}" in said
    hosts.must("playbooks/recycle.yml")
    assert not set(hosts.engines()) & set(engines)
    assert hosts.doors()[0] != doors[0]
    assert hosts.doors()[1:] == doors[1:], "no restart was due there"
    assert "a restart is due" not in hosts.must("doctor.yml", **only)
    for rig in hosts.rigs:
        rig.wait_settled()
        assert_serves(rig, "sim-a")


@pytest.fixture
def control(hosts: Fleet) -> Iterator[Rig]:
    """The last host as control host: with Ansible, this collection and an inventory of the first host."""
    rig, first = hosts.rigs[-1], hosts.rigs[0]
    place = rig.root / CONTROL.lstrip("/")
    shutil.rmtree(place, ignore_errors=True)
    packages = place / "lib"
    packages.mkdir(parents=True)
    for name in ("ansible", "jinja2", "markupsafe", "yaml", "packaging", "resolvelib"):
        source = next(Path(folder) for folder in sys.path if (Path(folder) / name / "__init__.py").exists())
        for path in (source / name, *source.glob(f"{name}-*.dist-info")):
            shutil.copytree(path, packages / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    program = place / "ansible-playbook"
    program.write_text(
        f"#!/usr/bin/python3\nimport sys\nsys.path.insert(0, '{CONTROL}/lib')\n"
        "from ansible.cli.playbook import main\nmain(sys.argv)\n"
    )
    program.chmod(0o755)
    collection = place / "ansible_collections/arcpro/b70"
    for folder in ("plugins", "roles", "playbooks", "meta"):
        shutil.copytree(ROOT / folder, collection / folder, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    (place / "ansible.cfg").write_text(f"[defaults]\ncollections_path = {CONTROL}\n")
    (place / "inventory.yml").write_text(
        f"b70_hosts:\n  hosts:\n    {first.host.name}:\n      ansible_host: {first.address}\n      ansible_user: root\n"
        "      ansible_python_interpreter: /usr/bin/python3\n"
    )
    yield rig
    hosts.must("playbooks/schedule_recycle.yml", b70_target=rig.host.name, recycle_state="absent")
    assert not (rig.root / f"etc/systemd/system/{TIMER}").exists()


def test_a_timer_on_a_control_host_recycles_another_host(hosts: Fleet, control: Rig) -> None:
    first = hosts.rigs[0]
    first.have("sim-a")
    settings: dict[str, Any] = {
        "b70_target": control.host.name,
        "recycle_inventory": f"{CONTROL}/inventory.yml",
        "recycle_command": f"{CONTROL}/ansible-playbook",
        "recycle_directory": CONTROL,
        "recycle_on_calendar": "Sun *-*-* 04:00:00",
        "recycle_reason": "50% of a $week's 'restarts'",
    }
    code, said = hosts.play("playbooks/schedule_recycle.yml", **{**settings, "recycle_on_calendar": "now and then"})
    assert code != 0
    assert "recycle_on_calendar: " in said
    said = hosts.must("playbooks/schedule_recycle.yml", **settings)
    key = control.read("var/lib/b70-recycle/.ssh/id_ed25519.pub").strip()
    assert key.split()[1] in said, "the operator is not told the public key"
    assert " changed=0 " in hosts.must("playbooks/schedule_recycle.yml", **settings)
    control.must("systemd-analyze", "verify", f"/etc/systemd/system/{TIMER}", f"/etc/systemd/system/{SERVICE}")
    assert control.must("systemctl", "is-enabled", TIMER).strip() == "enabled"
    assert "NextElapseUSecRealtime=" in control.must("systemctl", "show", "--property=NextElapseUSecRealtime", TIMER)

    # A host whose key nobody has compared is not believed.
    assert control.run("systemctl", "start", SERVICE).code != 0
    assert "Host key verification failed" in control.must("journalctl", "--no-pager", "-u", SERVICE)

    authorized = first.read("root/.ssh/authorized_keys")
    first.write("root/.ssh/authorized_keys", f"{authorized.rstrip()}\n{key}\n")
    control.must("sh", "-c", f"ssh-keyscan {first.address} > /var/lib/b70-recycle/.ssh/known_hosts 2>/dev/null")
    control.must("chown", "b70-recycle:", "/var/lib/b70-recycle/.ssh/known_hosts")
    try:
        before = first.facts().invocation
        started = [control.popen("systemctl", "start", SERVICE) for _number in range(2)]
        users = wait_for(lambda: control.run("pgrep", "-u", "b70-recycle", "-f", "ansible-playbook").output, "it runs")
        assert users
        for process in started:
            output, errors = process.communicate(timeout=300)
            log = control.must("journalctl", "--no-pager", "-n", "60", "-u", SERVICE)
            assert process.returncode == 0, output + errors + log
        first.wait_settled()
        assert_serves(first, "sim-a")
        assert first.facts().invocation != before
        begun = [record for record in first.journal() if record["event"] == "begin"]
        assert [record["why"] for record in begun].count(settings["recycle_reason"]) == 1, "it ran twice at once"
        assert begun[-1]["who"].startswith("b70-recycle on "), begun[-1]
        assert "sim-a (model id sim-a; now served" in log, log
    finally:
        first.write("root/.ssh/authorized_keys", authorized)
