# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real effects, as far as they can be tried without a host: files, lock, texts of systemd and /proc, HTTP."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import files as host_files
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import processes
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.files import HostFiles
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.locks import FileLocks
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.node_server import NodeServer
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.processes import ProcTable, listeners, unit_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.systemd import Systemd, parse_show, telling
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import JOURNAL_TAIL_BYTES
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import recorded
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import encode, remember
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import RENDERING, SETTLING, Clock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout, SlotFault, ToldToEndFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT

TEMPLATES = Path(__file__).parents[5] / "templates"

SHOW = """\
Type=exec
Id=b70-slot-main-a.service
LoadState=loaded
ActiveState=activating
SubState=auto-restart
Result=exit-code
MainPID=0
InvocationID=0123456789abcdef0123456789abcdef
NRestarts=2
ExecMainCode=1
ExecMainStatus=3
ExecMainStartTimestamp=@1780823324
UnitFileState=enabled
Job=812
NeedDaemonReload=no

Id=gone.service
LoadState=not-found
ActiveState=inactive
SubState=dead
MainPID=0
UnitFileState=
ExecMainStartTimestamp=
"""


def test_show_is_parsed():
    first, second = parse_show(SHOW)
    assert (first.name, first.sub, first.restarts, first.job, first.enabled) == (
        "b70-slot-main-a.service",
        "auto-restart",
        2,
        812,
        True,
    )
    assert first.started_at == "2026-06-07T09:08:44Z"
    assert first.describe() == "activating (auto-restart, exit-code, exited 3)"
    assert not second.exists
    assert second.started_at == ""


def test_files(tmp_path):
    files, folder = HostFiles(), PurePosixPath(tmp_path)
    path = folder / "a" / "b.json"
    assert files.read(path) is None
    assert files.size(path) is None
    assert files.modified(path) is None
    files.write(path, "one")
    files.write(path, "two")
    assert files.read(path) == "two"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    assert files.names(path.parent) == ("b.json",)
    assert files.names(folder / "none") == ()
    journal = folder / "j.jsonl"
    files.append(journal, "1\n", sync=True)
    files.append(journal, "torn", sync=True)
    files.append(journal, "2\n", sync=True)
    assert files.read(journal) == "1\ntorn\n2\n"
    files.rename(journal, folder / "k")
    files.remove(folder / "k")
    files.remove(folder / "k")
    assert files.writable(folder / "not" / "yet") is None
    assert files.free_bytes(folder / "not" / "yet") > 0


def test_a_file_of_another_user_is_no_way_to_one_of_root_s(tmp_path, monkeypatch):
    monkeypatch.setattr(host_files, "_READ_LIMIT", 100)
    files, path = HostFiles(), PurePosixPath(tmp_path / "seen.json")
    assert files.read_foreign(path) is None
    files.write(path, "{}")
    assert files.read_foreign(path) == "{}"
    files.write(path, " " * 101)
    with pytest.raises(OSError, match="larger than 100 bytes"):
        files.read_foreign(path)
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        files.read_foreign(path)


def test_the_status_follows_no_link_that_the_engine_s_user_made(tmp_path):
    layout, unit = replace(LAYOUT, state_dir=PurePosixPath(tmp_path)), recorded.unit_of("soak", "main")
    units = SimpleNamespace(show=lambda names: [SimpleNamespace(name=unit, running=True)])
    fx: Any = SimpleNamespace(files=HostFiles(), units=units)
    folder = tmp_path / "soak" / "main"
    (folder / "out").mkdir(parents=True)
    (folder / "given.json").write_text('{"profile": "a"}')
    (folder / "out" / "seen.json").write_text('{"now": "cycle 3"}')
    row = {"kind": "soak", "unit": unit, "profile": "a", "began_at": None, "now": "cycle 3"}
    assert recorded.works(fx, layout) == [row]
    (folder / "out" / "seen.json").rename(tmp_path / "secret.json")
    (folder / "out" / "seen.json").symlink_to(tmp_path / "secret.json")
    assert recorded.works(fx, layout) == [{**row, "now": None}]


