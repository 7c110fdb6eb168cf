# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many generations a request asks for, whatever its spelling."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontdoor.config import ConfigError, from_table
from frontdoor.errors import Refusal
from frontdoor.policy import asked as permits
from frontdoor.policy.asked import ONE
from frontdoor.policy.document import Document

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"


def asked(path: str, body: bytes) -> tuple[int, int] | Refusal:
    return permits.asked(path, Document(body))


def permits_of(path: str, body: bytes, limit: int) -> int | Refusal:
    return permits.permits_of(path, Document(body), limit)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, {}, ONE),
        (CHAT, {"n": 1}, ONE),
        (CHAT, {"n": None}, ONE),
        (CHAT, {"n": 200}, (1, 200)),
        (CHAT, {"n": 2, "best_of": 5}, (1, 5)),
        (CHAT, {"n": 5, "best_of": 2}, (1, 5)),
        # readers of JSON that are generous take these for numbers
        (CHAT, {"n": "7"}, (1, 7)),
        (CHAT, {"n": " 7 "}, (1, 7)),
        (CHAT, {"n": "7.0"}, (1, 7)),
        (CHAT, {"n": 7.0}, (1, 7)),
        # and nobody these
        (CHAT, {"n": True}, ONE),
        (CHAT, {"n": 0}, ONE),
        (CHAT, {"n": -3}, ONE),
        (CHAT, {"n": 2.5}, ONE),
        (CHAT, {"n": "many"}, ONE),
        (CHAT, {"n": [9]}, ONE),
        # what is not a member of the request itself
        (CHAT, {"messages": [{"role": "user", "content": '{"n": 9}', "n": 9}]}, ONE),
        (CHAT, {"tools": [{"parameters": {"properties": {"n": {"type": "integer"}}}}]}, ONE),
        (CHAT, {"prompt": ["a", "b"]}, ONE),
        (COMPLETIONS, {"prompt": "a, b"}, ONE),
        (COMPLETIONS, {"prompt": ["a", "b", "c"]}, (3, 1)),
        (COMPLETIONS, {"prompt": ["a, [", '"b"', "c]"], "n": 4}, (3, 4)),
        (COMPLETIONS, {"prompt": [1, 2, 3]}, ONE),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}, (2, 1)),
        (COMPLETIONS, {"prompt": []}, ONE),
        (COMPLETIONS, {"prompt": "a", "prompt_embeds": ["x", "y"]}, (3, 1)),
        (COMPLETIONS, {"prompt": None, "prompt_embeds": ["x", "y"]}, (2, 1)),
        (GENERATE, {"token_ids": [1, 2], "sampling_params": {"n": 3}}, (1, 3)),
        (GENERATE, {"n": 3, "sampling_params": {}}, ONE),
        (GENERATE, {"sampling_params": None, "n": 3}, ONE),
        ("/v1/responses", {"n": 9}, ONE),
        ("/v1/messages", {"n": 9}, ONE),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_what_a_request_asks_for(
    path: str, body: dict[str, Any], expected: tuple[int, int], indent: int | None
) -> None:
    assert asked(path, json.dumps(body, indent=indent).encode()) == expected
    # the same behind much else, where it is looked for in another way
    for filling in ("x" * 70_000, 'a "quote"\n' * 7000):
        large = {"user": filling, **body}
        assert asked(path, json.dumps(large, indent=indent).encode()) == expected


@pytest.mark.parametrize(
    "body",
    [
        rb'{"\u006e":9}',
        rb'{"\u006E":9}',
        rb'{"best\u005fof":9}',
        b' \n{ "n" : 9 }',
        b'{"n":9e0}',
    ],
)
def test_no_spelling_hides_how_many(body: bytes) -> None:
    assert asked(CHAT, body) == (1, 9)
    assert asked(COMPLETIONS, body.replace(b"{", rb'{"\u0070rompt": ["a", "b"],', 1)) == (2, 9)


