# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A port that another program holds is refused before anything is installed, and the program is named."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from checks.plays import ROOT, hosts, run_plays, said


@pytest.fixture
def held() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_play_of_both_roles_refuses_it_before_it_looks_at_the_host(held: int, tmp_path: Path) -> None:
    play = {"hosts": "all", "gather_facts": False, "roles": ["arcpro.b70.host", "arcpro.b70.frontdoor"]}
    here = hosts({"one": {"frontdoor_port": held}})
    done = run_plays(tmp_path, [play], "--check", "--tags=preflight", inventory=here)
    text = said(done.stdout)
    assert done.returncode == 2, text
    assert f"one: the frontdoor cannot listen on 0.0.0.0:{held}, because another program does" in text
    assert f"port {held}: pid {os.getpid()}" in text
    assert "Refuse a host that the roles cannot serve" not in text, "nothing else was looked at"


def test_site_has_both_roles_in_this_order() -> None:
    plays = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    names = [task["ansible.builtin.import_role"]["name"] for task in plays[1]["tasks"][:8]]
    assert names.index("arcpro.b70.host") < names.index("arcpro.b70.stack") < names.index("arcpro.b70.frontdoor")


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
    # nobody is asked whether systemd keeps a port that is free
    assert "unreachable=0 failed=0 skipped=1" in text.partition("free :")[2]
