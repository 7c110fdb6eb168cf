# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever bytes a head consists of, it is refused, or understood as every other reader will understand it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frontdoor.http.head import HeadError, ResponseError, request_head, response_head

NAMES = st.sampled_from(
    [b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"X-A", b"Expect", b"Upgrade", b"content-length"]
)
VALUES = st.one_of(
    st.sampled_from(
        [b"x", b"5", b"0", b"chunked", b"close", b"identity", b"100-continue", b"h2c", b"5, 5", b"content-length"]
    ),
    st.binary(max_size=6),
)
BREAKS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\n ", b"\r\n\t", b"\0"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from([b": ", b":", b" :", b":\t"]), VALUES, BREAKS), max_size=6)
STARTS = st.sampled_from(
    [
        b"POST /v1/chat/completions HTTP/1.1\r\n",
        b"GET /v1/models HTTP/1.1\r\n",
        b"GET /v1/models HTTP/1.0\r\n",
        b"POST /v1/completions HTTP/1.1\n",
        b"GET  /x HTTP/1.1\r\n",
        b"GET http://h/x HTTP/1.1\r\n",
    ]
)
FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*\r\n")


def joined(start: bytes, fields: list[tuple[bytes, bytes, bytes, bytes]]) -> bytes:
    return start + b"".join(b"".join(field) for field in fields) + b"\r\n"


@pytest.mark.interpreted
@given(start=STARTS, fields=FIELDS)
@settings(max_examples=300)
@example(b"POST /v1/completions HTTP/1.1\r\n", [(b"Host", b":", b"x", b"\r\n"), (b"Content-Length", b":", b"5", b"\n")])
def test_what_is_accepted_is_sent_on_as_one_unambiguous_head(
    start: bytes, fields: list[tuple[bytes, bytes, bytes, bytes]]
) -> None:
    raw = joined(start, fields)
    if raw.find(b"\r\n\r\n") != len(raw) - 4:
        return
    try:
        head = request_head(raw, 100, True)
    except HeadError:
        return
    names = [name.lower() for name, _, _, _ in fields]
    # one way to tell where the body ends, and no line that another reader would split elsewhere
    assert names.count(b"content-length") <= 1
    assert not (b"content-length" in names and b"transfer-encoding" in names)
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")
    assert head.line.count(b"\r\n") == 1
    assert FIELD.sub(b"", head.fields) == b""
    sent = {line.partition(b":")[0].lower() for line in head.fields.split(b"\r\n")}
    assert not sent & {b"content-length", b"transfer-encoding", b"connection", b"host", b"expect", b"upgrade"}


@given(fields=FIELDS)
@settings(max_examples=150)
def test_no_answer_of_the_engine_breaks_the_client_s_connection(
    fields: list[tuple[bytes, bytes, bytes, bytes]],
) -> None:
    raw = joined(b"HTTP/1.1 200 OK\r\n", fields)
    if raw.find(b"\r\n\r\n") != len(raw) - 4:
        return
    try:
        head = response_head(raw, False, True)
    except ResponseError:
        return
    wire = head.wire.lower()
    assert wire.count(b"\r\ncontent-length:") + wire.count(b"\r\ntransfer-encoding:") <= 1
    assert b"\r\n\r\n" not in head.wire