def test_the_end_of_a_huge_journal_is_read_at_once(tmp_path):
    path = PurePosixPath(tmp_path / "main.jsonl")
    line = json.dumps({"event": "end", "id": "x", "phases": ["y" * 900]}) + "\n"
    with open(path, "w") as file:
        for _time in range(100):
            file.write(line * 1200)
    assert os.stat(path).st_size > 100 * 2**20
    with open(path, "a") as file:
        file.write(
            encode("begin", id="last", at="t", kind="switch", **{"from": None, "to": "b"}) + '{"event": "end", "i'
        )
    layout = Layout(state_dir=PurePosixPath(tmp_path))
    os.makedirs(layout.journal_file.parent)
    os.rename(path, layout.journal_file)
    begun = time.process_time()
    text = HostFiles().tail(layout.journal_file, JOURNAL_TAIL_BYTES) or ""
    memory = remember(text.splitlines())
    assert time.process_time() - begun < 0.5
    assert len(text) <= JOURNAL_TAIL_BYTES
    assert text.startswith('{"event": "end"')
    assert memory.interrupted is not None
    assert (memory.interrupted.id, memory.interrupted.target) == ("last", "b")


def test_the_tail_is_made_of_whole_lines(tmp_path):
    path = PurePosixPath(tmp_path / "journal")
    assert HostFiles().tail(path, 10) is None
    HostFiles().append(path, "one\n", sync=True)
    HostFiles().append(path, "two\nthree", sync=True)
    assert HostFiles().tail(path, 100) == "one\ntwo\nthree"
    assert HostFiles().tail(path, 9) == "two\nthree"
    assert HostFiles().tail(path, 8) == "three"
    assert HostFiles().tail(path, 4) == ""
    # What a crash tore off is ended before more is written.
    HostFiles().append(path, "four\n", sync=True)
    assert HostFiles().tail(path, 100) == "one\ntwo\nthree\nfour\n"


def test_looks_at_the_engine_do_not_push_its_own_words_out():
    text = "INFO serving\n" + 'INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 200 OK\n' * 3 + "5%\r7%\n\n"
    assert telling(text) == ("INFO serving", "7%")
    assert telling('INFO:  127.0.0.1:4 - "GET /health HTTP/1.1" 500 X\n' + "y" * 999)[1:] == ("y" * 400,)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    files, path = HostFiles(), PurePosixPath(tmp_path) / "s.json"
    files.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write(path, "\ud800")
    assert files.read(path) == "old"
    assert files.names(path.parent) == ("s.json",)


def test_a_path_below_a_file_is_not_writable(tmp_path):
    (tmp_path / "f").write_text("")
    assert "not a directory" in str(HostFiles().writable(PurePosixPath(tmp_path) / "f" / "x"))


def test_lock_says_who_holds_it(tmp_path):
    locks, path = FileLocks(SystemClock()), PurePosixPath(tmp_path) / "main" / "lock"
    words = r"held by another switch: pid 1 \(ann\): b"
    with locks.hold(path, "pid 1 (ann): b", 0.0), pytest.raises(SlotFault, match=words), locks.hold(path, "me", 0.0):
        pass
    with locks.hold(path, "me", 0.0):
        assert HostFiles().read(path) == "me\n"
    assert HostFiles().read(path) == ""


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/b70-slot-main-a.service\n", "b70-slot-main-a.service"),
        ("1:name=systemd:/system.slice/x.service/sub\n0::/\n", "x.service"),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", "session-1.scope"),
        ("0::/system.slice/docker-ab12.scope\n", "docker-ab12.scope"),
        # A unit of a user or of a container may have any name, also that of one of ours.
        (
            "0::/user.slice/user-7.slice/user@7.service/app.slice/b70-slot-main-a.service\n",
            "b70-slot-main-a.service in user@7.service",
        ),
        (
            "0::/machine.slice/machine-x.scope/payload/system.slice/b70-slot-main-a.service\n",
            "b70-slot-main-a.service in machine-x.scope",
        ),
        ("", ""),
    ],
)
def test_unit_of_a_process(text, unit):
    assert unit_of(text) == unit


def test_listeners():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:46A0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100\n"
        "   1: 0100007F:46A0 0100007F:1000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100\n"
    )
    assert listeners(table, 18080) == {"4711"}
    assert listeners(table, 80) == set()


