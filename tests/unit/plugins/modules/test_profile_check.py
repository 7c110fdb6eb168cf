# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args

from ansible_collections.arcpro.b70.plugins.modules import b70_profile_check


def test_the_engine_is_asked_with_the_groups_that_its_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    account = pwd.struct_passwd(("b70", "x", os.geteuid(), os.getegid(), "", "/", "/bin/false"))
    seen: dict[str, Any] = {}

    def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(options)
        return subprocess.CompletedProcess(argv, 0, "answer", "")

    monkeypatch.setattr(pwd, "getpwall", lambda: [account])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *_words: None)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 44, 105] if name == "b70" else [])
    monkeypatch.setattr(subprocess, "run", run)
    assert b70_profile_check.asker("b70", 5)("python", {}, "{}") == (0, "answer", "")
    assert set(seen["extra_groups"]) == {account.pw_gid, 44, 105}


def test_what_profiles_hold_of_their_cards_is_recorded_and_check_mode_records_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = Path(__file__).parents[3] / "lab/models/tiny-a-gguf"
    profile = {
        "fingerprint": "f",
        "cards": 1,
        "stack": {"id": "none", "dir": str(tmp_path / "none"), "device": "xpu"},
        "model": {"path": str(weights)},
        "engine": {
            "kind": "llama-server",
            "argv": ["x", "--model", str(weights / "tiny-a-BF16.gguf")],
            "settings": {"ctx_size": 4096},
        },
    }
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/a.json").write_text(json.dumps(profile))
    file = tmp_path / "estimates/main.json"
    words = {"config_dir": str(tmp_path), "memory_dir": str(tmp_path / "memory"), "estimates_file": str(file)}

    def run(**more: Any) -> dict[str, Any]:
        told: dict[str, Any] = {}

        def leave(_module: object, **result: Any) -> None:
            told.update(result)
            raise SystemExit

        monkeypatch.setattr(AnsibleModule, "exit_json", leave)
        with patch_module_args({**words, **more}), pytest.raises(SystemExit):
            b70_profile_check.main()
        return told

    assert run(_ansible_check_mode=True, fit=["a"])["fit"]["a"]["verdict"] == "fits"
    assert not file.exists()
    run()
    assert json.loads(file.read_text())["profiles"] == {"a": {"fingerprint": "f", "held_mib": 1538}}
