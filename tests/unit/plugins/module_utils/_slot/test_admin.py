# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor may ask of the slot: the request decides between three commands, everything else is refused."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import admin, command
from unit.plugins.module_utils._slot.calls import b70ctl, host
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost


@pytest.fixture
def fake_host() -> FakeHost:
    """A host with the profiles a, which is served, and b."""
    made = host("ab", load_s=1.0)
    b70ctl(made, "switch", "a")
    return made


def ask(
    fake_host: FakeHost, request: bytes, code: int = 0, **data: Any
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """The answer, and the commands that were run."""
    ran: list[tuple[str, ...]] = []

    def run(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        ran.append(tuple(words))
        return code, {"msg": "well", **data}

    return admin.perform(request, fake_host.effects(), LAYOUT, run), ran


def converse(fake_host: FakeHost, request: bytes, *, leave: bool = False) -> tuple[int, Any]:
    """Exit code and answer of `b70ctl admin`, its connection in the place of standard input."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(request)
        if leave:
            ours.close()
        stdin = os.dup(0)
        os.dup2(theirs.fileno(), 0)
        try:
            code, printed = b70ctl(fake_host, "admin")
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
        theirs.close()
        assert not printed
        line = b"" if leave else ours.makefile("rb").read()
    return code, json.loads(line) if line else None


def test_a_load_is_a_switch(fake_host):
    why = "load b, asked over HTTP with the key root"
    assert ask(fake_host, b"load b root\n") == ({"exit": 0, "message": "well"}, [("switch", "b", "--why", why)])


def test_an_unload_is_a_stop_of_that_profile_only(fake_host):
    why = "unload a, asked over HTTP with the key root"
    assert ask(fake_host, b"unload a root\n")[1] == [("stop", "--why", why)]
    answer, ran = ask(fake_host, b"unload b root\n")
    assert (answer["exit"], ran) == (admin.REFUSED, [])
    assert "not that of b" in answer["message"]
    b70ctl(fake_host, "stop")
    assert ask(fake_host, b"unload a root\n")[0]["exit"] == admin.REFUSED
    fake_host.effects().files.remove(LAYOUT.state_file)
    assert ask(fake_host, b"unload a root\n")[0]["exit"] == admin.REFUSED


def test_the_cards_are_looked_at_and_nothing_is_changed(fake_host):
    cards = [{"node": "/dev/dri/renderD128"}]
    answer, ran = ask(fake_host, b"cards\n", cards=cards)
    assert answer == {"exit": 0, "message": "well", "cards": cards}
    assert ran == [("cards",)]
    assert ask(fake_host, b"cards\n", 1)[0] == {"exit": 1, "message": "well", "cards": []}


@pytest.mark.parametrize(
    "request_line",
    [
        b"",
        b"\n",
        b"cards",
        b"cards root\n",
        b"load b root",
        b"load b\n",
        b"load  b root\n",
        b"load no-such root\n",
        b"load --gate=none root\n",
        b"load -h root\n",
        b"load ../b root\n",
        b"load /etc/passwd root\n",
        b"load b --gate\n --x\n",
        b"load b root extra\n",
        b"load b ro\0ot\n",
        b"load tiny\xff root\n",
        b"LOAD b root\n",
        b"recover b root\n",
        b"load b root\nload a root\n",
    ],
)
def test_anything_else_runs_nothing(fake_host, request_line):
    answer, ran = ask(fake_host, request_line)
    assert (answer["exit"], ran) == (admin.REFUSED, [])
    assert answer["message"]


def test_a_request_is_answered_as_b70ctl_tells_it(fake_host):
    code, answer = converse(fake_host, b"load b root\n")
    assert (code, answer["exit"]) == (0, command.DONE)
    assert answer["message"].startswith("b is served in slot main, verified")
    switches = json.loads(b70ctl(fake_host, "history", "--json")[1])["switches"]
    assert switches[-1]["why"] == "load b, asked over HTTP with the key root"
    fake_host.cards = 1
    code, answer = converse(fake_host, b"cards\n")
    assert answer["cards"] == [
        {"node": "/dev/dri/renderD128", "used_bytes": 2**28, "total_bytes": 32 * 2**30, "power_cap_w": None}
    ]
    fake_host.unit("a").fault = "wrong_answer"
    code, answer = converse(fake_host, b"load a root\n")
    assert (code, answer["exit"]) == (0, command.FAILED)
    assert "b is served again, verified" in answer["message"]
    fake_host.lock_holder = "pid 7 (somebody): a"
    code, answer = converse(fake_host, b"load a root\n")
    assert (code, answer["exit"], "pid 7 (somebody)" in answer["message"]) == (0, command.LOCKED, True)
    fake_host.assert_invariants()


def test_a_client_that_leaves_ends_nothing(fake_host):
    assert converse(fake_host, b"load b root\n", leave=True) == (0, None)
    assert fake_host.running == [LAYOUT.unit("b")]


def test_a_client_that_says_nothing_is_not_waited_for(fake_host, monkeypatch, capsys):
    monkeypatch.setattr(admin, "REQUEST_LIMIT_S", 0.05)
    assert converse(fake_host, b"load b") == (command.FAILED, None)
    assert "no request arrived" in capsys.readouterr().err
    monkeypatch.setattr(admin, "REQUEST_LIMIT_S", 60)
    code, answer = converse(fake_host, b"x" * admin.MAX_REQUEST)
    assert (code, answer["exit"]) == (0, admin.REFUSED)


def test_standard_input_is_a_connection_or_nothing_is_done(fake_host, capsys):
    stdin = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        assert b70ctl(fake_host, "admin")[0] == command.FAILED
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(null)
    assert "no request arrived" in capsys.readouterr().err
