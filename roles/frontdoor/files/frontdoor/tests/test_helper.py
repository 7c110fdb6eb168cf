# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The privileged helper: what it is asked decides between two commands, and everything else is refused."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from frontdoor.admin import helper

SOURCE = Path(helper.__file__).parents[2]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with the profiles tiny-a, which is served, and tiny-b."""
    for name in ("tiny-a", "tiny-b"):
        (tmp_path / f"{name}.json").write_text("{}")
    (tmp_path / "state.json").write_text('{"profile": {"name": "tiny-a"}}')
    return tmp_path


def ask(host: Path, request: bytes, code: int = 0, output: str = '{"msg": "well"}') -> tuple[int, str, list[list[str]]]:
    """(exit, message, commands that were run)"""
    ran: list[list[str]] = []

    def run(argv: Sequence[str]) -> tuple[int, str]:
        ran.append(list(argv))
        return code, output

    answer = helper.perform(request, "/bin/b70ctl", host, host / "state.json", run)
    return answer["exit"], answer["message"], ran


def test_a_load_is_a_switch(host: Path) -> None:
    code, message, ran = ask(host, b"load tiny-b root\n")
    why = "load tiny-b, asked over HTTP with the key root"
    assert (code, message) == (0, "well")
    assert ran == [["/bin/b70ctl", "switch", "tiny-b", "--json", "--why", why]]


def test_an_unload_is_a_stop_of_that_profile_only(host: Path) -> None:
    why = "unload tiny-a, asked over HTTP with the key root"
    assert ask(host, b"unload tiny-a root\n")[2] == [["/bin/b70ctl", "stop", "--json", "--why", why]]
    code, message, ran = ask(host, b"unload tiny-b root\n")
    assert (code, ran) == (helper.REFUSED, [])
    assert "not that of tiny-b" in message
    (host / "state.json").write_text('{"profile": null}')
    assert ask(host, b"unload tiny-a root\n")[0] == helper.REFUSED
    (host / "state.json").unlink()
    assert ask(host, b"unload tiny-a root\n")[0] == helper.REFUSED


def test_the_cards_are_looked_at_and_nothing_is_changed(host: Path) -> None:
    def run(argv: Sequence[str]) -> tuple[int, str]:
        assert argv == ["/bin/b70ctl", "cards", "--json"]
        return code, output

    code, output = 0, '{"cards": [{"node": "/dev/dri/renderD128"}], "msg": "told"}'
    found = helper.perform(b"cards\n", "/bin/b70ctl", host, host / "state.json", run)
    assert found == {"exit": 0, "message": "told", "cards": [{"node": "/dev/dri/renderD128"}]}
    code, output = 2, "usage: b70ctl"
    found = helper.perform(b"cards\n", "/bin/b70ctl", host, host / "state.json", run)
    assert (found["exit"], "cards" in found) == (2, False)
    assert "`/bin/b70ctl cards` ended with 2" in found["message"]


@pytest.mark.parametrize(
    "request_line",
    [
        b"",
        b"\n",
        b"cards",
        b"cards root\n",
        b"load tiny-b root",
        b"load tiny-b\n",
        b"load  tiny-b root\n",
        b"load no-such root\n",
        b"load --gate=none root\n",
        b"load -h root\n",
        b"load ../tiny-b root\n",
        b"load /etc/passwd root\n",
        b"load tiny-b --gate\n --x\n",
        b"load tiny-b root extra\n",
        b"load tiny-b ro\0ot\n",
        b"load tiny\xff root\n",
        b"LOAD tiny-b root\n",
        b"recover tiny-b root\n",
        b"load tiny-b root\nload tiny-a root\n",
    ],
)
def test_anything_else_runs_nothing(host: Path, request_line: bytes) -> None:
    code, message, ran = ask(host, request_line)
    assert (code, ran) == (helper.REFUSED, [])
    assert message


def test_a_failure_is_passed_on_as_b70ctl_tells_it(host: Path) -> None:
    assert ask(host, b"load tiny-b root\n", 4, '{"msg": "held by another switch"}')[:2] == (4, "held by another switch")
    code, message, _ = ask(host, b"load tiny-b root\n", 1, "Traceback")
    assert code == 1
    assert "`/bin/b70ctl switch tiny-b` ended with 1" in message


def start(host: Path, channel: socket.socket) -> subprocess.Popen[bytes]:
    """The helper as systemd starts it, its connection as standard input."""
    words = ["--b70ctl", str(host / "b70ctl"), "--profiles", str(host), "--state-file", str(host / "state.json")]
    return subprocess.Popen(
        [sys.executable, "-m", "frontdoor.admin.helper", *words],
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=SOURCE,
    )


def test_the_whole_of_it(host: Path) -> None:
    program = host / "b70ctl"
    program.write_text('#!/bin/sh\necho "$@" >"$0.args"\nsleep 0.2\necho "{\\"msg\\": \\"$2 is served\\"}"\n')
    program.chmod(0o755)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start(host, theirs)
        theirs.close()
        ours.sendall(b"load tiny-b root\n")
        answer = json.loads(ours.makefile("rb").readline())
        assert answer == {"exit": 0, "message": "tiny-b is served"}
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert b"tiny-b is served" in process.stderr.read()
        process.stderr.close()
    # and when who asked does not wait for the answer
    (host / "b70ctl.args").unlink()
    ours, theirs = socket.socketpair()
    with theirs:
        process = start(host, theirs)
    ours.sendall(b"load tiny-a root\n")
    ours.close()
    assert process.wait(60) == 0
    assert (host / "b70ctl.args").read_text().startswith("switch tiny-a --json")


def test_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "REQUEST_LIMIT_S", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"load tiny")
        with pytest.raises(TimeoutError):
            helper.receive(theirs)
        monkeypatch.setattr(helper, "REQUEST_LIMIT_S", 60)
        ours.sendall(b"x" * 300)
        assert len(helper.receive(theirs)) == helper.MAX_REQUEST
