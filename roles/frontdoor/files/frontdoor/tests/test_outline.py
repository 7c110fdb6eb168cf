# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A body is read by its outline as it would be read whole, in whatever pieces it comes."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulings import CHAT, TEXT

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy.asked import permits_of
from frontdoor.policy.document import BROKEN, Document
from frontdoor.policy.editing import policies
from frontdoor.policy.outline import MARK, SHORT, Outline

LONG = 600
# what is seldom read, before what is, so that outlines are made of it
FILLING = {"filling": ["x" * SHORT]}
LETTERS = st.text(st.sampled_from('"\\\n/a:,[{é\u2028😀'), min_size=1, max_size=6)
# of any length around the one from which a text is cut
TEXTS = st.builds(lambda text, size: (text * size)[:size], LETTERS, st.integers(0, 5) | st.integers(500, LONG))
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=6)


def fed(body: bytes, cuts: list[int]) -> Document:
    """The document of a body that comes in pieces."""
    outline = Outline()
    ends = sorted({min(cut, len(body)) for cut in cuts})
    for start, end in zip([0, *ends], [*ends, len(body)], strict=True):
        outline.feed(body[start:end])
    return Document(body, outline)


@settings(max_examples=400)
@given(
    content=OBJECTS,
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    cuts=st.lists(st.integers(SHORT, SHORT + 4000), max_size=6),
)
def test_any_body_is_read_in_any_pieces(
    content: dict[str, Any], indent: int | None, ascii_only: bool, cuts: list[int]
) -> None:
    content = FILLING | content
    body = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode()
    document = fed(body, cuts)
    read = document.content
    assert not isinstance(read, Refusal)
    written = document.written(read)
    assert not isinstance(written, Refusal)
    assert json.loads(written) == content
    assert len(json.dumps(read)) < len(body)
    assert MARK.encode() not in written
    spelt = orjson.dumps(content)
    assert document.spelt(orjson.dumps(read), 10**6) == spelt
    assert spelt.startswith(document.spelt(orjson.dumps(read), SHORT + 100))
    for text, original in zip(read.values(), content.values(), strict=True):
        if isinstance(text, str):
            assert document.whole(text, 10**6) == original
            assert original.startswith(document.whole(text, 100)[:100])


@settings(max_examples=200)
@given(st.text('{}[]":,\\ a1', max_size=60).map(str.encode), st.lists(st.integers(0, 60), max_size=4))
def test_what_is_no_json_stays_none(broken: bytes, cuts: list[int]) -> None:
    body = b'{"filling":"%b",%b' % (b"x" * SHORT, broken)
    try:
        whole = json.loads(body)
    except ValueError:
        whole = None
    content = fed(body, [SHORT + 13 + cut for cut in cuts]).content
    if whole is None:
        assert content is BROKEN
    elif not isinstance(content, Refusal):
        assert content.keys() == whole.keys()


@pytest.mark.interpreted
def test_a_picture_passes_whatever_stands_beside_it() -> None:
    """40 MB of base64 and one letter that is not in ASCII, and a source text of colons."""
    picture = b"data:image/png;base64," + b"iVBORw0K" * 5_000_000
    source = b"a: [b, c]; " * 40_000
    body = b'{"messages":[{"role":"user","content":[{"type":"text","text":"caf\xc3\xa9 %b"},' % source
    body += b'{"type":"image_url","image_url":{"url":"%b"}}]}]}' % picture
    rules = Rules(max_tokens_cap=9, allowed_media_domains=())
    sent = policies(rules, {"served_model_name": "tiny-a"})[CHAT].apply(Document(body))
    assert sent == body[:-1] + b',"max_tokens":9}'
    fetched = body.replace(b"data:image", b"http:image", 1)
    for refused, told in ((fetched, None), (body, TEXT)):
        assert isinstance(policies(rules, told)[CHAT].apply(Document(refused)), Refusal)


def test_no_length_hides_a_number_or_a_name() -> None:
    filling = b'{"a":"%b",' % (b"x" * SHORT)
    assert permits_of(CHAT, Document(filling + b'"n":"%b9"}' % (b"0" * 600)), 8) != 1
    assert permits_of(CHAT, Document(filling + b'"\\u006e":9}'), 9) == 9


def test_a_client_cannot_name_what_was_cut() -> None:
    body = b'{"a":"%b","b":"%b0>"}' % (b"x" * SHORT, MARK.encode())
    content = Document(body).content
    assert isinstance(content, Refusal)
    assert content.code == "body_too_intricate"
