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

from frontdoor.policy import splice
from frontdoor.policy.splice import NotAnObject, ObjectDefaults, Scanner, members

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
OBJECTS = st.dictionaries(st.text(max_size=60) | st.just(NAME), VALUES, max_size=6)


@settings(max_examples=400, deadline=None)
@given(content=OBJECTS, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_object_keeps_its_meaning(content: dict[str, object], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = {m.name: json.loads(body[m.start : m.end]) for m in members(body, content)}
    assert found == content
    result = default_object(body, NAME, OFF)
    given_value = content.get(NAME)
    if given_value is None:
        assert json.loads(result) == {**content, NAME: OFF}
    elif isinstance(given_value, dict):
        assert json.loads(result) == {**content, NAME: {**OFF, **given_value}}
    else:
        assert result == body


ODD = st.recursive(
    st.sampled_from(
        ["null", "true", "-1.5e+9", "NaN", "-Infinity", '"\\ud800"', '""', '"\\\\"', '"a\\"]}"', '"\\\\\\""']
    )
    | st.text('"\\{}[],:/ é', max_size=300).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: "[" + " , ".join(items) + "]")
        | st.lists(
            st.tuples(st.sampled_from(['"a"', '"\\u0061"', '"\\ud800"', '""', '"b\\"{"']), inner), max_size=4
        ).map(lambda pairs: "{\n" + ",".join(f"{name}\t:{value} " for name, value in pairs) + "}")
    ),
    max_leaves=20,
)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), ODD), max_size=5), st.booleans())
def test_the_scanner_agrees_with_json(pairs: list[tuple[str, str]], small: bool) -> None:
    body = (" {" + " ,".join(f'"{name}" : {value}' for name, value in pairs) + " } ").encode()
    with pytest.MonkeyPatch.context() as patched:
        if small:
            # what is matched is cut everywhere
            patched.setattr(splice, "_WINDOW", 3)
        found = [(m.name, body[m.start : m.end].decode()) for m in members(body, ("a", "b"))]
        assert found == [(name, value) for name, value in pairs if name != "c"]
        scanner = Scanner(body)
        for _name, at in scanner.members(1):
            value = pairs.pop(0)[1]
            assert body[at:].startswith(value.encode())
            assert scanner.is_null(at) == (value == "null")
            if value.startswith("["):
                inner = json.loads(value, object_pairs_hook=lambda found: {"pairs": found})
                holders = [one for one in inner if isinstance(one, list | dict)]
                starts = [chr(body[start]) for start in scanner.containers(at)]
                assert starts == ["{" if isinstance(one, dict) else "[" for one in holders]
                assert scanner.at == at + len(value.encode())
            elif value.startswith("{"):
                decoded = json.loads(value, object_pairs_hook=lambda found: found)
                names = [inner for inner, _start in scanner.members(at)]
                assert names == [None if inner == "\ud800" else inner for inner, _value in decoded]
                assert scanner.at == at + len(value.encode())
        assert not pairs


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\\\ a1', max_size=60).map(str.encode))
def test_no_bytes_break_the_walk(body: bytes) -> None:
    with contextlib.suppress(NotAnObject):
        members(body, ("a", NAME))
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
        # whatever the body calls itself, an engine may read it as JSON
        assert json.loads(changed.body) == json.loads(other_type.body) == {"a": 1, NAME: OFF}
        assert changed.header("Content-Length") == str(len(changed.body))
        assert other_path.body == b'{"a":1}'
