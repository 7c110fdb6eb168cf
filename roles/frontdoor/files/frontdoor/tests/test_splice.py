# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults are put into a body without touching another byte."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import bench, on_loop

from frontdoor.splice import NotAnObject, ObjectDefaults, members

NAME = "chat_template_kwargs"
OFF = {"enable_thinking": False}


def default_object(body: bytes, name: str, defaults: dict[str, Any]) -> bytes:
    return b"".join(ObjectDefaults(name, defaults).pieces(body))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{}", '{"chat_template_kwargs":{"enable_thinking":false}}'),
        (" { } ", ' {"chat_template_kwargs":{"enable_thinking":false} } '),
        ('{"a" : 1.0 }\n', '{"chat_template_kwargs":{"enable_thinking":false},"a" : 1.0 }\n'),
        ('{"chat_template_kwargs": null, "b":1}', '{"chat_template_kwargs": {"enable_thinking":false}, "b":1}'),
        ('{"chat_template_kwargs": {}}', '{"chat_template_kwargs": {"enable_thinking":false}}'),
        ('{"chat_template_kwargs": { "x":1}}', '{"chat_template_kwargs": {"enable_thinking":false, "x":1}}'),
        (
            '{"m":"say \\"chat_template_kwargs\\": {}"}',
            '{"chat_template_kwargs":{"enable_thinking":false},"m":"say \\"chat_template_kwargs\\": {}"}',
        ),
        (
            '{"m":{"chat_template_kwargs":{}}}',
            '{"chat_template_kwargs":{"enable_thinking":false},"m":{"chat_template_kwargs":{}}}',
        ),
        (
            '{"chat\\u005ftemplate_kwargs":{"x":1}}',
            '{"chat_template_kwargs":{"enable_thinking":false},"chat\\u005ftemplate_kwargs":{"x":1}}',
        ),
        (
            ' {"chat\\u005ftemplate_kwargs":{"x":1}}',
            ' {"chat\\u005ftemplate_kwargs":{"enable_thinking":false,"x":1}}',
        ),
    ],
)
def test_where_the_defaults_go(body: str, expected: str) -> None:
    assert default_object(body.encode(), NAME, OFF).decode() == expected


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "[]", "null", '"x"', "1", "{", '{"a":1', "}", '\ufeff{"a":1}'),
        *('{"chat_template_kwargs": "x"}', '{"chat_template_kwargs": 1}', '{"chat_template_kwargs": [1]}'),
        *(
            '{"chat_template_kwargs": }',
            '{"chat_template_kwargs" 1}',
            '{"chat_template_kwargs":1,}',
            '{chat "chat_template_kwargs"}',
        ),
    ],
)
def test_what_is_left_alone(body: str) -> None:
    assert default_object(body.encode(), NAME, OFF) == body.encode()


def test_the_client_wins_key_by_key() -> None:
    body = b'{"chat_template_kwargs": {"enable_thinking": true}, "model": "m"}'
    assert json.loads(default_object(body, NAME, {"enable_thinking": False, "style": "x"})) == {
        "chat_template_kwargs": {"enable_thinking": True, "style": "x"},
        "model": "m",
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text() | st.just(NAME), VALUES, max_size=6)


@settings(max_examples=400, deadline=None)
@given(content=OBJECTS, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_object_keeps_its_meaning(content: dict[str, object], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = {m.name: json.loads(body[m.start : m.end]) for m in members(body)}
    assert found == content
    result = default_object(body, NAME, OFF)
    given_value = content.get(NAME)
    if given_value is None:
        assert json.loads(result) == {**content, NAME: OFF}
    elif isinstance(given_value, dict):
        assert json.loads(result) == {**content, NAME: {**OFF, **given_value}}
    else:
        assert result == body


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\\\ a1', max_size=60).map(str.encode))
def test_no_bytes_break_the_walk(body: bytes) -> None:
    with contextlib.suppress(NotAnObject):
        list(members(body))
    default_object(body, NAME, OFF)


@on_loop
async def test_the_profile_s_defaults_reach_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"request": {NAME: OFF}}) as run:
        client = await run.client()
        await client.ask("POST", "/v1/chat/completions", b'{"a":1}')
        await client.ask("POST", "/v1/completions", b'{"a":1}')
        client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\n"
            b'{"a":1}'
        )
        await client.answer()
        changed, other_path, other_type = run.engine.requests
        assert json.loads(changed.body) == {"a": 1, NAME: OFF}
        assert changed.header("Content-Length") == str(len(changed.body))
        assert other_path.body == other_type.body == b'{"a":1}'
