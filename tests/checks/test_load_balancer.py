# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HAProxy, configured as by the role load_balancer, before real frontdoors with engines that tests script."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRONTDOOR = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path.append(str(FRONTDOOR / "tests"))

from kit import LIMIT_S, Answer, Call, Client, Engine, Hold, changed_state, free_port, on_uvloop, start_unit  # noqa: E402

from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer import host as member_host  # noqa: E402
from ansible_collections.arcpro.b70.plugins.module_utils._load_balancer.dialect import LoadBalancerFault  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer import haproxy  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.fleet import host_of, pools_of  # noqa: E402

CHAT = "/v1/chat/completions"
KEY = "b70-alice"


async def becomes(done: Callable[[], Any], seconds: float = LIMIT_S) -> None:
    """Wait until something is so, where asking takes a while."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(done):
            await asyncio.sleep(0.05)


@dataclasses.dataclass
class Door:
    """A frontdoor in a process of its own, and its engine."""

    name: str
    folder: Path
    engine: Engine
    port: int
    process: subprocess.Popen[bytes]

    def write_state(self, **changes: Any) -> None:
        new = self.folder / "state.json.new"
        new.write_text(json.dumps(changed_state(self.engine.url, changes)))
        new.replace(self.folder / "state.json")

    @property
    def asked(self) -> int:
        """How many generations its engine saw."""
        return sum(request.line.startswith("POST") for request in self.engine.requests)


def is_ready(port: int, *, tls: bool) -> bool:
    """Ask a frontdoor whether it is ready, whatever its certificate."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=trust)
        if tls
        else http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    )
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    return False


@contextlib.asynccontextmanager
async def door(folder: Path, name: str, extra: str = "", **state: Any) -> AsyncIterator[Door]:
    engine, port = Engine(), free_port()
    await engine.start()
    own = folder / name
    own.mkdir()
    start_unit(own)
    config = own / "frontdoor.toml"
    config.write_text(
        f'[listen]\nhost = "127.0.0.1"\nport = {port}\ntrusted_proxies = ["127.0.0.1"]\n'
        f'[slot]\nstate_file = "{own}/state.json"\nunits_dir = "{own}"\n'
        f'[backend]\nurl = "{engine.url}"\nmetrics_interval_s = 3600\n{extra}'
    )
    argv = [sys.executable, "-m", "frontdoor", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(FRONTDOOR / "src")}
    (own / "state.json").write_text(json.dumps(changed_state(engine.url, state)))
    with (own / "output").open("wb") as output:
        process = subprocess.Popen(argv, env=environment, stdout=output, stderr=output)
    try:
        # HAProxy takes every host for ready until it has looked, and is to see one that is.
        await becomes(lambda: is_ready(port, tls="[tls]" in extra))
        yield Door(name, own, engine, port, process)
    finally:
        process.kill()
        process.wait()
        await engine.kill()


@dataclasses.dataclass
class Balancer:
    """A running HAProxy."""

    folder: Path
    port: int
    metrics_port: int
    process: subprocess.Popen[bytes]
    master: member_host.Master
    clients: list[Client] = dataclasses.field(default_factory=list)

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**24))
        self.clients.append(client)
        return client

    async def ask(self, method: str, path: str, body: Any = None, *fields: str) -> Answer:
        client = await self.client()
        data = None if body is None else json.dumps(body).encode()
        answer = await client.ask(method, path, data, *fields)
        client.leave()
        return answer

    async def chat(self, body: Any = None, *fields: str) -> Answer:
        return await self.ask("POST", CHAT, body or {"model": "tiny-a"}, *fields)

    def states(self) -> dict[str, bool]:
        """Which hosts get requests, in each backend that they are in."""
        servers = self.master.servers()
        return {each.name: all(server.in_service for server in servers.of(each.name)) for each in servers.servers}

    async def in_service(self, **expected: bool) -> None:
        """Wait until these hosts get requests, or do not."""
        await becomes(lambda: {name: self.states()[name] for name in expected} == expected)

    async def at_rest(self, *names: str) -> None:
        """Wait until these hosts have no requests: a client may see the end of an answer before it is counted."""
        await becomes(lambda: not any(self.master.sessions(name) for name in names))

    def member(self, name: str) -> member_host.LoadBalancedHost:
        return member_host.LoadBalancedHost(self.master, name, str(self.folder / "server-state"))

    async def reload(self) -> None:
        before = self.master.workers().current
        self.process.send_signal(signal.SIGUSR2)

        def again() -> bool:
            try:
                return self.master.workers().current != before
            except (member_host.NoAnswer, LoadBalancerFault):
                return False

        await becomes(again)


