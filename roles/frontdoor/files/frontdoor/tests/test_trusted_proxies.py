# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy of the site says for whom it asks; anybody else is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import Hold, bench, on_loop

CHAT = "/v1/chat/completions"
PROXY, STRANGER = "127.0.0.9", "127.0.0.5"


@on_loop
async def test_the_engine_hears_who_asks(tmp_path: Path) -> None:
    async with bench(tmp_path, listen={"trusted_proxies": [PROXY]}) as run:
        proxy, stranger = await run.client(address=PROXY), await run.client(address=STRANGER)
        for client, fields, expected in (
            (proxy, ["X-Forwarded-For: 192.0.2.7"], "192.0.2.7"),
            # what a client invents stands before what the proxy adds
            (proxy, ["X-Forwarded-For: 10.0.0.1, 192.0.2.8"], "192.0.2.8"),
            (proxy, ["X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 192.0.2.9"], "192.0.2.9"),
            (proxy, ["X-Forwarded-For: ::ffff:192.0.2.6"], "192.0.2.6"),
            (proxy, ["X-Forwarded-For: 2001:db8::1"], "2001:db8::1"),
            # it asks for itself, whoever it asked for before
            (proxy, [], PROXY),
            (proxy, ["X-Forwarded-For: nobody\xe4"], PROXY),
            (stranger, ["X-Forwarded-For: 192.0.2.7"], STRANGER),
        ):
            assert (await client.ask("POST", CHAT, b"{}", *fields)).status == 200
            assert run.engine.requests[-1].header("X-Forwarded-For") == expected


@on_loop
async def test_clients_of_a_proxy_take_turns(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    async with bench(tmp_path, state={"limits": limits}, listen={"trusted_proxies": [PROXY]}) as run:
        hold = Hold()
        run.engine.script = hold
        order = ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"]
        clients = [await run.client(address=PROXY) for _ in order]
        for count, (client, address) in enumerate(zip(clients, order, strict=True), 1):
            client.request("POST", CHAT, b"{}", f"X-Forwarded-For: {address}")
            await run.arrived(count)
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        asked = [seen.header("X-Forwarded-For") for seen in run.engine.requests if seen.line.startswith("POST")]
        # the other client does not wait behind all requests of the first one
        assert asked.index("192.0.2.2") < 3


@pytest.mark.interpreted
@on_loop
async def test_limits_of_one_address_are_not_for_the_proxy(tmp_path: Path) -> None:
    limits = {"max_connections_per_address": 1}
    async with bench(tmp_path, listen={"trusted_proxies": [PROXY]}, limits=limits) as run:
        proxies = [await run.client(address=PROXY) for _ in range(3)]
        assert [(await client.ask("GET", "/health")).status for client in proxies] == [200] * 3
        strangers = [await run.client(address=STRANGER) for _ in range(2)]
        assert sorted([(await client.ask("GET", "/health")).status for client in strangers]) == [200, 503]


@pytest.mark.interpreted
@on_loop
async def test_networks_are_those_of_clients(tmp_path: Path) -> None:
    listen = {"trusted_proxies": [PROXY], "allowed_networks": ["192.0.2.0/24"]}
    async with bench(tmp_path, listen=listen) as run:
        proxy = await run.client(address=PROXY)
        assert (await proxy.ask("POST", CHAT, b"{}", "X-Forwarded-For: 192.0.2.7")).status == 200
        # its own checks
        assert (await proxy.ask("GET", "/ready")).status == 200
        refused = await proxy.ask("POST", CHAT, b"{}", "X-Forwarded-For: 198.51.100.7")
        assert (refused.status, refused.json["error"]["code"]) == (403, "address_not_allowed")
        assert len(run.engine.requests) == 1
