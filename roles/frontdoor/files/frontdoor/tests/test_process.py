# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process: starts, drains on SIGTERM, says what it does, and refuses what it cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import LIMIT_S, SOON_S, Call, Client, Engine, free_port, in_two_events, on_loop, on_uvloop, until

import frontdoor
from frontdoor.cli import serve
from frontdoor.config import from_table
from frontdoor.observability.events import EventLog

SOURCE = Path(frontdoor.__file__).parents[1]


def command(config: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "frontdoor", "--config", str(config), *options], {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
    }


@pytest.fixture
def process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A frontdoor, its port and its engine's; its parameter is how long it lets answers end."""
    port, engine_port = free_port(), free_port()
    config, drain_s = tmp_path / "c.toml", getattr(request, "param", 600)
    config.write_text(
        f'[listen]\nhost = "127.0.0.1"\nport = {port}\n[slot]\nstate_file = ""\n'
        f'[backend]\nurl = "http://127.0.0.1:{engine_port}"\nmetrics_interval_s = 3600\n'
        f"[limits]\ndrain_timeout_s = {drain_s}\n"
        "[admission]\nmax_active_generations = 32\n"
    )
    argv, env = command(config)
    running = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
    try:
        yield running, port, engine_port
    finally:
        running.kill()
        running.wait()
        if running.stdout:
            running.stdout.close()


def wait_for(running: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + LIMIT_S
    while running.poll() is None and time.monotonic() < ends:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60):
                return
        except OSError:
            time.sleep(0.005)
    raise AssertionError(f"the frontdoor did not start and ended with {running.returncode}")


async def engine_on(port: int) -> Engine:
    engine = Engine()
    engine.port = port
    await engine.start()
    return engine


@pytest.mark.interpreted
def test_running_answers_are_finished_before_the_end(process: tuple[subprocess.Popen[bytes], int, int]) -> None:
    running, port, engine_port = process
    wait_for(running, port)

    @on_uvloop
    async def scenario() -> None:
        engine = await engine_on(engine_port)
        step = asyncio.Event()
        stream = in_two_events(step)
        engine.script = stream
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        idle = Client(*await asyncio.open_connection("127.0.0.1", port))
        assert (await idle.ask("GET", "/health")).status == 200
        client.request("POST", "/v1/chat/completions", b"{}")
        await client.reader.readuntil(b"one")
        running.send_signal(signal.SIGTERM)
        assert await idle.closed()
        # who comes now is told to come again, also more than once
        for _ in range(3):
            late = Client(*await asyncio.open_connection("127.0.0.1", port))
            refused = await late.ask("POST", "/v1/chat/completions", b"{}")
            assert (refused.status, refused.json["error"]["code"]) == (503, "stopping")
            assert int(refused.header("Retry-After") or 0) > 0
            assert refused.header("Connection") == "close"
            assert await late.closed()
        for path, status in (("/health", 200), ("/ready", 503), ("/status", 200), ("/engine/metrics", 503)):
            late = Client(*await asyncio.open_connection("127.0.0.1", port))
            answer = await late.ask("GET", path)
            assert answer.status == status, path
            assert status == 200 or answer.header("Retry-After")
        assert len(engine.requests) == 1
        step.set()
        await client.reader.readuntil(b"0\r\n\r\n")
        assert await client.closed()
        await engine.kill()

    scenario()
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    events = [json.loads(line) for line in out.splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "frontdoor_start"
    assert events[0]["compiled"] is (os.environ.get("FRONTDOOR_COMPILE") == "1")
    assert names[-1] == "frontdoor_stop"
    assert events[-1]["cut"] == 0
    assert "request" in names


@pytest.mark.parametrize("process", [1], indirect=True)
def test_what_still_runs_at_the_drain_limit_is_ended_with_a_word(
    process: tuple[subprocess.Popen[bytes], int, int],
) -> None:
    running, port, engine_port = process
    wait_for(running, port)

    @on_uvloop
    async def scenario() -> None:
        engine = await engine_on(engine_port)

        async def endless(call: Call) -> None:
            if call.request.body == b"stream":
                await call.begin_events()
                await call.event("one")
            await call.gone.wait()

        engine.script = endless
        streaming, waiting = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        streaming.request("POST", "/v1/chat/completions", b"stream")
        waiting.request("POST", "/v1/chat/completions", b"wait")
        await until(lambda: engine.active == 2)
        began = asyncio.get_running_loop().time()
        running.send_signal(signal.SIGTERM)
        cut = await streaming.answer()
        assert 0.9 < asyncio.get_running_loop().time() - began < SOON_S
        assert cut.chunks is not None
        assert json.loads(cut.chunks[-1].removeprefix(b"data: "))["error"]["code"] == "stopping"
        refused = await waiting.answer()
        assert (refused.status, refused.json["error"]["code"]) == (503, "stopping")
        assert await streaming.closed()
        assert await waiting.closed()
        await engine.kill()

    scenario()
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert json.loads(out.splitlines()[-1])["cut"] == 2


@on_loop
async def test_who_comes_while_others_take_their_last_words_is_told_to_come_again(tmp_path: Path) -> None:
    port, stop, log = free_port(), asyncio.Event(), tmp_path / "log"
    config = from_table({"listen": {"host": "127.0.0.1", "port": port}, "slot": {"state_file": ""}})
    with open(log, "wb") as events:
        life = asyncio.create_task(serve(config, EventLog(events.fileno()), stop))
        await until(lambda: log.stat().st_size)
        idle, slow = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        slow.send(b"GET /health HTTP/1.1\r\n")
        assert (await idle.ask("GET", "/health")).status == 200
        stop.set()
        assert await idle.closed()
        late = Client(*await asyncio.open_connection("127.0.0.1", port))
        refused = await late.ask("POST", "/v1/chat/completions", b"{}")
        assert (refused.status, refused.json["error"]["code"]) == (503, "stopping")
        slow.leave()
        assert await life == 0


def test_a_reload_leaves_a_stream_alone(process: tuple[subprocess.Popen[bytes], int, int]) -> None:
    running, port, engine_port = process
    wait_for(running, port)

    @on_uvloop
    async def scenario() -> None:
        engine = await engine_on(engine_port)
        go_on = asyncio.Event()

        async def stream(call: Call) -> None:
            await call.begin_events()
            for number in range(5):
                await call.event(str(number))
                await go_on.wait()
                go_on.clear()
            await call.send(b"0\r\n\r\n")

        engine.script = stream
        client, other = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(2)]
        client.request("POST", "/v1/chat/completions", b"{}")
        for number in range(5):
            await client.reader.readuntil(b"data: %d\n\n\r\n" % number)
            running.send_signal(signal.SIGHUP)
            assert (await other.ask("GET", "/health")).status == 200
            go_on.set()
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
        for one in (client, other):
            assert (await one.ask("GET", "/health")).status == 200
            one.leave()
        await engine.kill()

    scenario()