def test_this_process_is_found_by_its_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        holders = ProcTable().port_holders(server.getsockname()[1])
    assert os.getpid() in [holder.pid for holder in holders]
    assert ProcTable().cmdline(os.getpid())
    assert ProcTable().environ(os.getpid())
    assert ProcTable().cmdline(0) == ()


@pytest.mark.parametrize(("pids", "named"), [([1, 2], [2]), ([1], [1]), ([2, 3], [2, 3])])
def test_systemd_holds_no_port_that_it_keeps_for_a_service(monkeypatch, pids, named):
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = f"socket:[{os.fstat(server.fileno()).st_ino}]"
        monkeypatch.setattr(processes, "_pids", lambda: [*pids, 9])
        monkeypatch.setattr(processes, "_targets", lambda pid: {inode} if pid in pids else set())
        holders = ProcTable().port_holders(server.getsockname()[1])
    assert [holder.pid for holder in holders] == named


def test_addresses_by_network_device():
    assert "127.0.0.1" in (ProcTable().addresses("lo") or ())
    assert ProcTable().addresses("none0") is None


def test_several_are_asked_at_once():
    # Each answers only when all have been asked.
    together = threading.Barrier(3, timeout=600)

    def answer(path):
        together.wait()
        return 200, path

    server = NodeServer("127.0.0.1", 0, answer)
    url = f"http://127.0.0.1:{server.port}/"
    try:
        assert [reply.text for reply in HttpClient().get_each([f"{url}{word}" for word in "abc"], 600)] == [
            "/a",
            "/b",
            "/c",
        ]
        assert HttpClient().get_each([], 60) == []
    finally:
        server.close()


def test_device_holders(tmp_path):
    device = tmp_path / "renderD128"
    device.write_text("")
    with device.open():
        assert [holder.pid for holder in ProcTable().device_holders([str(device)])] == [os.getpid()]
    assert ProcTable().device_holders([str(device)]) == ()
    assert ProcTable().device_holders([]) == ()


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"got": json.loads(body)}).encode())

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()


def test_a_file_of_the_kernel_is_read_although_it_refuses_large_reads():
    path = PurePosixPath("/proc/sys/kernel/ostype")
    assert HostFiles().read(path) == "Linux\n"


def test_a_card_is_held_whatever_its_path_is_called_where_the_holder_is(tmp_path):
    device, elsewhere = tmp_path / "dev" / "renderD999", tmp_path / "other" / "renderD999"
    for path in (device, elsewhere):
        path.parent.mkdir()
    device.write_text("")
    os.link(device, elsewhere)
    another = tmp_path / "renderD999"
    another.write_text("")
    with another.open():
        assert ProcTable().device_holders([str(device)]) == ()
    with elsewhere.open():
        (holder,) = ProcTable().device_holders([str(device)])
    assert (holder.pid, holder.what) == (os.getpid(), str(device))


