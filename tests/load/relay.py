#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The floor of any proxy on uvloop: passes bytes on and parses nothing. relay.py PORT ENGINE_PORT."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import cast

import uvloop


class Engine(asyncio.Protocol):
    """The way to the engine of one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses
        self.client.to_engine = cast(asyncio.Transport, transport).write
        self.client.to_engine(self.client.waiting)

    def data_received(self, data: bytes) -> None:
        self.client.to_client(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.transport.close()


class Client(asyncio.Protocol):
    """A client; its connection to the engine is made when it comes, and stays."""

    transport: asyncio.Transport
    to_client: Callable[[bytes], None]

    def __init__(self) -> None:
        self.waiting = b""
        self.to_engine: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.to_client = self.transport.write
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: Engine(self), "127.0.0.1", int(sys.argv[2]))
        except OSError:
            # the engine is there only while a load runs
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.to_engine is None:
            self.waiting += data
        else:
            self.to_engine(data)


async def main() -> None:
    """Listen until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Client, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()
    uvloop.run(main())
