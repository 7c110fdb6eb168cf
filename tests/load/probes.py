# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements without load: how long a start takes, how fast a client that leaves is gone, who a body holds up."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time

from rig import CHAT, PROBE_PORT, PROBED_PORT, Installed, Rig

_REQUEST = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()
_EVENT = b"data: {}\n\n"
_BEGIN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\n" + _EVENT + b"\r\n"
)

_HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
# What bodies are filled with: a picture, a text, and what takes the most work.
FILLINGS = {
    "picture": b"iVBORw0KGgoAAAAN",
    "text": 'Größe: {"a": [1, 2]}\\n'.encode().replace(b'"', b'\\"'),
    "escapes": b'\\"',
    "backslashes": b"\\\\",
    "quotation marks": b'",","',
    "messages": b'"},{"role":"user","content":"',
    "lists": b'",[],"',
    "members": b'","a":"',
    "numbers": b'",1,"',
    "short texts": b'","' + b"x" * 500,
}


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


def health_ms(rig: Rig, version: Installed, megabytes: int) -> dict[str, float]:
    """Longest wait for /health in ms beside bodies of so many MB, by what they are filled with."""
    with (
        rig.beside_the_proxy(),
        socket.create_server(("127.0.0.1", PROBE_PORT)) as engine,
        rig.frontdoor(version, PROBED_PORT, PROBE_PORT, 8),
    ):
        threading.Thread(target=_engine, args=(engine,), daemon=True).start()
        return {name: max(_waits(filling, megabytes * 1_000_000)) * 1000 for name, filling in FILLINGS.items()}


def _waits(filling: bytes, size: int) -> list[float]:
    """Seconds that /health took, one after the other, until a body was answered."""
    body = b'{"messages":[{"role":"user","content":"%b"}]}' % (filling * (size // len(filling)))
    done, waits = threading.Event(), list[float]()

    def send() -> None:
        try:
            with socket.create_connection(("127.0.0.1", PROBED_PORT), 60) as client, contextlib.suppress(OSError):
                client.sendall(
                    b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body))
                )
                client.sendall(body)
                client.recv(65536)
        finally:
            done.set()

    with socket.create_connection(("127.0.0.1", PROBED_PORT), 60) as prober:
        sender = threading.Thread(target=send)
        sender.start()
        while not (done.is_set() and waits):
            began = time.monotonic()
            prober.sendall(_HEALTH)
            prober.recv(65536)
            waits.append(time.monotonic() - began)
            time.sleep(0.001)
        sender.join()
    return waits


def _engine(server: socket.socket) -> None:
    """Read each request whole, and answer it."""
    with contextlib.suppress(OSError):
        while True:
            link, _ = server.accept()
            threading.Thread(target=_answer, args=(link,), daemon=True).start()


def _answer(link: socket.socket) -> None:
    with link, contextlib.suppress(OSError):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = link.recv(65536)
            if not piece:
                return
            data += piece
        head, _end, rest = data.partition(b"\r\n\r\n")
        left = int((head.lower().partition(b"content-length:")[2].split() or [b"0"])[0]) - len(rest)
        while left > 0 and (piece := link.recv(1 << 20)):
            left -= len(piece)
        link.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