def test_a_wanted_start_does_not_count_among_those_that_repeat_too_quickly(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    program = tmp_path / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$1" >> {calls}\n'
        '[ "$1" != show ] || printf "Id=x.service\\nActiveState=inactive\\nNRestarts=0\\n"\n'
        '[ "$1" != reset-failed ] || { echo "Unit x.service not loaded." >&2; exit 1; }\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    Systemd().start("x.service")
    assert calls.read_text().split() == ["show", "reset-failed", "start"]


def test_http(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    http = HttpClient()
    assert http.get(f"{server}/health", 60.0).status == 200
    assert http.get(f"{server}/other", 60.0).status == 404
    assert json.loads(http.post(f"{server}/x", {"a": 1}, 60.0).text) == {"got": {"a": 1}}


def test_http_without_a_server():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]  # kept from others, and nobody listens
        assert HttpClient().get(f"http://127.0.0.1:{port}/health", 60.0).error == "refused"


def test_http_gives_up():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        reply = HttpClient().get(f"http://127.0.0.1:{silent.getsockname()[1]}/health", 0.2)
    assert (reply.status, reply.error) == (0, "timeout")


@pytest.mark.real_time
@pytest.mark.parametrize(
    "begins",
    [b"HTTP/1.1 200 OK\r\nX-Drip: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["headers", "body", "endless"],
)
def test_http_gives_up_on_an_answer_that_drips(begins):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        gone = threading.Event()

        def drip() -> None:
            connection, _peer = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(begins)
                while not gone.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        reply = HttpClient().get(f"http://127.0.0.1:{server.getsockname()[1]}/health", 0.5)
        # It gave up while the answer still came.
        assert thread.is_alive() or reply.status == 0
        gone.set()
        thread.join(60)
    assert (reply.status, reply.error) == (0, "timeout")


def test_an_answer_that_breaks_off_is_no_answer():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def half() -> None:
            connection, _peer = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal")

        threading.Thread(target=half, daemon=True).start()
        reply = HttpClient().get(f"http://127.0.0.1:{server.getsockname()[1]}/health", 60.0)
    assert reply.status == 0
    assert "the connection broke" in reply.error


def test_a_request_to_end_takes_effect_in_the_next_wait_and_only_once():
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM)}
    try:
        clock = SystemClock()
        clock.heed_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        clock.sleep(0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(ToldToEndFault, match="told to end"):
            clock.sleep(0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        clock.sleep(0.0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_wakes_the_controller_ends_none_that_has_just_begun():
    """The units of engines send it whenever they start or end, also to a process that heeds no signals yet."""
    texts = [file.read_text() for file in TEMPLATES.glob("b70-slot*.service.j2")]
    (word,) = {word for text in texts for word in re.findall(r"--signal=(\w+) --kill-whom=main", text)}
    wakes = signal.Signals[f"SIG{word}"]
    assert subprocess.run([sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(wakes)})"]).returncode == 0
    numbers = (wakes, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGINT)
    before, woken = {number: signal.getsignal(number) for number in numbers}, []
    try:
        SystemClock().heed_signals(happened=lambda: woken.append(True))
        os.kill(os.getpid(), wakes)
        assert woken == [True]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"], ids=["silent", "half"])
def test_a_request_to_end_takes_effect_while_an_answer_is_waited_for(answer):
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM)}
    clock = SystemClock()
    http = HttpClient(clock.waiting)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/chat/completions"

        def serve() -> None:
            connection, _peer = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                os.kill(os.getpid(), signal.SIGTERM)
                connection.settimeout(60)
                # it is closed at once, with what was not read in it or without
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        try:
            clock.heed_signals()
            thread.start()
            # Without that it would wait for as long as the test may take.
            with pytest.raises(ToldToEndFault, match="told to end"):
                http.post(url, {}, 3600.0)
            thread.join(60)
            assert not thread.is_alive(), "the connection was left open"
            clock.sleep(0.0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def test_a_request_to_end_that_came_before_a_question_is_not_forgotten():
    clock = SystemClock()
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM)}
    try:
        clock.heed_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(ToldToEndFault, match="told to end"):
            HttpClient(clock.waiting).get("http://127.0.0.1:9/health", 1.0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("work", [SETTLING, RENDERING])
def test_a_lock_that_only_settles_or_writes_files_is_waited_for(tmp_path, work):
    locks, path = FileLocks(SystemClock()), PurePosixPath(tmp_path) / "lock"
    held, entered = threading.Event(), threading.Event()

    def settle() -> None:
        with locks.hold(path, f"pid 7 (systemd) since now: {work}", 0):
            held.set()
            entered.wait(0.3)

    thread = threading.Thread(target=settle)
    thread.start()
    assert held.wait(60)
    # Its own limit is zero, and still it gets the lock: nobody asked for what the holder does.
    with locks.hold(path, "pid 8 (somebody): a", 0):
        thread.join(60)


def test_a_holder_that_has_just_the_lock_may_write_its_note_however_long_another_had_it(tmp_path):
    path = tmp_path / "lock"
    holder = path.open("a")
    fcntl.flock(holder, fcntl.LOCK_EX)
    path.write_text(f"pid 7 (systemd): {SETTLING}")
    now = 0.0

    def sleep(seconds: float) -> None:
        """The first holder goes after ten seconds; the next one writes its note half a second later, and goes."""
        nonlocal now
        now += seconds
        if now >= 10.0:
            path.write_text("" if now < 10.5 else f"pid 8 (systemd): {SETTLING}")
        if now >= 20.0:
            holder.close()

    clock = cast(Clock, SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with FileLocks(clock).hold(PurePosixPath(path), "me", 0.0):
        assert path.read_text() == "me\n"
