# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that removes weights, on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from checks.plays import play, said


def test_weights_that_nobody_needs_are_foretold_removed_and_then_no_more(tmp_path: Path) -> None:
    models, config, commit = tmp_path / "models", tmp_path / "etc", "b" * 40
    for name in (f"m@{commit}", f"n@{commit}", f"o@{commit}", "by-hand"):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text("{}")
        if name != "by-hand":
            (models / name / ".b70-weights.json").write_text("{}")
    (config / "profiles").mkdir(parents=True)
    (config / "slot.json").write_text("{}")
    (config / "profiles/served.json").write_text(json.dumps({"model": {"path": str(models / f"m@{commit}")}}))
    variables = {
        "b70_target": "all",
        "ansible_become": False,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "model_weights_dir": str(models),
        "model_weights_models": {"o": {"hub": "owner/o", "revision": commit}},
        "host_config_dir": str(config),
        "host_state_dir": str(tmp_path / "var"),
    }
    everything = sorted(path.name for path in models.iterdir())
    for check, changed, left in ((True, 1, everything), (False, 1, None), (False, 0, None)):
        done = play("remove_weights", json.dumps(variables), check=check)
        assert done.returncode == 0, done.stdout
        assert f"changed={changed} " in done.stdout
        assert f"m@{commit}: stays, profile served names it" in said(done.stdout)
        assert f"o@{commit}: stays, model_weights_models names it" in said(done.stdout)
        kept = left or ["by-hand", f"m@{commit}", f"o@{commit}"]
        assert sorted(path.name for path in models.iterdir()) == kept
