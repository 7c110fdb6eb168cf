# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP without proxies, with bounded answers, and with limits that hold for the whole of a request."""

from __future__ import annotations

import json
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import urlsplit

from ..words.effects import Upload
from ..words.types import Reply

QUIET_S = 1.0
TOGETHER_S = 5.0  # so long the first waits for the last to be there
CONNECT_S = 5.0
PIECE = 65536
MAX_ANSWER = 32 * 2**20  # bytes; a stream takes about 250 for each token


class HttpClient:
    """Answers as Reply; never raises for the network's sake. Who is asked is this very host, so the name in a
    frontdoor's certificate is not looked at, or another node, whose answers prove themselves.

    Every request has a connection of its own: an engine may close one without having said so, and the next request on
    it would then look like a failure of the engine. It is cut when the limit is over, however the answer drips.

    waiting: entered while an answer is waited for.
    """

    def __init__(self, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._waiting = waiting

    def get(self, url: str, timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("GET", url, timeout_s)

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        if not urls:
            return []
        with self._waiting(), ThreadPoolExecutor(len(urls)) as threads:
            return list(threads.map(lambda url: self._ask("GET", url, timeout_s), urls))

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("POST", url, timeout_s, json.dumps(body).encode(), "application/json")

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        with self._waiting():
            return self._ask("POST", url, timeout_s, *_form(fields, file))

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        replies: queue.SimpleQueue[tuple[int, Reply, float]] = queue.SimpleQueue()
        together = threading.Barrier(len(bodies))
        texts = [json.dumps(body).encode() for body in bodies]

        def ask(index: int) -> None:
            with suppress(threading.BrokenBarrierError):
                together.wait(TOGETHER_S)
            begun = time.monotonic()
            try:
                reply = self._ask("POST", url, timeout_s, texts[index], "application/json")
            except Exception as error:  # an answer that never comes would be waited for
                reply = Reply(0, error=f"{type(error).__name__}: {error}"[:200])
            replies.put((index, reply, time.monotonic() - begun))

        # Nobody waits for them: they hold nothing but a connection, which ends with the engine at the latest.
        for index in range(len(bodies)):
            threading.Thread(target=ask, args=(index,), daemon=True).start()
        for _body in bodies:
            come: tuple[int, Reply, float] | None = None
            while come is None:
                with self._waiting(), suppress(queue.Empty):
                    come = replies.get(timeout=QUIET_S)
                yield come

    def _ask(self, method: str, url: str, timeout_s: float, body: bytes | None = None, kind: str = "") -> Reply:
        begun, late = time.monotonic(), threading.Event()
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Connection": "close", "Accept": "*/*"} | ({"Content-Type": kind} if body is not None else {})
        connection = connection_to(parts.scheme, parts.hostname or "", parts.port, min(CONNECT_S, timeout_s))
        timer: threading.Timer | None = None
        try:
            connection.connect()
            link = connection.sock
            link.settimeout(timeout_s)
            timer = threading.Timer(max(0.0, timeout_s - (time.monotonic() - begun)), _cut, (link, late))
            timer.daemon = True
            timer.start()
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                reply = _read(response, begun)
            return Reply(0, error="timeout") if late.is_set() else reply
        except TimeoutError:
            return Reply(0, error="timeout")
        except ConnectionRefusedError:
            return Reply(0, error="refused")
        except (OSError, HTTPException, ValueError) as error:
            words = f"the connection broke: {type(error).__name__}: {error}"[:200]
            return Reply(0, error="timeout" if late.is_set() else words)
        finally:
            if timer is not None:
                timer.cancel()
            connection.close()


def connection_to(scheme: str, host: str, port: int | None, limit_s: float) -> HTTPConnection:
    if scheme != "https":
        return HTTPConnection(host, port, timeout=limit_s)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=limit_s, context=context)


def _cut(link: socket.socket, late: threading.Event) -> None:
    """End whatever waits for the connection: a limit of the socket alone begins anew with each byte."""
    late.set()
    with suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)


def _read(response: HTTPResponse, begun: float) -> Reply:
    data, arrivals, left = bytearray(), [], response.length
    while len(data) <= MAX_ANSWER and left != 0:
        chunk = response.read1(PIECE if left is None else min(PIECE, left))
        if not chunk:
            if left:
                raise IncompleteRead(bytes(data[-80:]), left)
            break
        left = None if left is None else left - len(chunk)
        data += chunk
        arrivals.append((time.monotonic() - begun, len(data)))
    return Reply(response.status, data.decode("utf-8", "replace"), arrivals=tuple(arrivals))


def _form(fields: Mapping[str, str], file: Upload) -> tuple[bytes, str]:
    """Return (a form with a file in its field `file`, its media type)."""
    edge = secrets.token_hex(16)
    begin = f"--{edge}\r\nContent-Disposition: form-data; name="
    parts = [f'{begin}"{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    head = f'{begin}"file"; filename="{file.name}"\r\nContent-Type: {file.kind}\r\n\r\n'
    body = "".join([*parts, head]).encode() + file.data + f"\r\n--{edge}--\r\n".encode()
    return body, f"multipart/form-data; boundary={edge}"
