# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module b70_python_environment as a play uses it: predicted, made as a job, left alone, refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml

from unit.plugins.module_utils._python_environment.uv_kit import PYTHON, UV, wheel

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("predicted", "before", "made", "again", "settled", "refused")


def test_an_environment_is_predicted_made_left_alone_and_refused(tmp_path: Path) -> None:
    digest = wheel(tmp_path / "wheels", "demo", "1.0+xpu")
    common = {"python": PYTHON, "uv": UV, "uv_cache_dir": str(tmp_path / "cache/uv"), "no_index": True}
    common["find_links"] = [str(tmp_path / "wheels")]

    def task(name: str, path: str, requirement: str, **more: object) -> dict[str, object]:
        steps = [{"label": "demo", "requirements": requirement, "hashed": "--hash" in requirement}]
        given = {**common, "path": str(tmp_path / path), "steps": steps}
        return {"arcpro.b70.b70_python_environment": given, "register": name, **more}

    good, bad = "demo==1.0+xpu", f"demo==1.0+xpu --hash=sha256:{'0' * 64}"
    said = "{{ {" + ", ".join(f"'{name}': {name}" for name in NAMES) + "} | to_json }}"
    tasks = [
        task("predicted", "env", good, check_mode=True),
        {"ansible.builtin.stat": {"path": str(tmp_path / "env")}, "register": "before"},
        task("made", "env", good, **{"async": 600, "poll": 1}),
        task("again", "env", good),
        task("settled", "env", good, check_mode=True),
        task("refused", "other", bad, ignore_errors=True, **{"async": 600, "poll": 1}),
        {"ansible.builtin.copy": {"content": said, "dest": str(tmp_path / "said.json"), "mode": "0600"}},
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump([play]))
    command = ["ansible-playbook", "-i", "localhost,", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "said.json").read_text())
    assert found["predicted"]["changed"]
    assert found["predicted"]["diff"]["after"] == f"python {PYTHON}\ndemo==1.0+xpu\n"
    assert not found["before"]["stat"]["exists"]
    assert found["made"]["wheels"] == {"demo==1.0+xpu": f"sha256:{digest}"}
    assert [found[name]["changed"] for name in ("made", "again", "settled")] == [True, False, False]
    assert found["again"]["wheels"] == found["made"]["wheels"]
    assert found["refused"]["failed"]
    assert "demo could not be installed into" in found["refused"]["msg"]
    assert "not what is pinned" in found["refused"]["msg"]
    assert not (tmp_path / "other/b70-environment.json").exists()
