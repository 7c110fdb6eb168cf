# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions of the frontdoor's own to the engine: small answers, read whole, each over a connection of its own."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from frontdoor.http.head import END, ResponseError, ResponseHead, parse_response_head
from frontdoor.http.relay import relay_for
from frontdoor.http.upstream import Pool

_MAX_BYTES = 4 * 1024 * 1024


class Fetched(NamedTuple):
    """An answer; `status` is 0 where there was none and `error` says why. `connected`: whether anybody listened."""

    status: int
    body: bytes
    error: str = ""
    connected: bool = True
    head: ResponseHead | None = None
    #: it listens, and did not answer in time
    timed_out: bool = False


_CUT = "the engine closed the connection before the end of its answer"


async def fetch(pool: Pool, path: str, timeout_s: float, fields: bytes = b"") -> Fetched:
    """The answer to one GET; `fields` are whole header lines that are sent along."""
    request = b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path.encode("latin-1"), pool.host_line, fields)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*pool.address)
            writer.write(request)
            return await _answer(reader)
    except TimeoutError:
        connected = writer is not None
        return Fetched(0, b"", f"no answer within {timeout_s:g} s", connected, timed_out=connected)
    except ResponseError as exc:
        return Fetched(0, b"", str(exc))
    except OSError as exc:
        why = f"the engine refused the connection: {exc.strerror or exc}" if writer is None else _CUT
        return Fetched(0, b"", why, writer is not None)
    finally:
        if writer is not None:
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> Fetched:
    head, rest = await _read_head(reader)
    relay = relay_for(head, client_chunks=False)
    body = relay.feed(rest)
    while not relay.complete:
        data = await reader.read(_MAX_BYTES)
        if not data:
            if not relay.whole:
                raise ResponseError(_CUT)
            break
        body += relay.feed(data)
        if len(body) > _MAX_BYTES:
            raise ResponseError("the answer is too long")
    return Fetched(head.status, body, head=head)


async def _read_head(reader: asyncio.StreamReader) -> tuple[ResponseHead, bytes]:
    """The head of the answer, after those that come before it, and what was read behind it."""
    data = b""
    while True:
        while (end := data.find(END) + 4) < 4:
            if len(data) > _MAX_BYTES:
                raise ResponseError("the response head is too long")
            more = await reader.read(_MAX_BYTES)
            if not more:
                raise ResponseError(_CUT)
            data += more
        head = parse_response_head(data[:end], to_head=False, drop_cors=False)
        data = data[end:]
        if head.status >= 200:
            return head, data
