# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role monitoring removes what it wrote and stops what it configured, and nothing else. systemd is played."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = (
    "prometheus",
    "prometheus-alertmanager",
    "prometheus-blackbox-exporter",
    "prometheus-node-exporter",
    "grafana-server",
)
KEY = "b70-of-prometheus"
# A unit is there while there is a file of its name, which says whether it runs. As systemctl of systemd 252 answers.
SYSTEMCTL = """#!{python}
import pathlib, sys
asked = [word for word in sys.argv[1:] if not word.startswith("-")]
with open({folder!r} + "/asked", "a") as stream:
    stream.write(" ".join(asked) + "\\n")
unit = pathlib.Path({folder!r}, "run", *asked[1:])
verb, there = asked[0], unit.is_file()
if verb == "show":
    state = unit.read_text() if there else "inactive"
    print("LoadState=" + ("loaded" if there else "not-found") + "\\nActiveState=" + state)
elif verb == "is-enabled":
    enabled = there and unit.read_text() == "active"
    print("enabled" if enabled else "disabled" if there else "")
    sys.exit(0 if enabled else 1)
elif verb == "list-unit-files":
    sys.exit(1)
elif verb == "stop":
    unit.write_text("inactive")
"""


class Host:
    """A folder that stands in for a host with Prometheus."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.directory, self.units = folder, folder / "etc", folder / "units"
        self.apt = folder / "apt"
        self.repository = self.apt / "sources.list.d" / "b70-grafana.sources"
        self.repository.parent.mkdir(parents=True)
        self.repository.write_text("Types: deb\n")
        systemctl = folder / "bin" / "systemctl"
        systemctl.parent.mkdir()
        systemctl.write_text(SYSTEMCTL.format(python=sys.executable, folder=str(folder)))
        systemctl.chmod(0o755)
        (folder / "run").mkdir()
        for name in SERVICES:
            self.unit(name).write_text("active")

    def unit(self, name: str) -> Path:
        """Whether the service is active; its package is removed with this file."""
        return self.folder / "run" / f"{name}.service"

    def configure(self, *names: str) -> None:
        """Write the drop-ins of services as the role does."""
        for name in names:
            file = self.units / f"{name}.service.d" / "50-b70.conf"
            file.parent.mkdir(parents=True)
            file.write_text("[Service]\n")

    def asked(self) -> list[str]:
        """What systemd was asked to change."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.split()[0] in ("stop", "disable", "daemon-reload", "restart", "start")]

    def files(self) -> set[str]:
        places = (self.directory, self.units, self.repository.parent)
        return {str(file.relative_to(self.folder)) for place in places for file in place.rglob("*")}

    def play(self, state: str, *words: str, entries: Sequence[str] = ("main", "exporter"), **more: Any) -> int:
        """Run the role, and return the number of changes."""
        variables = {
            "monitoring_state": state,
            "monitoring_prometheus": "files",
            "monitoring_group": "root",
            "monitoring_dir": str(self.directory),
            "__monitoring_unit_dir": str(self.units),
            **more,
        }
        play = {
            "hosts": "b70_monitoring",
            "connection": "local",
            "gather_facts": False,
            "environment": {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"},
            "module_defaults": {
                "arcpro.b70.b70_apt_source": {"apt_dir": str(self.apt), "sources_dir": str(self.apt / "sources.list.d")}
            },
            "tasks": [
                {"ansible.builtin.include_role": {"name": "arcpro.b70.monitoring", "tasks_from": entry}}
                for entry in entries
            ],
        }
        told = {"ansible_host": "192.0.2.1", "ansible_python_interpreter": sys.executable}
        groups = {name: {"hosts": {"h1": told}} for name in ("b70_hosts", "b70_monitoring")}
        files = {"inventory.yml": groups, "play.yml": [play]}
        for name, document in files.items():
            (self.folder / name).write_text(json.dumps(document))
        done = subprocess.run(
            [
                "ansible-playbook",
                "-i",
                *(str(self.folder / name) for name in files),
                "-e",
                json.dumps(variables),
                *words,
            ],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=480,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert KEY not in done.stdout
        (changed,) = re.findall(r"changed=(\d+)", done.stdout)
        return int(changed)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    if os.geteuid() != 0:
        pytest.skip("the role gives its files to root")
    return Host(tmp_path)


@pytest.mark.release
def test_what_the_role_wrote_is_removed_and_its_services_are_stopped(host: Host) -> None:
    host.play("present", entries=["main"], monitoring_api_key=KEY)
    host.configure(*SERVICES)
    (host.directory / "alertmanager.yml").write_text("route: {}\n")
    before = host.files()
    assert {"etc/frontdoor.key", "etc/targets/probe.yml", "etc/grafana/datasources/b70.yml"} <= before

    predicted = host.play("absent", "--check", "--diff")
    assert predicted > 0
    assert (host.files(), host.asked()) == (before, [])

    assert host.play("absent", "--diff") == predicted
    assert host.files() == set()
    assert not host.directory.exists()
    ended = [f"{verb} {name}.service" for name in SERVICES for verb in ("disable", "stop")]
    asked = host.asked()
    assert sorted(asked) == sorted([*ended, "daemon-reload"])

    assert host.play("absent") == 0
    assert host.asked() == asked


def test_what_others_wrote_stays(host: Host) -> None:
    own = host.folder / "grafana"
    host.configure("prometheus-alertmanager", "grafana-server")
    # a package that was removed by hand
    host.unit("grafana-server").unlink()
    for folder in (host.directory / "rules", own / "dashboards"):
        folder.mkdir(parents=True)
        for name in ("b70.yml", "mine.yml"):
            (folder / name).write_text("---\n")
    (host.units / "prometheus-alertmanager.service.d" / "override.conf").write_text("[Service]\n")

    host.play("absent", entries=["main"], monitoring_grafana_provisioning_dir=str(own))

    assert host.files() == {
        "etc/rules",
        "etc/rules/mine.yml",
        "units/prometheus-alertmanager.service.d",
        "units/prometheus-alertmanager.service.d/override.conf",
    }
    assert [file.name for file in sorted(own.rglob("*"))] == ["dashboards", "mine.yml"]
    # a Prometheus that the role does not run is not stopped
    assert host.unit("prometheus").read_text() == "active"
    assert host.unit("prometheus-alertmanager").read_text() == "inactive"
