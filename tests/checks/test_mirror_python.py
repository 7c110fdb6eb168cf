# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror brings the archive that uv names, to where uv on a host asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from unit.plugins.module_utils._python_environment.uv_kit import Server

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release
UV = Path(sys.executable).parent / "uv"
RELEASES = "python/releases"


def test_a_python_of_the_mirror_is_where_uv_looks_for_it(tmp_path: Path) -> None:
    said = subprocess.run(
        [UV, "python", "list", "--only-downloads", "--output-format", "json", "3.12"],
        capture_output=True,
        text=True,
        timeout=480,
        check=True,
    )
    publisher = Server(tmp_path / "publisher")
    listing = json.loads(said.stdout)
    for item in listing:
        release, name = item["url"].split("/")[-2:]
        archive = publisher.folder / RELEASES / release / name.replace("%2B", "+")
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_text(item["key"])
        item["url"] = f"{publisher.url}/{RELEASES}/{release}/{name}"
    home = tmp_path / "home"
    (home / "pip/lib/python3.11/site-packages/uv-1.2.3.dist-info").mkdir(parents=True)
    (home / "pip/bin").mkdir()
    uv = home / "pip/bin/uv"
    uv.write_text(f"#!{sys.executable}\nprint({json.dumps(listing)!r})\n")
    uv.chmod(0o755)
    variables = {
        "mirror_dir": str(tmp_path / "mirror"),
        "mirror_key_home": str(home),
        "mirror_pythons": ["3.12"],
        "mirror_uv": f"uv==1.2.3 --hash=sha256:{'0' * 64}",
    }
    include = {"ansible.builtin.include_role": {"name": "arcpro.b70.mirror", "tasks_from": "python"}, "vars": variables}
    play = tmp_path / "play.yml"
    local = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    play.write_text(yaml.safe_dump([{**local, "tasks": [include]}]))
    runs = [
        subprocess.run(
            ["ansible-playbook", "-i", "localhost,", str(play)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=480,
            check=False,
        )
        for _run in range(2)
    ]
    publisher.close()
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout + runs[1].stdout
    assert "changed=0" in runs[1].stdout
    brought = [path.relative_to(tmp_path / "mirror/python") for path in (tmp_path / "mirror/python").rglob("*.tar.gz")]
    (path,) = brought
    key = next(item["key"] for item in listing if item["implementation"] == "cpython")
    assert (tmp_path / "mirror/python" / path).read_text() == key

    # uv of a host asks for that very file, and refuses what it does not know.
    mirror = Server(tmp_path / "mirror")
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "UV_HTTP_RETRIES": "0",
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "python"),
        "UV_PYTHON_INSTALL_MIRROR": f"{mirror.url}/python",
    }
    command = [str(UV), "python", "install", "--no-bin", "3.12"]
    refused = subprocess.run(command, env=environment, capture_output=True, timeout=480, check=False)
    mirror.close()
    assert refused.returncode != 0
    assert mirror.asked == [f"/python/{str(path).replace('+', '%2B')}"]