@pytest.mark.interpreted
def test_a_long_prompt_of_tokens_is_one_prompt() -> None:
    assert permits_of(COMPLETIONS, b'{"prompt":[%b7]}' % (b"151643," * 400_000), 2) == 1


@pytest.mark.parametrize(
    "body", [b'{"n":1,"n":9}', b'{"n":9,"n":1}', b'{"\\u006e":9,"n":1}', b'{"n":NaN}', b'{"n":1e999}']
)
def test_a_number_that_readers_take_differently_is_refused(body: bytes) -> None:
    refusal = permits_of(CHAT, body, 2)
    assert not isinstance(refusal, int)
    assert (refusal.status, refusal.code) == (400, "ambiguous_json")


@pytest.mark.parametrize("value", ['"%s9"' % (" " * 100), '"%s9"' % ("0" * 100), "9" + "0" * 100, "9" + "0" * 5000])
def test_a_number_that_is_hidden_in_much_else_is_not_let_past(value: str) -> None:
    refusal = permits_of(CHAT, b'{"n":%b}' % value.encode(), 2)
    assert not isinstance(refusal, int)
    assert (refusal.status, refusal.code) == (400, "ambiguous_json" if len(value) > 4300 else "too_many_generations")


COUNTS = st.none() | st.integers(-1, 12) | st.sampled_from([1.0, 3.0, 2.5, "4", "x", True, [], {}])
PROMPTS = st.none() | st.text(max_size=4) | st.lists(st.text(max_size=4), max_size=4)
TOKENS = st.lists(st.integers(0, 9), max_size=3) | st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3
)


def reference(body: dict[str, Any]) -> tuple[int, int]:
    """What a reader makes of it that decodes everything."""

    def number(value: object) -> int:
        if isinstance(value, str):
            return int(value) if value.isdigit() else 1
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        return max(1, int(value)) if whole and isinstance(value, int | float) else 1

    def prompts(value: object) -> int:
        if not isinstance(value, list):
            return int(value is not None)
        return int(bool(value)) if not value or isinstance(value[0], int) else len(value)

    return max(1, prompts(body.get("prompt"))), max(number(body.get("n")), number(body.get("best_of")))


@settings(max_examples=400)
@given(
    st.fixed_dictionaries({}, optional={"n": COUNTS, "best_of": COUNTS, "prompt": PROMPTS | TOKENS, "user": st.text()}),
    st.sampled_from([None, 0, 3]),
    st.booleans(),
    st.data(),
)
def test_it_is_read_as_by_who_decodes_everything(
    body: dict[str, Any], indent: int | None, ascii_only: bool, data: st.DataObject
) -> None:
    mixed = {name: body[name] for name in data.draw(st.permutations(list(body)))}
    text = json.dumps(mixed, indent=indent, ensure_ascii=ascii_only).encode(errors="replace")
    prompts, each = reference(body)
    assert asked(COMPLETIONS, text) == (prompts, each)
    assert asked(CHAT, text) == (1, each)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_a_body_in_another_encoding_is_not_let_past(coding: str) -> None:
    refusal = permits_of(CHAT, '{"n":9}'.encode(coding), 2)
    assert not isinstance(refusal, int)
    assert (refusal.status, refusal.code) == (400, "encoding_unsupported")


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(alphabet='{}[],:"\\n u06e1prmt', max_size=60).map(str.encode))
def test_any_bytes_are_judged(body: bytes) -> None:
    for path in (CHAT, COMPLETIONS, GENERATE):
        found = permits_of(path, body, 2)
        assert not isinstance(found, int) or 1 <= found <= 2


@pytest.mark.parametrize("name", ["n", "best_of"])
def test_no_default_asks_for_several(name: str) -> None:
    """It would be put into a body that was counted before."""
    with pytest.raises(ConfigError, match=rf"request.sampling_defaults.{name}: only a client"):
        from_table({"request": {"sampling_defaults": {name: 4}}})
