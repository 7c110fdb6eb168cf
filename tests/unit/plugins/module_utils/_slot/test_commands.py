# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import commands
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import HostFault
from machine import wait_for


def test_what_left_the_session_of_a_command_holds_nobody_up(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(commands, "_LAST_S", 0.1)
    away = tmp_path / "away"
    script = f"setsid sh -c 'echo $$ > {away}; exec sleep 600' & sleep 600"
    assert commands.whole(("sh", "-c", script), 1) == (None, b"", b"")
    if away.exists():
        os.kill(int(wait_for(away.read_text, "its process")), signal.SIGKILL)


def test_what_a_unit_ran_is_named_and_not_how_it_was_run(tmp_path) -> None:
    systemd_run = tmp_path / "systemd-run"
    systemd_run.write_text("#!/bin/sh\nexit 3\n")
    systemd_run.chmod(0o755)
    with pytest.raises(HostFault, match=r"^`podman image inspect x` ended with 3"):
        commands.said([str(systemd_run), "--pipe", "--", "podman", "image", "inspect", "x"], 60)
