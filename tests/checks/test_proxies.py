# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx, HAProxy and Caddy before a frontdoor, configured as docs/examples says: each event arrives by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "roles" / "frontdoor" / "files" / "frontdoor" / "tests"))

from admin_kit import write_keys  # noqa: E402
from kit import Bench, Call, Client, Script, bench, free_port, on_uvloop, until  # noqa: E402

EXAMPLES = ROOT / "docs" / "examples"
NAME = "models.example.com"
EVENTS = 5
CHAT = "/v1/chat/completions"


@dataclass
class Proxy:
    """A proxy before a frontdoor: how it is checked, how it is run, and where it listens."""

    check: list[str]
    run: list[str]
    port: int
    tls: bool = True


@dataclass
class Place:
    """What configurations are made with."""

    programs: Path
    folder: Path
    certificate: Path
    key: Path
    both: Path

    def example(self, name: str, *pairs: tuple[str, str]) -> str:
        """An example with the addresses and files of this test in the place of its own."""
        text = (EXAMPLES / name).read_text()
        for before, after in pairs:
            assert text.count(before) == 1, f"{before} in {name}"
            text = text.replace(before, after)
        return text

    def program(self, name: str) -> str:
        return str(self.programs / "bin" / name)


@pytest.fixture
def place(programs: Path, tmp_path: Path) -> Place:
    certificate, key, both = (tmp_path / name for name in ("cert.pem", "key.pem", "both.pem"))
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += [
        "-subj",
        f"/CN={NAME}",
        "-addext",
        f"subjectAltName=DNS:{NAME}",
        "-out",
        str(certificate),
        "-keyout",
        str(key),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    both.write_text(certificate.read_text() + key.read_text())
    return Place(programs, tmp_path, certificate, key, both)


def nginx_with(place: Place, port: int, server: str, *, tls: bool) -> Proxy:
    """The part of the configuration that packages bring, which names where logs and bodies go."""
    user = "user root root;\n" if os.geteuid() == 0 else ""
    paths = "".join(
        f"{word}_temp_path {place.folder}/{word};\n" for word in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = place.folder / "nginx.conf"
    file.write_text(
        f"{user}daemon off;\npid {place.folder}/nginx.pid;\nerror_log {place.folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}{server}}}\n"
    )
    run = [place.program("nginx"), "-e", f"{place.folder}/start.log", "-c", str(file)]
    return Proxy([*run, "-t"], run, port, tls)


def nginx(place: Place, door: int, port: int) -> Proxy:
    server = place.example(
        "nginx.conf",
        ("127.0.0.1:8000", f"127.0.0.1:{door}"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        (f"/etc/ssl/certs/{NAME}.pem", str(place.certificate)),
        (f"/etc/ssl/private/{NAME}.key", str(place.key)),
    )
    return nginx_with(place, port, server, tls=True)


def stock_nginx(place: Place, door: int, port: int) -> Proxy:
    """As nginx is without a word from anybody: HTTP/1.0 to the frontdoor, and answers are collected in blocks."""
    passing = f"location / {{ proxy_pass http://127.0.0.1:{door}; client_max_body_size 64m; }}"
    return nginx_with(place, port, f"server {{ listen 127.0.0.1:{port};\n{passing} }}\n", tls=False)


def haproxy(place: Place, door: int, port: int) -> Proxy:
    file = place.folder / "haproxy.cfg"
    file.write_text(
        place.example(
            "haproxy.cfg",
            ("127.0.0.1:8000", f"127.0.0.1:{door}"),
            (f"bind :443 ssl crt /etc/haproxy/{NAME}.pem", f"bind 127.0.0.1:{port} ssl crt {place.both}"),
        )
    )
    run = [place.program("haproxy"), "-f", str(file)]
    return Proxy([*run, "-c"], [*run, "-db"], port)


def caddy(place: Place, door: int, port: int) -> Proxy:
    site = place.example(
        "Caddyfile",
        ("127.0.0.1:8000", f"127.0.0.1:{door}"),
        (f"\n{NAME} {{\n", f"\nhttps://{NAME}:{port} {{\n\tbind 127.0.0.1\n"),
        (f"/etc/caddy/{NAME}.pem /etc/caddy/{NAME}.key", f"{place.certificate} {place.key}"),
    )
    file = place.folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    words = ["--adapter", "caddyfile", "--config", str(file)]
    program = place.program("caddy")
    return Proxy([program, "validate", *words], [program, "run", *words], port)


PROXIES: dict[str, Callable[[Place, int, int], Proxy]] = {
    "nginx": nginx,
    "stock nginx": stock_nginx,
    "haproxy": haproxy,
    "caddy": caddy,
}


@contextlib.asynccontextmanager
async def standing(place: Place, proxy: Proxy) -> AsyncIterator[Client]:
    """Check a configuration with its own program and run it; yields a client of it."""
    own = {"LD_LIBRARY_PATH": str(place.programs / "lib"), "HOME": str(place.folder)}
    environment = {**os.environ, **own, "XDG_DATA_HOME": str(place.folder), "XDG_CONFIG_HOME": str(place.folder)}
    checked = subprocess.run(proxy.check, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    trust = ssl.create_default_context(cafile=str(place.certificate))
    words = {"ssl": trust, "server_hostname": NAME} if proxy.tls else {}
    with (place.folder / "output").open("wb") as output:
        process = subprocess.Popen(proxy.run, env=environment, stdout=output, stderr=output)
    client: Client | None = None
    try:
        while client is None:
            assert process.poll() is None, (place.folder / "output").read_text()
            with contextlib.suppress(OSError):
                client = Client(*await asyncio.open_connection("127.0.0.1", proxy.port, **words))  # type: ignore[arg-type]
            await asyncio.sleep(0.02)
        yield client
    finally:
        # some wait for their clients before they end
        if client is not None:
            client.leave()
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


@contextlib.asynccontextmanager
async def before(place: Place, name: str, **sections: Any) -> AsyncIterator[tuple[Bench, Client]]:
    """A frontdoor, a proxy before it, and a client of that."""
    async with bench(place.folder, **sections) as run:
        proxy = PROXIES[name](place, run.port, free_port())
        async with standing(place, proxy) as client:
            yield run, client


def request(method: str, path: str, body: bytes = b"", *fields: str) -> bytes:
    head = "".join(f"{field}\r\n" for field in (f"Host: {NAME}", f"Content-Length: {len(body)}", *fields))
    return f"{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\n{head}\r\n".encode() + body


@pytest.mark.parametrize("name", PROXIES)
@on_uvloop
async def test_each_event_arrives_by_itself(place: Place, name: str) -> None:
    async with before(place, name) as (run, client):
        arrived = asyncio.Event()

        async def stream(call: Call) -> None:
            await call.begin_events()
            for number in range(EVENTS):
                await call.event(f"number {number}")
                await arrived.wait()
                arrived.clear()
            await call.send(b"0\r\n\r\n")

        run.engine.script = stream
        client.send(request("POST", CHAT, b'{"stream": true}'))
        for number in range(EVENTS):
            # What is held back never comes, since the next one waits for it.
            await client.reader.readuntil(b"data: number %d\n\n" % number)
            arrived.set()
        assert b"data" not in await client.reader.readuntil(b"0\r\n\r\n")


@pytest.mark.parametrize("name", PROXIES)
@on_uvloop
async def test_what_the_frontdoor_says_itself_arrives(place: Place, name: str) -> None:
    async with before(place, name, state={"open": False, "phase": "stopped"}) as (_frontdoor, client):
        client.send(request("POST", CHAT, b"{}"))
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "stopped")
        assert answer.header("Retry-After")


@pytest.mark.parametrize("name", PROXIES)
@on_uvloop
async def test_large_bodies_pass(place: Place, name: str) -> None:
    async with before(place, name) as (run, client):
        body = json.dumps({"x": "y" * 3_000_000}).encode()
        client.send(request("POST", CHAT, body))
        assert (await client.answer()).status == 200
        assert run.engine.requests[0].body == body


async def nothing(call: Call) -> None:
    """Read a long prompt."""
    await call.gone.wait()


async def tokens(call: Call) -> None:
    """Generate until nobody listens."""
    await call.begin_events()
    while not call.gone.is_set():
        await call.event("token")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("script", [nothing, tokens], ids=["before the first token", "between tokens"])
@pytest.mark.parametrize("name", PROXIES)
@on_uvloop
async def test_a_client_that_leaves_ends_its_generation(place: Place, name: str, script: Script) -> None:
    async with before(place, name) as (run, client):
        run.engine.script = script
        client.send(request("POST", CHAT, b"{}"))
        await until(lambda: run.engine.active)
        if script is tokens:
            await client.reader.readuntil(b"data: token\n\n")
        client.leave()
        await run.settled()
        assert run.engine.lost == 1


@pytest.mark.parametrize("name", ["nginx", "haproxy", "caddy"])
@on_uvloop
async def test_who_comes_through_it_needs_a_key_to_look(place: Place, name: str) -> None:
    keys = {"keys_file": write_keys(place.folder / "keys.toml", alice="s-alice")}
    async with before(place, name, auth=keys) as (_frontdoor, client):
        client.send(request("GET", "/status"))
        assert (await client.answer()).status == 401
        client.send(request("GET", "/status", b"", "Authorization: Bearer s-alice"))
        assert (await client.answer()).status == 200
