# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PROXY protocol, versions 1 and 2: for whom a proxy connects, said before the client's first byte."""

from __future__ import annotations

import asyncio
import socket
import struct
from ipaddress import ip_address

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_MOST = 107


async def source(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> str:
    """Return the client's address, empty where the proxy asks for itself; raise OSError or ValueError without a header.

    Nothing behind the header is read: a handshake may follow.
    """
    start = await _exactly(loop, accepted, len(_SIGNATURE))
    if start == _SIGNATURE:
        command, family, size = struct.unpack("!BBH", await _exactly(loop, accepted, 4))
        rest, length = await _exactly(loop, accepted, size), {1: 4, 2: 16}.get(family >> 4, 0)
        if command not in (0x20, 0x21) or size < 2 * length + 4 * bool(length):
            raise ValueError(f"a header of version 2 with the command {command:#x} and {size} bytes")
        return _plain(rest[:length]) if command == 0x21 and length else ""
    while not start.endswith(b"\r\n"):
        if len(start) >= _MOST:
            raise ValueError("no header")
        start += await _exactly(loop, accepted, 1)
    words = start.decode("ascii").split()
    if words[:2] == ["PROXY", "UNKNOWN"]:
        return ""
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise ValueError("no header")
    return _plain(words[2])


def _plain(address: str | bytes) -> str:
    """Return an IPv4 address as such, however it was written."""
    found = ip_address(address)
    return str(found if found.version == 4 else found.ipv4_mapped or found)


async def _exactly(loop: asyncio.AbstractEventLoop, accepted: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = await loop.sock_recv(accepted, size - len(read))
        if not more:
            raise ConnectionAbortedError("the header ends early")
        read += more
    return read
