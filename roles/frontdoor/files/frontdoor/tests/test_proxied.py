# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PROXY protocol: who asks is whom a trusted proxy of another host names before the first byte."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit import Bench, Client, bench, on_loop, on_uvloop
from test_reload import certify

PROXY = "127.0.0.2"
CHAT = "/v1/chat/completions"


def second(client: str, command: int = 0x21, more: bytes = b"") -> bytes:
    address = ipaddress.ip_address(client)
    family = 0x11 if address.version == 4 else 0x21
    body = address.packed * 2 + struct.pack("!HH", 40000, 443) + more
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", command, family, len(body)) + body


@contextlib.asynccontextmanager
async def proxied(tmp_path: Path, **sections: object) -> AsyncIterator[Bench]:
    listen = {"trusted_proxies": [PROXY], "proxy_protocol": True, "allowed_networks": ["10.0.0.0/8", "2001:db8::/32"]}
    async with bench(tmp_path, listen=listen, **sections) as run:
        yield run


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 40000 443\r\n", "10.1.2.3"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n", "2001:db8::1"),
        (second("10.1.2.3"), "10.1.2.3"),
        (second("::ffff:10.1.2.3"), "10.1.2.3"),
        (second("2001:db8::1", more=b"\x03\0\4abcd"), "2001:db8::1"),
    ],
)
@on_loop
async def test_the_engine_is_told_whom_the_proxy_names(tmp_path: Path, header: bytes, client: str) -> None:
    async with proxied(tmp_path) as run:
        door = await run.client(address=PROXY)
        # in pieces, the last one with the request
        door.send(header[:7])
        await asyncio.sleep(1)
        door.send(header[7:])
        for _ in range(2):
            # what the client claims itself counts for nothing
            assert (await door.ask("POST", CHAT, b"{}", "X-Forwarded-For: 10.9.9.9")).status == 200
        assert {seen.header("X-Forwarded-For") for seen in run.engine.requests} == {client}


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", second("10.1.2.3", command=0x20)])
@on_loop
async def test_a_proxy_may_ask_for_itself(tmp_path: Path, header: bytes) -> None:
    async with proxied(tmp_path) as run:
        door = await run.client(address=PROXY)
        door.send(header)
        assert (await door.ask("GET", "/health")).status == 200


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 10.1.2.3\r\n",
        b"PROXY TCP4 nonsense 10.0.0.1 1 2\r\n",
        b"PROXY " + b"x" * 200,
        second("10.1.2.3", command=0x31),
        second("10.1.2.3")[:14] + b"\0\1x",
        b"PROXY",
    ],
)
@on_loop
async def test_a_proxy_that_names_nobody_is_not_served(tmp_path: Path, start: bytes) -> None:
    async with proxied(tmp_path) as run:
        door = await run.client(address=PROXY)
        door.send(start)
        # the last one, when its time is over
        assert await door.closed()
        assert not run.app.connection_limiter.handshakes


@on_loop
async def test_only_trusted_proxies_of_other_hosts_speak_it(tmp_path: Path) -> None:
    async with proxied(tmp_path) as run:
        here = await run.client()
        assert (await here.ask("GET", "/health")).status == 200
        stranger = await run.client(address="127.0.0.3")
        stranger.send(second("10.1.2.3"))
        assert (await stranger.answer()).status in (400, 403)
        named = await run.client(address=PROXY)
        named.send(second("192.0.2.1"))
        assert (await named.ask("GET", "/health")).json["error"]["code"] == "address_not_allowed"


@on_uvloop
async def test_a_handshake_follows_the_header(tmp_path: Path) -> None:
    certify(tmp_path, "one")
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with proxied(tmp_path, tls={"cert_file": f"{tmp_path}/cert", "key_file": f"{tmp_path}/key"}) as run:
        door = await run.client(address=PROXY)
        door.send(second("10.1.2.3"))
        await door.writer.start_tls(trust)
        secure = Client(door.reader, door.writer)
        assert (await secure.ask("POST", CHAT, b"{}")).status == 200
        assert run.engine.requests[0].header("X-Forwarded-For") == "10.1.2.3"
        secure.leave()