def test_clients_that_do_not_read_cost_little_memory(process: tuple[subprocess.Popen[bytes], int, int]) -> None:
    running, port, engine_port = process
    wait_for(running, port)

    def resident_mb() -> float:
        text = Path(f"/proc/{running.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    @on_uvloop
    async def scenario() -> None:
        engine = await engine_on(engine_port)
        sent = 0

        async def firehose(call: Call) -> None:
            nonlocal sent
            await call.begin_events()
            while not call.writer.transport.is_closing():
                await call.event("x" * 100_000)
                sent += 1

        engine.script = firehose
        before = resident_mb()
        clients = [Client(*await asyncio.open_connection("127.0.0.1", port, limit=1000)) for _ in range(20)]
        for client in clients:
            client.pause()
            client.request("POST", "/v1/chat/completions", b"{}")
        seen, still = -1, 0
        # until the engine is held back for good
        while still < 5:
            seen, still = sent, still + 1 if sent == seen > len(clients) else 0
            await asyncio.sleep(0.2)
        grown = resident_mb() - before
        assert grown < 30, f"{grown:.0f} MB for 20 clients"
        for client in clients:
            client.leave()
        await engine.kill()

    scenario()


def test_a_taken_port_and_a_wrong_file_are_named(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(f'[listen]\nhost = "127.0.0.1"\nport = {taken.getsockname()[1]}\n')
        argv, env = command(config)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 3
        assert "cannot listen on 127.0.0.1" in done.stderr
    argv, env = command(config, "--check-config")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"{config}: ok\n")
    config.write_text("[listen]\nprot = 1\n")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "listen.prot: unknown key; did you mean port?" in done.stderr


def test_a_key_is_never_asked_for_a_password_and_a_pair_must_fit(tmp_path: Path) -> None:
    for name, more in (("a", ["-nodes"]), ("b", ["-nodes"]), ("locked", ["-passout", "pass:secret"])):
        make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN={name} -keyout {name}.key"
        subprocess.run([*make.split(), "-out", f"{name}.pem", *more], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "empty").touch()

    def checked(certificate: str, key: str) -> tuple[int, str]:
        files = [str(tmp_path / certificate), str(tmp_path / key)]
        argv, env = command(tmp_path, "--check-tls", *files)
        told = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
        # the same, where nothing is installed
        bare = [sys.executable, "-I", "-", *files]
        text = (SOURCE / "frontdoor/http/tls.py").read_text()
        alone = subprocess.run(bare, input=text, capture_output=True, text=True, timeout=60, check=False, env={})
        assert bool(alone.returncode) == bool(told.returncode)
        assert alone.stderr.strip() in told.stderr
        return told.returncode, told.stderr

    assert checked("a.pem", "a.key") == (0, "")
    for certificate, key, message in (
        ("a.pem", "b.key", "b.key: this key does not belong to the certificate"),
        ("a.pem", "missing", "missing: cannot be read: No such file or directory"),
        ("a.pem", "empty", "empty: this key (PEM, without a password) cannot be used"),
        ("empty", "a.key", "empty: this certificate cannot be used"),
        ("locked.pem", "locked.key", "locked.key: this key (PEM, without a password) cannot be used"),
    ):
        code, told = checked(certificate, key)
        assert code == 2
        assert message in told


def test_the_map_of_modules_is_complete() -> None:
    package = Path(frontdoor.__file__).parent
    files = (path.relative_to(package).with_suffix("") for path in package.rglob("*.py") if path.stem[:2] != "__")
    modules = {(".".join(file.parts[:-1]), file.name) for file in files}
    table = (Path(__file__).parents[1] / "README.md").read_text().split("## Layers")[1]
    rows = re.findall(r"^\| (?:`([a-z]+)/`)? *\| (.+) \|$", table, re.MULTILINE)
    named = [(name, module) for name, text in rows for module in re.findall(r"`([a-z_]+)`", text)]
    assert sorted(named) == sorted(modules)
