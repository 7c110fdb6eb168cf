# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror asks for every wheel of the measuring tools that a host installs, by the same hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release
LOCK = ROOT / "roles/evidence/files/tools/requirements.txt"
# Stands in for the Python that has pip: keeps what it was asked for.
PYTHON = """#!{python}
import json, os, sys
with open({asked!r}, "a") as stream:
    row = {{"argv": sys.argv[1:], "lines": sys.stdin.read(), "index": os.environ["PIP_EXTRA_INDEX_URL"]}}
    stream.write(json.dumps(row) + "\\n")
"""


def test_the_mirror_brings_what_hosts_install(tmp_path: Path) -> None:
    home, asked = tmp_path / "home", tmp_path / "asked"
    (home / "pip/bin").mkdir(parents=True)
    (home / "pip/bin/pip").write_text("")
    python = home / "pip/bin/python"
    python.write_text(PYTHON.format(python=sys.executable, asked=str(asked)))
    python.chmod(0o755)
    variables = {
        "mirror_dir": str(tmp_path / "mirror"),
        "mirror_key_home": str(home),
        "mirror_find_links": [],
        "mirror_extra_index_urls": [],
        "mirror_python": "",
        "mirror_timeout": 60,
        "__mirror_now": {"python": "3.11.2"},
    }
    include = {"ansible.builtin.include_role": {"name": "arcpro.b70.evidence", "tasks_from": "to_mirror"}}
    play = tmp_path / "play.yml"
    local = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables}
    play.write_text(yaml.safe_dump([{**local, "tasks": [include]}]))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(play)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    torch, tools = (json.loads(line) for line in asked.read_text().splitlines())
    known = yaml.safe_load((ROOT / "roles/evidence/vars/main.yml").read_text())
    assert torch["lines"].split()[0] == known["__evidence_torch"]
    assert re.findall(r"--hash=(\S+)", torch["lines"]) == known["__evidence_torch_hashes"]
    assert torch["index"] == known["__evidence_torch_index"]
    assert tools["lines"].strip() == LOCK.read_text().strip()
    assert {"--no-deps", f"--dest={tmp_path}/mirror/wheels"} <= set(tools["argv"])
