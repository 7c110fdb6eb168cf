# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror asks for what the role monitoring installs, where it shall. apt-get is played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release
APT_GET = """#!{python}
import sys
with open({asked!r}, "a") as stream:
    stream.write(" ".join(sys.argv[1:]) + "\\n")
"""


@pytest.mark.parametrize("more", [{"mirror_monitoring": True}, {}], ids=["with", "without"])
def test_the_mirror_brings_what_monitoring_installs(tmp_path: Path, more: dict[str, bool]) -> None:
    asked, program = tmp_path / "asked", tmp_path / "bin" / "apt-get"
    asked.write_text("")
    program.parent.mkdir()
    program.write_text(APT_GET.format(python=sys.executable, asked=str(asked)))
    program.chmod(0o755)
    (own,) = yaml.safe_load((ROOT / "playbooks/mirror.yml").read_text())
    (task,) = [one for one in own["tasks"] if one["ansible.builtin.include_role"]["name"] == "arcpro.b70.monitoring"]
    play = {
        "hosts": "m",
        "connection": "local",
        "gather_facts": False,
        "environment": {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        "vars_files": [str(ROOT / "roles/mirror/defaults/main.yml")],
        "tasks": [task],
    }
    given = {"mirror_dir": str(tmp_path), "__mirror_now": {"system": {"id": "debian", "version": "12"}}, **more}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    host = {"m": {"ansible_python_interpreter": sys.executable}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"b70_monitoring": {"hosts": host}}))
    done = subprocess.run(
        ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml"), "-e", json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = asked.read_text().splitlines()
    if not more:
        assert lines == []
        return
    (line,) = lines
    assert f"Dir::Cache::archives={tmp_path}/apt/debian-12/" in line
    assert set(line.partition(" install ")[2].split()) == {
        "prometheus",
        "prometheus-alertmanager",
        "prometheus-blackbox-exporter",
        "prometheus-node-exporter",
    }
