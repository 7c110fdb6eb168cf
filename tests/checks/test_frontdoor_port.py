# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that another program holds is refused before anything is installed, and the program is named."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checks.plays import hosts, play_all, run_plays, said


@pytest.fixture
def held() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_site_refuses_it_first_and_in_check_mode_too(held: int, tmp_path: Path) -> None:
    here: dict[str, Any] = {"one": {"frontdoor_port": held}}
    words = ("--check", "--tags=preflight")
    done = play_all(tmp_path, ("site", {"b70_target": "all"}), inventory=hosts(here), words=words)
    text = said(done.stdout)
    assert done.returncode == 2, text
    assert f"one: the frontdoor cannot listen on 0.0.0.0:{held}, because another program does" in text
    assert f"port {held}: pid {os.getpid()}" in text
    assert "Inspect the host" not in text, "nothing else was looked at"


def test_the_role_alone_refuses_it_and_takes_a_port_that_is_free(held: int, tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "arcpro.b70.frontdoor", "tasks_from": "port"}}
    play = {"hosts": "all", "gather_facts": False, "tasks": [role]}
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    own = {"frontdoor_bind_host": "127.0.0.1"}
    here = hosts({"busy": {**own, "frontdoor_port": held}, "free": {**own, "frontdoor_port": free}})
    text = said(run_plays(tmp_path, [play], inventory=here).stdout)
    assert f"busy: the frontdoor cannot listen on 127.0.0.1:{held}" in text
    assert "free: the frontdoor" not in text
    assert "unreachable=0 failed=0 skipped=0" in text.partition("free :")[2]
