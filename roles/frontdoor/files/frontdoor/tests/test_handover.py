# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A restart under a service manager that keeps sockets: who comes meanwhile is answered by the next process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import Client, Engine, Hold, bench, free_port, in_two_events, on_loop, on_uvloop, until
from test_process import SOURCE, command
from test_reload import certify

CHAT = "/v1/chat/completions"
UNIT = "door.service"
#: of another host, as far as the frontdoor can see
FAR = "127.0.0.2"
# where descriptors are out of the way of those that a process gets
_HIGH = 100
# Begins a process as systemd does: its descriptors from 3 on, and whom they are for.
_BEGIN = """
import os, sys
fds, argv = sys.argv[1].split(), sys.argv[2:]
for index, fd in enumerate(fds):
    os.dup2(int(fd), 3 + index)
os.execvpe(argv[0], argv, {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds))})
"""


class Manager:
    """What systemd does for a unit of type notify with FileDescriptorStoreMax=."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.told = folder, list[str]()
        self.store: list[tuple[str, int]] = []
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.bind(str(folder / "notify"))
        self.channel.setblocking(False)
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "systemctl").write_text(f"#!/bin/sh\ncat {folder}/jobs\n")
        (folder / "systemctl").chmod(0o755)

    def stop(self, job: str) -> None:
        """Stop the process that runs, for a job of this kind."""
        (self.folder / "jobs").write_text(f"4711 {UNIT} {job} running\n4712 other.service restart waiting\n")
        running = self.processes[-1]
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "MAINPID": str(running.pid)}
        env |= {"PATH": f"{self.folder}:{env['PATH']}"}
        subprocess.run([sys.executable, "-m", "frontdoor.service", UNIT], env=env, timeout=60, check=True)
        running.terminate()

    def start(self, config: Path) -> subprocess.Popen[bytes]:
        self.look()
        argv, env = command(config)
        fds = [fd for _name, fd in self.store]
        env |= {"NOTIFY_SOCKET": str(self.folder / "notify"), "B70_FRONTDOOR_KEEPS_SOCKETS": "1"}
        begin = [sys.executable, "-c", _BEGIN, " ".join(map(str, fds)), *argv]
        with open(self.folder / f"log{len(self.processes)}", "wb") as log:
            running = subprocess.Popen(begin, env=env, stdout=log, pass_fds=fds)
        self.processes.append(running)
        return running

    def log(self) -> str:
        return (self.folder / f"log{len(self.processes) - 1}").read_text()

    def look(self) -> list[str]:
        """Take in what was told, and let go what nobody is at the other end of; the names of what is kept."""
        while True:
            try:
                message, fds, _flags, _from = socket.recv_fds(self.channel, 4096, 8)
            except BlockingIOError:
                break
            words = dict(line.split("=", 1) for line in message.decode().splitlines())
            self.told.append(message.decode())
            if "FDSTOREREMOVE" in words:
                self._keep([one for one in self.store if one[0] != words["FDNAME"]])
            for fd in fds:
                self.store.append((words["FDNAME"], fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)))
                os.close(fd)
        gone = select.poll()
        for _name, fd in self.store:
            gone.register(fd, 0)
        dead = {fd for fd, _events in gone.poll(0)}
        self._keep([one for one in self.store if one[1] not in dead])
        return [name for name, _fd in self.store]

    def _keep(self, left: list[tuple[str, int]]) -> None:
        for one in self.store:
            if one not in left:
                os.close(one[1])
        self.store = left

    async def ready(self) -> None:
        count = self.told.count("READY=1")
        await until(lambda: self.look() is not None and self.told.count("READY=1") > count)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    for process in manager.processes:
        process.kill()
        process.wait()
    manager._keep([])
    manager.channel.close()


def configure(folder: Path, port: int, engine_port: int, more: str = "") -> Path:
    path = folder / "frontdoor.toml"
    path.write_text(
        f'[listen]\nhost = "127.0.0.1"\nport = {port}\n[slot]\nstate_file = ""\n'
        f'[backend]\nurl = "http://127.0.0.1:{engine_port}"\nmetrics_interval_s = 3600\n'
        f"[admission]\nmax_active_generations = 8\n{more}"
    )
    return path


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
def test_who_comes_during_a_restart_is_answered_and_streams_end(tmp_path: Path, manager: Manager, secure: bool) -> None:
    port, more, tls = free_port(), "", None
    if secure:
        certify(tmp_path, "one")
        more = f'[tls]\ncert_file = "{tmp_path}/cert"\nkey_file = "{tmp_path}/key"\n'
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async def client(address: str) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(address, 0)))

    async def status(client: Client, method: str, path: str) -> int:
        return (await client.ask(method, path, b"{}" if method == "POST" else None)).status

    async def late(method: str, path: str) -> int:
        return await status(await client(FAR), method, path)

    @on_uvloop
    async def scenario() -> None:
        engine = Engine()
        await engine.start()
        step = asyncio.Event()
        engine.script = in_two_events(step)
        config = configure(tmp_path, port, engine.port, more)
        first = manager.start(config)
        await manager.ready()
        assert manager.look() == ["listen"]
        stream, idle = await client(FAR), await client(FAR)
        stream.request("POST", CHAT, b"{}")
        await stream.reader.readuntil(b"one")
        assert (await idle.ask("GET", "/health")).status == 200
        manager.stop("restart")
        await until(lambda: '"followed":true' in manager.log())
        # another host waits
        waits = [asyncio.create_task(late("POST", CHAT)) for _ in range(3)]
        # with the one that is idle; what was encrypted by the process is of no use to another one
        await until(lambda: manager.look().count("client") == 3 + (not secure))
        if secure:
            assert await idle.closed()
        else:
            waits.append(asyncio.create_task(status(idle, "POST", CHAT)))
        # this one has to see how the process ends
        near = await client("127.0.0.1")
        assert (await near.ask("GET", "/status")).json["frontdoor"]["draining"]
        near = await client("127.0.0.1")
        assert (await near.ask("POST", CHAT, b"{}")).json["error"]["code"] == "stopping"
        step.set()
        await stream.reader.readuntil(b"two\n\n\r\n0\r\n\r\n")
        assert await stream.closed()
        assert await asyncio.to_thread(first.wait) == 0
        assert len(engine.requests) == 1
        # while no process runs
        waits.append(asyncio.create_task(late("GET", "/health")))
        assert not [one for one in waits if one.done()]
        manager.start(config)
        await manager.ready()
        assert await asyncio.gather(*waits) == [200] * len(waits)
        assert len(engine.requests) == len(waits)
        # or they would not be closed when the process closes them
        await until(lambda: manager.look() == ["listen"])
        await engine.kill()

    scenario()


@on_loop
async def test_a_unix_socket_serves_this_host_and_its_proxies(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    # of a process that was killed
    socket.socket(socket.AF_UNIX).bind(str(path))
    async with bench(tmp_path, listen={"allowed_networks": ["10.0.0.0/8"]}, limits={"max_connections": 1}) as run:
        await run.listener.open("127.0.0.1", 0, (), str(path))
        assert path.stat().st_mode & 0o777 == 0o666

        async def client() -> Client:
            return Client(*await asyncio.open_unix_connection(str(path)))

        kept = await client()
        for _ in range(2):
            assert (await kept.ask("POST", CHAT, b"{}", "X-Forwarded-For: 10.1.2.3")).status == 200
        assert run.engine.requests[0].header("X-Forwarded-For") == "10.1.2.3"
        # by its networks
        refused = await (await client()).ask("GET", "/health", None, "X-Forwarded-For: 192.0.2.1")
        assert refused.json["error"]["code"] == "address_not_allowed"
        run.listener.hand_over(lambda client: client.close())
        late = await client()
        assert (await late.ask("GET", "/health")).status == 200
        for one in (kept, late):
            one.leave()


@pytest.mark.parametrize("taken", ["http.sock/x", "file"])
@on_loop
async def test_a_path_that_cannot_be_listened_at_is_refused(tmp_path: Path, taken: str) -> None:
    (tmp_path / "file").write_text("of somebody")
    async with bench(tmp_path) as run:
        with pytest.raises(OSError, match=r"No such file|Not a directory|in use"):
            await run.listener.open("127.0.0.1", 0, (), str(tmp_path / taken))
    assert (tmp_path / "file").read_text() == "of somebody"


@on_loop
async def test_a_place_in_the_queue_is_kept_while_another_process_follows(tmp_path: Path) -> None:
    one_by_one = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    async with bench(tmp_path, {"limits": one_by_one}) as run:
        hold = run.engine.script = Hold()
        first, second = [await run.client() for _ in range(2)]
        await run.in_turn(first, second)
        run.app.drain(lambda client: client.close())
        late = await run.client()
        assert (await late.ask("POST", CHAT, b"{}")).json["error"]["code"] == "stopping"
        hold.go.set()
        assert [(await client.answer()).status for client in (first, second)] == [200, 200]


def test_a_stop_that_nothing_follows_keeps_nobody_waiting(tmp_path: Path, manager: Manager) -> None:
    port = free_port()

    @on_uvloop
    async def scenario() -> None:
        engine = Engine()
        await engine.start()
        step = asyncio.Event()
        engine.script = in_two_events(step)
        only = manager.start(configure(tmp_path, port, engine.port))
        await manager.ready()
        stream = Client(*await asyncio.open_connection("127.0.0.1", port))
        stream.request("POST", CHAT, b"{}")
        await stream.reader.readuntil(b"one")
        manager.stop("stop")
        await until(lambda: '"followed":false' in manager.log())
        late = Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(FAR, 0)))
        assert (await late.ask("POST", CHAT, b"{}")).json["error"]["code"] == "stopping"
        step.set()
        assert await asyncio.to_thread(only.wait) == 0
        stream.leave()
        await engine.kill()

    scenario()


def test_an_address_that_is_no_longer_wanted_is_let_go(tmp_path: Path, manager: Manager) -> None:
    old, new = free_port(), free_port()
    first = manager.start(configure(tmp_path, old, 1))

    @on_uvloop
    async def scenario() -> None:
        await manager.ready()
        manager.stop("restart")
        assert await asyncio.to_thread(first.wait) == 0
        assert manager.look() == ["listen"]
        manager.start(configure(tmp_path, new, 1))
        await manager.ready()
        assert manager.look() == ["listen"]
        assert socket.socket(fileno=os.dup(manager.store[0][1])).getsockname()[1] == new
        client = Client(*await asyncio.open_connection("127.0.0.1", new))
        assert (await client.ask("GET", "/health")).status == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", old)

    scenario()
