# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

import pytest

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
