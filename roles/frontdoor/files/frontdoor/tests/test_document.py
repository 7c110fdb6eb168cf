# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults are put into a body without changing the meaning of anything else in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import bench, on_loop

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies
from frontdoor.policy.llm_pool import NAMES as OF_LLM_POOL

CHAT = "/v1/chat/completions"
NAME = "chat_template_kwargs"
OFF = {"enable_thinking": False}


def default_object(body: bytes, defaults: dict[str, Any]) -> bytes | bytearray | Refusal:
    return policies(Rules(chat_template_kwargs=defaults), None)[CHAT].apply(Document(body))


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
            '{"chat\\u005ftemplate_kwargs":{"enable_thinking":false,"x":1}}',
        ),
    ],
)
def test_where_the_defaults_go(body: str, expected: str) -> None:
    assert json.loads(default_object(body.encode(), OFF)) == json.loads(expected)


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "[]", "null", '"x"', "1", "{", '{"a":1', "}"),
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
    assert default_object(body.encode(), OFF) == body.encode()


def test_members_are_added_and_the_rest_keeps_its_meaning() -> None:
    body = b' {\n  "a b": 1.0,\t"ab": " x ", "c": [18446744073709551615, -0.0, "\xc3\xa9"]\r\n}\n '
    rest = b'{"a b":1.0,"ab":" x ","c":[18446744073709551615,-0.0,"\xc3\xa9"],'
    assert default_object(body, OFF) == rest + b'"chat_template_kwargs":{"enable_thinking":false}}'


@pytest.mark.parametrize(
    "body",
    [
        *('{"a": 1, "a": 1}', '{"a b": 1, "c": {"x": 1, "x" : 1}}', '{"a": {}, "a" : {}}', '{"a": 1e400 }'),
        *('{"a": 18446744073709551616}', '{ "a": -Infinity}', '[ {"a": 1, "a": 1} ]', '{"ab": 1, "a\\u0062" : 1}'),
    ],
)
def test_spaces_hide_nothing(body: str) -> None:
    assert isinstance(default_object(body.encode(), OFF), Refusal) or body.startswith("[")


def test_the_client_wins_key_by_key() -> None:
    body = b'{"chat_template_kwargs": {"enable_thinking": true}, "model": "m"}'
    assert json.loads(default_object(body, {"enable_thinking": False, "style": "x"})) == {
        "chat_template_kwargs": {"enable_thinking": True, "style": "x"},
        "model": "m",
    }


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# members of llm-pool's requests have a meaning of their own: test_llm_pool.py
PLAIN = st.text(max_size=60).filter(lambda name: name not in OF_LLM_POOL[CHAT])
OBJECTS = st.dictionaries(PLAIN | st.just(NAME), VALUES, max_size=6)


@settings(max_examples=400)
@given(content=OBJECTS, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_object_keeps_its_meaning(content: dict[str, object], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert Document(body).content == content
    result = default_object(body, OFF)
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


NAMES = st.sampled_from(["a", "b", "c"])


@settings(max_examples=600)
@given(st.lists(st.tuples(NAMES, ODD), max_size=4), st.booleans())
def test_what_is_read_is_what_anybody_reads_and_nothing_is_dropped(pairs: list[tuple[str, str]], write: bool) -> None:
    text = " {" + " ,".join(f'"{name}" : {value}' for name, value in pairs) + " } "
    twice = False

    def note(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice |= len(dict(found)) < len(found)
        return dict(found)

    reference = json.loads(text, object_pairs_hook=note)
    document = Document(text.encode())
    content = document.content
    if twice or "NaN" in text or "Infinity" in text:
        assert isinstance(content, Refusal)
        assert content.code == "ambiguous_json"
        return
    assert content == reference
    written = document.written(content)
    if "\\ud800" in text:
        assert isinstance(written, Refusal)
    else:
        assert not isinstance(written, Refusal)
        assert json.loads(written) == reference


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\\\ a1', max_size=60).map(str.encode))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    content = Document(body).content
    if isinstance(content, Refusal):
        assert content.status == 400
    default_object(body, OFF)


@pytest.mark.parametrize("depth", [300, 1100, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_no_depth_breaks_the_reader(depth: int, opening: bytes, closing: bytes) -> None:
    body = b'{"x":' + opening * depth + b"0" + closing * depth + b"}"
    refusal = default_object(body, OFF)
    assert isinstance(refusal, Refusal)
    assert refusal.code in ("ambiguous_json", "body_too_intricate")


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
