# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions of the frontdoor's own to the engine: small answers, read whole, each over a connection of its own."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from frontdoor.http.head import END, ResponseError, response_head
from frontdoor.http.relay import relay_for
from frontdoor.http.upstream import Pool

_MAX_BYTES = 4 * 1024 * 1024


class Fetched(NamedTuple):
    """An answer; `status` is 0 where there was none, and `error` says why."""

    status: int
    body: bytes = b""
    error: str = ""
    #: it listens, and did not answer in time
    timed_out: bool = False


async def fetch(pool: Pool, path: str, timeout_s: float) -> Fetched:
    """Return the answer to one GET."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(*pool.address, limit=_MAX_BYTES)
            writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), pool.host_line))
            return await _answer(reader)
    except TimeoutError:
        return Fetched(0, error=f"no answer within {timeout_s:g} s", timed_out=writer is not None)
    except (ResponseError, asyncio.LimitOverrunError) as exc:
        return Fetched(0, error=str(exc))
    except (OSError, EOFError) as exc:
        if writer is None:
            return Fetched(0, error=f"the engine refused the connection: {getattr(exc, 'strerror', None) or exc}")
        return Fetched(0, error="the engine closed the connection before the end of its answer")
    finally:
        if writer is not None:
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> Fetched:
    while (head := response_head(await reader.readuntil(END), False, False)).status < 200:
        # an answer before the answer
        continue
    relay = relay_for(head, client_chunks=False)
    body = b""
    while not relay.complete and (data := await reader.read(_MAX_BYTES)):
        body += relay.feed(data)
        if len(body) > _MAX_BYTES:
            raise ResponseError("the answer is too long")
    if not (relay.complete or relay.whole):
        raise EOFError
    return Fetched(head.status, body)