SETTINGS: dict[str, Any] = {
    "bind_host": "127.0.0.1",
    "metrics_host": "127.0.0.1",
    "allowed_networks": [],
    "tls_certificate": "",
    "member_ca_file": "",
    "buffer_size": 262144,
    "max_connections": 500,
    "max_connections_per_address": 400,
    "silence_timeout": 600,
    "stop_timeout": 600,
    "sticky": "",
    "sticky_header": "X-Session-Id",
    "sticky_load": 200,
    "default_model": "",
    "keys_file": "",
    "api_keys": {},
}


@contextlib.asynccontextmanager
async def balancer(
    programs: Path,
    folder: Path,
    doors: list[Door],
    *,
    models: list[tuple[str, ...]] | None = None,
    told: dict[str, Any] | None = None,
    patient: bool = True,
    **changes: Any,
) -> AsyncIterator[Balancer]:
    """Render a configuration, have HAProxy check it, and run it. patient: a busy machine makes no host a hung one."""
    port, metrics_port = free_port(), free_port()
    names = models or [()] * len(doors)
    pools = pools_of(
        host_of(
            each.name,
            {
                "ansible_host": "127.0.0.1",
                "frontdoor_port": each.port,
                "load_balancer_member_models": own,
                **(told or {}),
            },
            {},
        )
        for each, own in zip(doors, names, strict=True)
    )
    places = {"state_file": str(folder / "server-state"), "port": port, "metrics_port": metrics_port}
    text = haproxy.configuration(haproxy.HaproxySettings(**{**SETTINGS, **places, **changes}), pools)
    for line in (
        "    log /dev/log local0 info\n",
        "    user haproxy\n",
        "    group haproxy\n",
        "    chroot /var/lib/haproxy\n",
    ):
        assert text.count(line) == 1
        text = text.replace(line, "")
    if patient:
        text = text.replace("    timeout check 2s\n", "    timeout check 60s\n")
    text = text.replace("/run/haproxy/admin.sock", str(folder / "admin.sock"))
    config = folder / "haproxy.cfg"
    config.write_text(text)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(programs / "lib")}
    program = str(programs / "bin" / "haproxy")
    checked = subprocess.run(
        [program, "-c", "-f", str(config)], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    argv = [program, "-W", "-S", str(folder / "master.sock"), "-f", str(config)]
    with (folder / "haproxy.log").open("wb") as output:
        process = subprocess.Popen(argv, env=environment, stdout=output, stderr=output)
    running = Balancer(folder, port, metrics_port, process, member_host.Master(str(folder / "master.sock")))

    def started() -> bool:
        assert process.poll() is None, (folder / "haproxy.log").read_text()
        try:
            return bool(running.states())
        except (member_host.NoAnswer, LoadBalancerFault):
            return False

    try:
        await becomes(started)
        yield running
    finally:
        for client in running.clients:
            client.leave()
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


@contextlib.asynccontextmanager
async def fleet(
    programs: Path, folder: Path, count: int = 2, states: list[dict[str, Any]] | None = None, **changes: Any
) -> AsyncIterator[tuple[Balancer, list[Door]]]:
    """Some frontdoors that are ready, and a load balancer before them."""
    async with contextlib.AsyncExitStack() as stack:
        told = states or [{}] * count
        doors = [await stack.enter_async_context(door(folder, f"h{n}", **state)) for n, state in enumerate(told, 1)]
        running = await stack.enter_async_context(balancer(programs, folder, doors, **changes))
        await running.in_service(**{each.name: True for each in doors})
        yield running, doors


MANY = {"limits": {"max_active_generations": 32, "queue_timeout_s": 0, "backend_timeout_s": 60}}
ONE_AT_A_TIME = {"limits": {"max_active_generations": 1, "queue_timeout_s": 0, "backend_timeout_s": 60}}


@on_uvloop
async def test_a_full_host_is_not_seen_and_all_full_is_told_by_a_host(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, states=[ONE_AT_A_TIME] * 2) as (run, (one, two)):
        hold = Hold()
        one.engine.script = two.engine.script = hold
        # somebody who does not come through the load balancer fills one host, which then looks idle from there
        direct = Client(*await asyncio.open_connection("127.0.0.1", one.port))
        direct.request("POST", CHAT, b"{}")
        await becomes(lambda: one.engine.active)
        through = await run.client()
        through.request("POST", CHAT, b'{"model": "tiny-a"}')
        await becomes(lambda: two.engine.active)
        for _time in range(3):
            refused = await run.chat()
            assert (refused.status, refused.json["error"]["code"]) == (503, "busy")
            assert int(refused.header("Retry-After") or 0) > 0
        hold.go.set()
        assert (await through.answer()).status == (await direct.answer()).status == 200
        assert (one.asked, two.asked) == (1, 1)
        direct.leave()


@on_uvloop
async def test_a_hung_host_costs_no_request(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, states=[MANY] * 2, patient=False) as (run, (one, two)):
        one.process.send_signal(signal.SIGSTOP)
        try:
            # half of them go to the host that hangs, and wait there until its check fails
            answers = await asyncio.gather(*(run.chat({"model": "tiny-a", "n": 1}) for _time in range(8)))
            assert [answer.status for answer in answers] == [200] * 8
            await run.in_service(h1=False, h2=True)
            assert (await run.chat()).status == 200
            assert two.asked == 9
        finally:
            one.process.send_signal(signal.SIGCONT)
        await run.in_service(h1=True)


async def stream_until(call: Call, end: asyncio.Event, sent: list[int]) -> None:
    """Send numbered events until told to end."""
    sent.clear()
    await call.begin_events()
    while not end.is_set() and not call.gone.is_set():
        await call.event(f"number {len(sent)}")
        sent.append(len(sent))
        await asyncio.sleep(0.05)
    await call.send(b"0\r\n\r\n")


@dataclasses.dataclass
class Stream:
    """A stream through the load balancer, and the hand on its end."""

    client: Client
    door: Door
    end: asyncio.Event
    sent: list[int]

    async def arrived(self) -> None:
        """End it; each event must have arrived."""
        self.end.set()
        answer = await self.client.answer()
        assert answer.body.decode() == "".join(f"data: number {number}\n\n" for number in self.sent)


async def streaming(run: Balancer, doors: list[Door]) -> Stream:
    """Begin a stream; it runs on one of the hosts."""
    end, sent = asyncio.Event(), list[int]()
    for each in doors:
        # on a machine that is too busy for checks, another host may be asked before the first event
        each.engine.script = lambda call: stream_until(call, end, sent)
    client = await run.client()
    client.request("POST", CHAT, b'{"model": "tiny-a", "stream": true}')
    await becomes(lambda: len(sent) > 3)
    return Stream(client, next(each for each in doors if each.engine.active), end, sent)


@on_uvloop
async def test_a_host_that_closes_finishes_its_streams(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, doors):
        stream = await streaming(run, doors)
        stream.door.write_state(open=False, phase="switching", verified=False)
        await run.in_service(**{stream.door.name: False})
        before = len(stream.sent)
        await becomes(lambda: len(stream.sent) > before + 20)
        await stream.arrived()
        assert not run.states()[stream.door.name]


@on_uvloop
async def test_a_stream_survives_a_reload(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, doors):
        stream = await streaming(run, doors)
        await run.reload()
        before = len(stream.sent)
        await becomes(lambda: len(stream.sent) > before + 20)
        # the process of before serves it to its end, and then goes
        assert run.master.workers().old
        await stream.arrived()
        stream.client.leave()
        await becomes(lambda: not run.master.workers().old)


@on_uvloop
async def test_a_drained_host_gets_nothing_until_it_is_taken_back(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, doors):
        stream = await streaming(run, doors)
        name, other = stream.door.name, next(each for each in doors if each is not stream.door)
        member = run.member(name)
        planned = member.bring_to("drained", 0, write=False)
        assert planned.told()["changed"]
        assert run.states()[name]
        # it does not wait for ever for what runs
        needed = await asyncio.to_thread(member.bring_to, "drained", 0.2, write=True, floors={"": "100%"})
        assert (needed.changed, "b70_min_ready keeps" in needed.refused) == (False, True)
        drained = await asyncio.to_thread(member.bring_to, "drained", 0.2, write=True, floors={"": 1})
        assert drained.told()["diff"] == {"before": f"b70/{name} ready\n", "after": f"b70/{name} drained\n"}
        assert drained.sessions == 1
        assert "1 are still under way" in drained.warnings[0]
        # what runs is counted where it runs: in the process of before the reload
        await run.reload()
        assert not run.states()[name]
        assert (await asyncio.to_thread(member.bring_to, "drained", 0.2, write=True)).sessions == 1
        stream_ended = asyncio.create_task(stream.arrived())
        again = await asyncio.to_thread(member.bring_to, "drained", LIMIT_S, write=True)
        assert (again.changed, again.sessions, again.warnings) == (False, 0, [])
        await stream_ended
        for each in doors:
            each.engine.script = lambda call: call.json({})
        asked = stream.door.asked
        for _time in range(4):
            assert (await run.chat()).status == 200
        assert stream.door.asked == asked
        assert other.asked >= 4
        back = await asyncio.to_thread(member.bring_to, "ready", LIMIT_S, write=True)
        assert back.changed
        assert run.states()[name]
        assert not (await asyncio.to_thread(member.bring_to, "ready", LIMIT_S, write=True)).changed
        await run.reload()
        await run.in_service(**{name: True})


@on_uvloop
async def test_a_host_that_is_not_ready_comes_back_later(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, (one, _two)):
        member = run.member("h1")
        await asyncio.to_thread(member.bring_to, "drained", LIMIT_S, write=True)
        one.write_state(open=False, phase="failed", verified=False)
        await becomes(lambda: not run.master.servers().of("h1")[0].up)
        late = await asyncio.to_thread(member.bring_to, "ready", 3, write=True)
        assert late.changed
        assert "h1 is ready on this load balancer, but its health check" in late.told()["summary"]
        # nobody waits for a host that is not expected to be ready
        soon = await asyncio.to_thread(member.bring_to, "ready", 0, write=True)
        assert (soon.changed, soon.warnings) == (False, [])
        assert soon.told()["summary"] == "h1 gets requests as soon as its health check passes"


@on_uvloop
async def test_what_is_unknown_or_silent_is_a_warning(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, count=1) as (run, _doors):
        told = run.member("h9").bring_to("drained", 0, write=True).told()
        assert (told["changed"], told["known"], told["answered"]) == (False, False, True)
    # it does not run any more; what it reads at its next start is put right
    state_file = tmp_path / "server-state"
    state_file.write_text("1\n# be_id be_name srv_id srv_name\n2 b70 1 h1 127.0.0.1\n2 b70 2 h2 127.0.0.1\n")
    result = run.member("h1").bring_to("ready", 0, write=True)
    assert (result.answered, result.changed) == (False, False)
    assert state_file.read_text().endswith("srv_name\n2 b70 2 h2 127.0.0.1\n")


@on_uvloop
async def test_no_host_is_an_error_of_the_api(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, doors):
        assert (await run.ask("GET", "/ready")).status == 200
        for each in doors:
            each.write_state(open=False, phase="switching", verified=False)
        await run.in_service(h1=False, h2=False)
        refused = await run.chat()
        assert (refused.status, refused.json["error"]["code"]) == (503, "no_host_ready")
        assert refused.header("Retry-After") == "5"
        assert (await run.ask("GET", "/ready")).status == 503
        # the load balancer itself is well
        assert (await run.ask("GET", "/health")).json == {"status": "ok"}


@on_uvloop
async def test_paths_of_one_host_are_not_served(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, count=1) as (run, (one,)):
        paths = ["/", "/status", "/metrics", "/engine/metrics", "/v1/admin/models", "/v1/%61dmin/models"]
        # as a frontdoor reads them
        paths += ["//", "/v1//admin/models", "/v1/./admin/models", "/v1/x/../admin/models", "/v1/%2e/admin", "/x/.."]
        paths += [
            "//status",
            "/status/",
            "/v1%2F%2Fadmin",
            "/v1/admin/%zz/..",
            "/v1/.//admin",
            "/./status",
            "/x/%2E%2E/",
        ]
        for path in paths:
            answer = await run.ask("GET", path)
            assert (answer.status, answer.json["error"]["code"]) == (404, "unknown_path"), path
        assert (await run.ask("GET", "/v1/models")).status == 200
        assert (await run.ask("GET", "/version")).status == 200
        assert len(one.engine.requests) == 2
        # a base URL that ends with a slash
        assert (await run.ask("POST", f"/{CHAT}", {"model": "tiny-a"})).status == 200
        for path in ("/health/", "//ready"):
            assert (await run.ask("GET", path)).status == 200
        assert len(one.engine.requests) == 3


@on_uvloop
async def test_hosts_know_the_client(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, count=1) as (run, (one,)):
        local = ("127.0.0.7", 0)
        client = Client(*await asyncio.open_connection("127.0.0.1", run.port, local_addr=local))
        # what it says of itself is not believed
        assert (await client.ask("POST", CHAT, b"{}", "X-Forwarded-For: 192.0.2.1")).status == 200
        assert one.engine.requests[-1].header("X-Forwarded-For") == "127.0.0.7"
        client.leave()


@on_uvloop
async def test_one_address_cannot_take_all_connections(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path, count=1, max_connections_per_address=3) as (run, _doors):

        async def served(client: Client | None = None) -> bool:
            """Whether a connection is answered; a new one if none is given. A refused one ends at any moment."""
            try:
                return (await (client or await run.client()).ask("GET", "/health")).status == 200
            except (ConnectionError, EOFError):
                return False

        clients = [await run.client() for _time in range(3)]
        assert [await served(client) for client in clients] == [True] * 3
        for _time in range(5):
            assert not await served()
        # somebody else, and who has a connection
        other = Client(*await asyncio.open_connection("127.0.0.1", run.port, local_addr=("127.0.0.7", 0)))
        assert [await served(client) for client in (other, *clients)] == [True] * 4
        other.leave()
        clients[0].leave()
        async with asyncio.timeout(LIMIT_S):
            while not await served():
                await asyncio.sleep(0.05)


@on_uvloop
async def test_networks_and_keys_are_asked_for(programs: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.map"
    digests = {"alice": "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()}
    keys.write_text(haproxy.keys_map(digests))
    changes: dict[str, Any] = {"keys_file": str(keys), "api_keys": digests, "allowed_networks": ["127.0.0.0/29"]}
    async with fleet(programs, tmp_path, count=1, **changes) as (run, (one,)):
        for field in (f"Authorization: Bearer {KEY}", f"X-Api-Key: {KEY}", f"authorization: bearer {KEY}"):
            assert (await run.chat(None, field)).status == 200
        for field in ("X-Other: 1", "Authorization: Bearer b70-mallory", f"Authorization: Basic {KEY}"):
            refused = await run.chat(None, field)
            assert (refused.status, refused.json["error"]["code"]) == (401, "invalid_api_key")
        assert one.asked == 3
        # only a browser that asks first has no key
        assert (await run.ask("OPTIONS", CHAT)).json["error"]["code"] == "invalid_api_key"
        preflight = await run.ask("OPTIONS", CHAT, None, "Origin: https://x", "Access-Control-Request-Method: POST")
        assert preflight.header("WWW-Authenticate") is None
        for path, status in (("/ready", 200), ("/health", 200), ("/v1/models", 401)):
            assert (await run.ask("GET", path)).status == status
        # a stranger is refused before the body arrives
        client = await run.client()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: lb\r\nContent-Length: 1000000\r\n\r\n")
        assert (await client.answer()).status == 401
        far = Client(*await asyncio.open_connection("127.0.0.1", run.port, local_addr=("127.0.0.9", 0)))
        refused = await far.ask("POST", CHAT, b"{}", f"Authorization: Bearer {KEY}")
        assert (refused.status, refused.json["error"]["code"]) == (403, "address_not_allowed")
        far.leave()


def certified(folder: Path, name: str) -> Path:
    """A certificate for a name, which signs itself, beside its key."""
    certificate = folder / f"{name}.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=b70", "-addext", f"subjectAltName=DNS:{name}"]
    argv += ["-out", str(certificate), "-keyout", str(certificate.with_suffix(".key"))]
    subprocess.run(argv, check=True, capture_output=True)
    return certificate


@on_uvloop
async def test_hosts_with_tls_are_known_by_their_certificates(programs: Path, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        doors, certificates = [], []
        for name, certified_name in (("h1", "door.example.com"), ("h2", "other.example.com")):
            certificate = certified(tmp_path, certified_name)
            tls = f'[tls]\ncert_file = "{certificate}"\nkey_file = "{certificate.with_suffix(".key")}"\n'
            doors.append(await stack.enter_async_context(door(tmp_path, name, tls)))
            certificates.append(certificate.read_text())
        known = tmp_path / "known.pem"
        known.write_text("".join(certificates))
        # the inventory has addresses, as is usual
        told = {"frontdoor_tls_certificate": "/etc/b70/door.pem", "load_balancer_member_tls_name": "door.example.com"}
        running = balancer(programs, tmp_path, doors, told=told, member_ca_file=str(known))
        run = await stack.enter_async_context(running)
        await run.in_service(h1=True, h2=False)
        # Before its first check, HAProxy takes a host for one that runs.
        await becomes(lambda: run.master.servers().of("h2")[0].line.split()[5] == "0")
        for _time in range(3):
            assert (await run.chat()).status == 200
        assert [each.asked for each in doors] == [3, 0]


@pytest.mark.parametrize(
    ("sticky", "names"),
    [
        *(
            ("header", ["X-Session-Id"]),
            ("header", ["X-Claude-Code-Session-Id"]),
            ("header", ["session-id", "thread-id"]),
        ),
        *(("user", []), ("key", ["Authorization"])),
    ],
)
@on_uvloop
async def test_a_session_stays_on_its_host(programs: Path, tmp_path: Path, sticky: str, names: list[str]) -> None:
    def asked_in(session: int) -> tuple[list[str], bytes]:
        own = {"user": f"u{session}"} if sticky == "user" else {}
        return [f"{name}: Bearer {session}" for name in names], json.dumps({"model": "tiny-a", **own}).encode()

    async with fleet(programs, tmp_path, states=[MANY] * 3, sticky=sticky) as (run, doors):
        homes = {}
        for session in range(8):
            fields, data = asked_in(session)
            before = [each.asked for each in doors]
            client = await run.client()
            for _time in range(3):
                await run.at_rest(*(each.name for each in doors))
                assert (await client.ask("POST", CHAT, data, *fields)).status == 200
            more = [each.asked - count for each, count in zip(doors, before, strict=True)]
            assert sorted(more) == [0, 0, 3], more
            homes[session] = more.index(3)
        assert len(set(homes.values())) > 1
        # a host that is busier than the others hands over: the session is served elsewhere and not refused
        home = doors[homes[0]]
        hold = Hold()
        for each in doors:
            each.engine.script = hold
        fields, data = asked_in(0)
        clients = [await run.client() for _time in range(4)]
        for client in clients:
            client.request("POST", CHAT, data, *fields)
        await becomes(lambda: sum(each.engine.active for each in doors) == 4)
        assert home.engine.active < 4
        hold.go.set()
        assert [(await client.answer()).status for client in clients] == [200] * 4
        # without a session, hosts take turns
        before = [each.asked for each in doors]
        for _time in range(6):
            assert (await run.chat()).status == 200
        assert all(each.asked > count for each, count in zip(doors, before, strict=True))


MODELS: list[tuple[str, ...]] = [("tiny-a", "chat"), ("tiny-b",), ("tiny-b", "chat")]


def serving(name: str, *aliases: str) -> dict[str, Any]:
    return {"profile": {"name": name, "served_model_name": name}, "request": {"model_aliases": list(aliases)}}


@on_uvloop
async def test_a_request_goes_where_its_model_is(programs: Path, tmp_path: Path) -> None:
    states = [serving("tiny-a", "chat"), serving("tiny-b"), serving("tiny-b", "chat")]
    async with fleet(programs, tmp_path, states=states, models=MODELS) as (run, doors):

        async def served_by(body: Any) -> set[str]:
            before = [each.asked for each in doors]
            for _time in range(3):
                assert (await run.chat(body)).status == 200
            return {each.name for each, count in zip(doors, before, strict=True) if each.asked > count}

        assert await served_by({"model": "tiny-a"}) == {"h1"}
        assert await served_by({"messages": ["x" * 1000], "model": "tiny-b"}) <= {"h2", "h3"}
        assert await served_by({"model": "chat"}) <= {"h1", "h3"}
        # the name of the model may stand in what a person wrote
        tricky = {"messages": [{"model": "tiny-a", "content": '"model": "tiny-a"'}], "model": "tiny-b"}
        assert await served_by(tricky) <= {"h2", "h3"}
        for body, status, code in (({"model": "gpt-4"}, 404, "model_not_found"), ({"x": 1}, 400, "model_required")):
            refused = await run.chat(body)
            assert (refused.status, refused.json["error"]["code"]) == (status, code)
        listed = await run.ask("GET", "/v1/models")
        assert [model["id"] for model in listed.json["data"]] == ["tiny-a", "chat", "tiny-b"]
        # a host that serves another model by now is out, whatever the inventory says
        doors[0].write_state(**serving("tiny-c"))
        await becomes(lambda: [server.in_service for server in run.master.servers().of("h1")] == [False, False])
        assert await served_by({"model": "chat"}) == {"h3"}
        refused = await run.chat({"model": "tiny-a"})
        assert (refused.status, refused.json["error"]["code"]) == (503, "no_host_ready")
        listed = await run.ask("GET", "/v1/models")
        assert [model["id"] for model in listed.json["data"]] == ["chat", "tiny-b"]
        # one host in several backends is drained in all of them
        drained = await asyncio.to_thread(run.member("h3").bring_to, "drained", LIMIT_S, write=True)
        assert len(drained.before) == 2
        assert await served_by({"model": "tiny-b"}) == {"h2"}


@on_uvloop
async def test_requests_without_a_model_go_to_the_default(programs: Path, tmp_path: Path) -> None:
    states = [serving("tiny-a"), serving("tiny-b")]
    models: list[tuple[str, ...]] = [("tiny-a",), ("tiny-b",)]
    async with fleet(programs, tmp_path, states=states, models=models, default_model="tiny-b") as (run, (_one, two)):
        assert (await run.chat({"messages": []})).status == 200
        assert two.asked == 1


@on_uvloop
async def test_bodies_beyond_the_buffer_pass_once(programs: Path, tmp_path: Path) -> None:
    size = SETTINGS["buffer_size"]
    async with fleet(programs, tmp_path, states=[ONE_AT_A_TIME] * 2) as (run, (one, two)):
        hold = Hold()
        one.engine.script = hold
        direct = Client(*await asyncio.open_connection("127.0.0.1", one.port))
        direct.request("POST", CHAT, b"{}")
        await becomes(lambda: one.engine.active)
        # what fits is asked of the other host; what does not is told what the full one says
        for length, expected in ((size // 2, {200}), (size * 4, {200, 503})):
            found = [(await run.chat({"model": "tiny-a", "x": "y" * length})).status for _time in range(6)]
            assert set(found) == expected, (length, found)
        hold.go.set()
        assert (await direct.answer()).status == 200
        direct.leave()
        body = {"model": "tiny-a", "x": "y" * 3_000_000}
        assert (await run.chat(body)).status == 200
        assert json.loads((one.engine.requests + two.engine.requests)[-1].body)


@on_uvloop
async def test_a_model_behind_the_buffer_is_asked_for(programs: Path, tmp_path: Path) -> None:
    size = SETTINGS["buffer_size"]
    states = [serving("tiny-a"), serving("tiny-b")]
    models: list[tuple[str, ...]] = [("tiny-a",), ("tiny-b",)]
    async with fleet(programs, tmp_path, states=states, models=models) as (run, (_one, two)):
        assert (await run.chat({"model": "tiny-b", "x": "y" * size * 2})).status == 200
        assert (await run.chat({"x": "y" * (size // 2), "model": "tiny-b"})).status == 200
        assert two.asked == 2
        refused = await run.chat({"x": "y" * size * 2, "model": "tiny-b"})
        assert (refused.status, refused.json["error"]["code"]) == (413, "body_too_large")


@on_uvloop
async def test_metrics_are_on_an_address_of_their_own(programs: Path, tmp_path: Path) -> None:
    async with fleet(programs, tmp_path) as (run, _doors):
        client = Client(*await asyncio.open_connection("127.0.0.1", run.metrics_port))
        text = (await client.ask("GET", "/metrics")).body.decode()
        assert 'haproxy_server_status{proxy="b70",server="h1",state="UP"} 1' in text
        assert (await client.ask("GET", "/v1/models")).status == 404
        # what it runs, as the role asks it
        build = haproxy.build_of((tmp_path / "haproxy.cfg").read_text())
        assert (await client.ask("GET", "/health")).json == {"status": "ok", "build": build}
        client.leave()
