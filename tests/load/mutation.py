# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that are almost right: the material of the fuzz trial."""

from __future__ import annotations

import random

from trial_config import ADMIN_KEY

# isort: split
from smuggling import SMUGGLING

_ADMIN = b"Authorization: Bearer " + ADMIN_KEY.encode() + b"\r\n"
SEEDS = [
    b'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{"messages":[]}',
    b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n',
    b"GET /v1/models/a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /version HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"OPTIONS /v1/responses HTTP/1.1\r\nHost: x\r\nOrigin: http://y\r\n\r\n",
    b"GET http://x/v1/models/b?c=d HTTP/1.0\r\n\r\n",
    b"GET http://[::1]:8000/v1/models/b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/admin/models HTTP/1.1\r\nHost: x\r\n" + _ADMIN + b"\r\n",
    b"POST /v1/admin/models/tiny-b/load HTTP/1.1\r\nHost: x\r\n" + _ADMIN + b"Content-Length: 2\r\n\r\n{}",
    b"POST /v1/admin/models/tiny-c/unload HTTP/1.1\r\nHost: x\r\n" + _ADMIN + b"Content-Length: 0\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
    b"GET /engine/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n",
    b'POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 34\r\n\r\n{"input":[],"model":"tiny-\\u0061"}',
]
TOKENS = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b"\0",
        b":",
        b"0",
        b"-1",
        b"+1",
        b"0x10",
        b"99999999999999999999",
        b"chunked",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
    ),
    *(
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"Host: y\r\n",
        b"X: " + b"y" * 5000 + b"\r\n",
    ),
    *(
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"/%2e%2e/",
        b"//",
        b"%00",
        b"GET ",
        b"POST ",
        b"0\r\n\r\n",
        b"5\r\nabcde\r\n",
        b";ext=1",
        b"\xff\xfe",
    ),
    b"GET /v1/models/smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
]
_KNOWN = list(SMUGGLING.values())


def with_field(data: bytes, field: str) -> bytes:
    """A request with one more header line, behind all others."""
    return data.replace(b"\r\n\r\n", b"\r\n%b\r\n\r\n" % field.encode(), 1) if field else data


def framed(rng: random.Random, path: str, body: bytes, fields: tuple[str, ...]) -> bytes:
    """A proper request with a body, in one of the ways to send one."""
    lines = ["Host: door", *fields]
    if rng.random() < 0.8:
        lines.append("Content-Type: application/json" + rng.choice(("", "", "; charset=utf-8")))
    if rng.random() < 0.2:
        lines.append("Expect: 100-continue")
    if rng.random() < 0.3:
        lines.append("Transfer-Encoding: chunked")
        body = chunked(rng, body)
    else:
        lines.append(f"Content-Length: {len(body)}")
    rng.shuffle(lines)
    return f"POST {path} HTTP/1.1\r\n".encode() + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def chunked(rng: random.Random, body: bytes) -> bytes:
    """A body in chunks, with or without extensions and trailers."""
    out, at = b"", 0
    while at < len(body):
        piece = body[at : at + rng.choice((1, 7, 300, 5000))]
        at += len(piece)
        out += b"%x%b\r\n%b\r\n" % (len(piece), rng.choice((b"", b"", b";a=b")), piece)
    return out + b"0\r\n" + rng.choice((b"", b"", b"X-Sum: 1\r\n")) + b"\r\n"


def mutate(rng: random.Random, request: bytes | None = None) -> bytes:
    """A request that was changed a few times at random; one of those known here unless it is given."""
    if request is None:
        request = rng.choice(SEEDS) if rng.random() < 0.7 else rng.choice(_KNOWN)
    data = bytearray(request)
    for _ in range(rng.randrange(6)):
        at, what = rng.randrange(len(data) + 1), rng.randrange(7)
        if what == 0 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        elif what == 1:
            data[at:at] = rng.choice(TOKENS)
        elif what == 2:
            del data[at : at + rng.randrange(1, 12)]
        elif what == 3:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        elif what == 4:
            data[at : at + rng.randrange(8)] = rng.choice(TOKENS)
        elif what == 5:
            data = data[:at] if rng.random() < 0.3 else data
        else:
            lines = bytes(data).split(b"\r\n")
            rng.shuffle(lines)
            data = bytearray(b"\r\n".join(lines))
        if not data:
            break
    return bytes(data)
