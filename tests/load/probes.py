# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two measurements that need no load: how long a start takes, and how fast a client that leaves is gone."""

from __future__ import annotations

import socket
import statistics
import time

from rig import CHAT, PROBE_PORT, PROBED_PORT, Installed, Rig

_REQUEST = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
_EVENT = b"data: {}\n\n"
_BEGIN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\n" + _EVENT + b"\r\n"
)


def start_s(rig: Rig, version: Installed, count: int = 7) -> float:
    """Median of seconds from the start of the process to the first accepted connection."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        with rig.frontdoor(version, PROBED_PORT, PROBE_PORT, 8):
            took.append(time.monotonic() - began)
    return statistics.median(took)


def cancel_ms(rig: Rig, version: Installed, count: int = 100) -> dict[str, float]:
    """Longest time in ms until the engine sees that a client left, before the first byte and in a stream."""
    worst = {}
    with socket.create_server(("127.0.0.1", PROBE_PORT)) as engine, rig.frontdoor(version, PROBED_PORT, PROBE_PORT, 8):
        engine.settimeout(5)
        for moment in ("prefill", "stream"):
            worst[moment] = max(_leave(engine, moment) for _ in range(count))
    return worst


def _leave(engine: socket.socket, moment: str) -> float:
    client = socket.create_connection(("127.0.0.1", PROBED_PORT), 5)
    client.sendall(_REQUEST)
    link = _generation(engine)
    if moment == "stream":
        link.sendall(_BEGIN)
        seen = b""
        while _EVENT not in seen:
            seen += client.recv(4096)
    time.sleep(0.002)
    left = time.monotonic()
    client.close()
    try:
        while link.recv(4096):
            pass
    except ConnectionResetError:
        pass
    took = time.monotonic() - left
    link.close()
    return took * 1000


def _generation(engine: socket.socket) -> socket.socket:
    """The connection on which a generation arrives; questions about health are turned away."""
    while True:
        link, _ = engine.accept()
        link.settimeout(5)
        if link.recv(4096).startswith(b"POST"):
            return link
        link.close()
