# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients by their network: who is not among those allowed is told so, and nothing of it reaches the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit import Client, bench, on_loop

from frontdoor.config import ConfigError, from_table
from frontdoor.networks import allowed, networks


async def client_from(address: str, port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), limit=2**20))


@pytest.mark.parametrize(
    ("address", "entries", "expected"),
    [
        ("10.1.2.3", ["10.0.0.0/8"], True),
        ("11.1.2.3", ["10.0.0.0/8"], False),
        ("192.168.7.7", ["192.168.7.7"], True),
        ("192.168.7.8", ["192.168.7.7"], False),
        ("::ffff:10.1.2.3", ["10.0.0.0/8"], True),
        ("::ffff:10.1.2.3", ["::/0"], False),
        ("fd00::1", ["10.0.0.0/8", "fd00::/8"], True),
        ("fe80::1%eth0", ["link-local"], True),
        ("2001:db8::1", ["any"], True),
        ("127.0.0.9", ["localhost"], True),
        ("local", ["any"], False),
    ],
)
def test_an_address_is_in_a_network_or_not(address: str, entries: list[str], expected: bool) -> None:
    assert allowed(address, networks(entries)) is expected


@pytest.mark.parametrize("entry", ["10.0.0/8", "10.0.0.1/8", "lan", ""])
@pytest.mark.parametrize("name", ["allowed_networks", "trusted_proxies"])
def test_what_is_no_network_is_a_fault_of_the_configuration(name: str, entry: str) -> None:
    with pytest.raises(ConfigError, match=rf"listen\.{name}: .*such as 192\.168\.0\.0/16"):
        from_table({"listen": {name: [entry]}})


@on_loop
async def test_only_allowed_networks_are_served(tmp_path: Path) -> None:
    async with bench(tmp_path, listen={"allowed_networks": ["127.0.0.8/30", "10.0.0.0/8"]}) as run:
        friend = await client_from("127.0.0.9", run.port)
        assert (await friend.chat()).status == 200
        stranger = await client_from("127.0.0.5", run.port)
        stranger.request("POST", "/v1/chat/completions", b"{}")
        refused = await stranger.answer()
        assert (refused.status, refused.json["error"]["code"]) == (403, "address_not_allowed")
        assert await stranger.closed()
        # the switch asks from the host itself
        own = await run.client()
        assert (await own.ask("GET", "/ready")).status == 200
        assert run.outcomes() == {"ok": 1}
        assert run.app.ledger.metrics.errors["address_not_allowed"] == 1
        for client in (friend, stranger, own):
            client.leave()


@on_loop
async def test_without_networks_everybody_is_served(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await client_from("127.0.0.5", run.port)
        assert (await client.chat()).status == 200
        client.leave()
