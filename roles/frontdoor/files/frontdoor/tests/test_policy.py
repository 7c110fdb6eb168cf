# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for request bodies: the engine gets what was wanted, the client a clear answer where it cannot."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import Answer, bench, on_loop, serving_state
from rulings import CHAT, GENERATE, TEXT, apply, check_sent
from test_modality import UNTYPED, image

from frontdoor.config import Rules
from frontdoor.errors import Refusal

CAPS = Rules(max_tokens_default=100, max_tokens_cap=200)


def test_a_default_above_the_cap_is_the_cap() -> None:
    rules = Rules(max_tokens_default=300, max_tokens_cap=200)
    for body in ("{}", '{"max_tokens":null}', '{"max_tokens":"many"}', '{"max_tokens":-1}'):
        assert apply(rules, body) == '{"max_tokens":200}'


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, '{"model": "m"}', '{"max_tokens":100,"model": "m"}'),
        (CHAT, '{ "max_tokens" : 50 }', '{ "max_tokens" : 50 }'),
        (CHAT, '{"max_tokens":500,"x":1}', '{"max_tokens":200,"x":1}'),
        (CHAT, '{"max_tokens":500,"max_completion_tokens":600}', '{"max_tokens":200,"max_completion_tokens":200}'),
        (CHAT, '{"max_completion_tokens":7}', '{"max_completion_tokens":7}'),
        (CHAT, '{"max_tokens":null}', '{"max_tokens":100}'),
        (CHAT, '{"max_completion_tokens":null}', '{"max_tokens":100,"max_completion_tokens":null}'),
        (CHAT, '{"max_tokens":0}', '{"max_tokens":100}'),
        (CHAT, '{"max_tokens":-5}', '{"max_tokens":100}'),
        (CHAT, '{"max_tokens":true}', '{"max_tokens":100}'),
        (CHAT, '{"max_tokens":"many"}', '{"max_tokens":100}'),
        (CHAT, '{"max_tokens":1e9}', '{"max_tokens":200}'),
        (CHAT, '{"max\\u005ftokens":999}', '{"max\\u005ftokens":200}'),
        (CHAT, '{"nested":{"max_tokens":999},"max_tokens":9}', '{"nested":{"max_tokens":999},"max_tokens":9}'),
        ("/v1/responses", '{"max_tokens":999}', '{"max_output_tokens":100,"max_tokens":999}'),
        ("/v1/messages", '{"max_tokens":999}', '{"max_tokens":200}'),
        ("/generative_scoring", '{"max_tokens":999}', '{"max_tokens":999}'),
        (CHAT, "{}", '{"max_tokens":100}'),
        (CHAT, '{"":{},"x":1}', '{"":{},"x":1,"max_tokens":100}'),
        (CHAT, '{"sampling_params":{"max_tokens":9}}', '{"sampling_params":{"max_tokens":9},"max_tokens":100}'),
        (CHAT, '{"max_tokens":"\\ud800"}', '{"max_tokens":100}'),
        (
            CHAT,
            '{"max_tokens":7,"\\ud800":1,"x":123456789012345678901}',
            '{"max_tokens":7,"\\ud800":1,"x":123456789012345678901}',
        ),
        (
            CHAT,
            '{"max_tokens":9,"x":[18446744073709551615,-9223372036854775808,1.50e0]}',
            '{"max_tokens":9,"x":[18446744073709551615,-9223372036854775808,1.50e0]}',
        ),
        (
            CHAT,
            '{"x":[18446744073709551615,-9223372036854775808,9007199254740993,1.50e0,1.0]}',
            '{"x":[18446744073709551615,-9223372036854775808,9007199254740993,1.5,1.0],"max_tokens":100}',
        ),
        (CHAT, '{"max_tokens":' + "9" * 300 + "}", '{"max_tokens":200}'),
        # where the engine reads it from an object of its own
        (GENERATE, '{"sampling_params":{"max_tokens":999,"n":1}}', '{"sampling_params":{"max_tokens":200,"n":1}}'),
        (GENERATE, '{"sampling_params": {"n":1}}', '{"sampling_params": {"max_tokens":100,"n":1}}'),
        (GENERATE, '{"sampling_params":{ }}', '{"sampling_params":{"max_tokens":100 }}'),
        (GENERATE, '{"sampling_params":{"max_tokens":null}}', '{"sampling_params":{"max_tokens":100}}'),
        (GENERATE, '{"sampling_params":{"max_tokens":5}}', '{"sampling_params":{"max_tokens":5}}'),
        (GENERATE, '{"token_ids":[1]}', '{"max_tokens":100,"token_ids":[1]}'),
    ],
)
def test_token_limits(path: str, body: str, expected: str) -> None:
    check_sent(apply(CAPS, body, path), body, expected)


AMBIGUOUS = [
    *(
        '{"max_tokens":1,"max_tokens":999}',
        '{"max_tokens":1,"max\\u005ftokens":2}',
        '{"max_tokens":null,"max_tokens":1}',
    ),
    *(
        '{"messages":[{"content":"a","content":"b"}]}',
        '{"sampling_params":{},"sampling\\u005fparams":{"max_tokens":9}}',
    ),
    *('{"max_tokens":NaN}', '{"x":-Infinity}', '{"x":1e999}', '{"max_tokens":' + "9" * 5000 + "}"),
    # what cannot be written again as it was
    *('{"x":18446744073709551616}', '{"x":[-9223372036854775809]}', '{"max_tokens":999,"\\ud800":1}'),
    '{"x":' + "[" * 300 + "]" * 300 + "}",
]


@pytest.mark.parametrize("body", AMBIGUOUS)
@pytest.mark.parametrize("path", [CHAT, GENERATE])
def test_what_would_not_stay_as_it_is_is_refused(body: str, path: str) -> None:
    refusal = apply(CAPS, body, path)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "ambiguous_json")
    # where no rule reads it, it passes as it came; a chat is always read, as it may be one of llm-pool's
    assert path == CHAT or apply(Rules(), body, path) == body


@pytest.mark.parametrize("body", ["{broken", "[]", "", "null", '{"max_tokens":999', '{"a":1,}', "{'max_tokens':999}"])
@pytest.mark.parametrize("rules", [CAPS, Rules(model_policy="reject")])
def test_what_cannot_be_read_does_not_pass_a_limit(rules: Rules, body: str) -> None:
    refusal = apply(rules, body, profile=TEXT)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "invalid_json")
    # where nothing is forbidden the engine says what is wrong with it
    for harmless in (Rules(max_tokens_default=1), Rules(model_policy="rewrite"), Rules(sampling_defaults={"a": 1})):
        assert apply(harmless, body, profile={"served_model_name": "tiny-a"}) == body


def test_a_default_without_a_cap_and_a_cap_without_a_default() -> None:
    assert apply(Rules(max_tokens_default=100), '{"max_tokens":999}') == '{"max_tokens":999}'
    assert apply(Rules(max_tokens_cap=200), '{"a":1}') == '{"a":1,"max_tokens":200}'
    assert apply(Rules(max_tokens_default=300, max_tokens_cap=200), '{"a":1}') == '{"a":1,"max_tokens":200}'


def test_sampling_defaults_fill_gaps_only() -> None:
    rules = Rules(sampling_defaults={"temperature": 0.7, "top_p": 0.9})
    assert apply(rules, '{"temperature":0}') == '{"temperature":0,"top_p":0.9}'
    assert apply(rules, '{"temperature":null,"top_p":1}') == '{"temperature":0.7,"top_p":1}'
    assert apply(rules, '{"temperature":1}', "/inference/v1/generate") == '{"temperature":1}'


def test_all_rules_together_change_nothing_else() -> None:
    rules = Rules({"enable_thinking": False}, 100, 200, {"seed": 1}, "rewrite", ("gpt",))
    body = '{ "model":"gpt" ,"messages": [ {"role":"user"} ], "max_tokens":  1000, "chat_template_kwargs": {"a":1} }'
    assert apply(rules, body, profile=TEXT) == (
        '{"model":"tiny-a","messages":[{"role":"user"}],"max_tokens":200,'
        '"chat_template_kwargs":{"enable_thinking":false,"a":1},"seed":1}'
    )


@pytest.mark.parametrize(
    ("policy", "body", "expected"),
    [
        ("pass", '{"model":"other"}', '{"model":"other"}'),
        ("pass", '{"model":"gpt"}', '{"model":"tiny-a"}'),
        ("pass", "{}", "{}"),
        ("rewrite", '{"model":"other"}', '{"model":"tiny-a"}'),
        ("rewrite", '{"model":7}', '{"model":"tiny-a"}'),
        ("rewrite", '{"a":1}', '{"model":"tiny-a","a":1}'),
        ("rewrite", '{"model":"tiny-a"}', '{"model":"tiny-a"}'),
        ("reject", '{"model":"gpt"}', '{"model":"tiny-a"}'),
        ("reject", '{"model":"tiny-a"}', '{"model":"tiny-a"}'),
        ("reject", '{"model":"other"}', "the model 'other' is not served here; served: tiny-a, gpt"),
        ("reject", '{"a":1}', "no model is named; served: tiny-a, gpt"),
        ("reject", '{"model":null}', "no model is named; served: tiny-a, gpt"),
        ("reject", '{"model":["tiny-a"]}', "the model is not named by a string; served: tiny-a, gpt"),
        ("reject", '{"model":"e\\ud800"}', "the model 'e\\ud800' is not served here; served: tiny-a, gpt"),
        ("reject", '{"model":"evil","\\ud800":1}', "the model 'evil' is not served here; served: tiny-a, gpt"),
        (
            "reject",
            '{"model":"' + "x" * 8_000_000 + '"}',
            f"the model '{'x' * 100}' is not served here; served: tiny-a, gpt",
        ),
        ("reject", '{"model":"' + "y" * 200 + '"}', f"the model '{'y' * 100}' is not served here; served: tiny-a, gpt"),
        ("rewrite", '{"model":"e\\ud800"}', '{"model":"tiny-a"}'),
    ],
)
def test_the_model_s_name(policy: str, body: str, expected: str) -> None:
    result = apply(Rules(model_policy=policy, model_aliases=("gpt",)), body, profile=TEXT)
    if isinstance(result, Refusal):
        assert (result.status, result.code, result.message) == (404, "model_not_found", expected)
        assert result.details == {"param": "model", "models": ["tiny-a", "gpt"]}
    else:
        check_sent(result, body, expected)


@pytest.mark.interpreted
@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["model", "max_tokens", "max_completion_tokens", "temperature", "chat_template_kwargs", "x"]),
        st.none()
        | st.integers(-5, 1000)
        | st.text(max_size=3)
        | st.dictionaries(st.text(max_size=2), st.integers(-(2**63), 2**64 - 1), max_size=2),
    )
)
def test_no_object_escapes_the_cap_or_loses_a_member(content: dict[str, object]) -> None:
    rules = Rules({"t": 0}, 100, 200, {"temperature": 0.5}, "rewrite", ())
    result = apply(rules, json.dumps(content), profile=TEXT)
    assert isinstance(result, str)
    changed = json.loads(result)
    assert changed["model"] == "tiny-a"
    limits = [changed[name] for name in ("max_tokens", "max_completion_tokens") if changed.get(name) is not None]
    assert limits
    assert all(isinstance(limit, int) and 0 < limit <= 200 for limit in limits)
    assert changed["temperature"] is not None
    assert set(changed) >= set(content)
    assert changed.get("x") == content.get("x")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
@on_loop
async def test_another_encoding_does_not_evade_the_rules(tmp_path: Path, encoding: str) -> None:
    async with bench(tmp_path, state={"request": {"max_tokens_cap": 10}}) as run:
        client = await run.client()
        answer = await client.ask("POST", "/v1/completions", '{"max_tokens": 5000}'.encode(encoding))
        assert (answer.status, answer.json["error"]["code"]) == (400, "encoding_unsupported")
        assert run.engine.requests == []


@on_loop
async def test_neither_type_nor_coding_evades_the_rules(tmp_path: Path) -> None:
    request = {"max_tokens_cap": 10, "model_policy": "reject"}
    async with bench(tmp_path, state={"request": request}) as run:
        client = await run.client()

        async def ask(path: str, body: bytes, *fields: str) -> Answer:
            head = "".join(f"{field}\r\n" for field in ("Host: x", f"Content-Length: {len(body)}", *fields))
            client.send(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            return await client.answer()

        for kind in ("text/plain", "application/vnd.api+json", "application/JSON ; x=y", "multipart/form-data", ""):
            fields = [f"Content-Type: {kind}"] if kind else []
            assert (await ask(CHAT, b'{"model":"evil"}', *fields)).status == 404
            assert (await ask("/v1/embeddings", b'{"model":"evil"}', *fields)).status == 404
            assert (await ask(CHAT, b"--x", *fields)).status == 400
            assert not run.engine.requests
            assert (await ask(CHAT, b'{"model":"tiny-a","max_tokens":99}', *fields)).status == 200
            assert run.engine.requests.pop().body == b'{"model":"tiny-a","max_tokens":10}'
        packed = gzip.compress(b'{"model":"evil","max_tokens":999}')
        for path in (CHAT, "/v1/embeddings"):
            for coding in ("gzip", "GZIP", "identity, gzip", "x-new"):
                answer = await ask(path, packed, f"Content-Encoding: {coding}")
                assert (answer.status, answer.json["error"]["code"]) == (415, "encoding_unsupported")
            answer = await ask(path, packed, "Content-Encoding: gzip", "Content-Encoding: identity")
            assert answer.status == 415
        assert not run.engine.requests
        assert (await ask(CHAT, b'{"model":"tiny-a"}', "Content-Encoding: identity")).status == 200


@pytest.mark.interpreted
@on_loop
async def test_kwargs_are_put_in_or_the_body_is_refused(tmp_path: Path) -> None:
    kwargs = {"chat_template_kwargs": {"a": 1}}
    profile = {name: value for name, value in serving_state("")["profile"].items() if name != "modalities"}
    async with bench(tmp_path, state={"request": kwargs, "profile": profile}) as run:
        client = await run.client()
        intricate = b'{"messages":[' + b"[]," * 300_000 + b'0],"chat_template_kwargs":{"b":2}}'
        answer = await client.ask("POST", CHAT, intricate)
        assert (answer.status, answer.json["error"]["code"]) == (400, "body_too_intricate")
        # nothing here reads what is compressed, and nothing is forbidden
        assert (await client.ask("POST", CHAT, b'{"a":1}', "Content-Encoding: gzip")).status == 200
        assert [one.body for one in run.engine.requests] == [b'{"a":1}']


@on_loop
async def test_a_text_profile_answers_for_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path, request={"model_policy": "reject", "model_aliases": ["gpt"]}) as run:
        client = await run.client()
        for path in (CHAT, "/v1/messages/count_tokens", "/v1/embeddings", "/tokenize", "/pooling"):
            answer = await client.ask("POST", path, UNTYPED.replace("{", '{"model":"tiny-a",', 1).encode())
            assert (answer.status, answer.json["error"]["code"]) == (400, "modality_unsupported"), path
        answer = await client.ask("POST", CHAT, image().replace("{", '{"model":"tiny-a",', 1).encode())
        assert (answer.status, answer.json["error"]["code"]) == (400, "modality_unsupported")
        answer = await client.ask("POST", "/v1/messages", image("image").encode())
        assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (
            400,
            "error",
            "invalid_request_error",
        )
        answer = await client.ask("POST", CHAT, b'{"model":"nobody"}')
        assert (answer.status, answer.json["error"]["param"]) == (404, "model")
        assert answer.json["error"]["models"] == ["tiny-a", "gpt"]
        assert not run.engine.requests
        assert (await client.ask("POST", CHAT, b'{"model":"gpt"}')).status == 200
        assert run.engine.requests[0].body == b'{"model":"tiny-a"}'
        # another profile takes images, at once
        profile = {**serving_state("")["profile"], "modalities": ["text", "image"], "served_model_name": "tiny-i"}
        run.write_state(profile=profile, request={"chat_template_kwargs": None, "max_tokens_cap": 9})
        assert (await client.ask("POST", CHAT, image().replace("{", '{"model":"tiny-i",', 1).encode())).status == 200
        assert json.loads(run.engine.requests[1].body)["max_tokens"] == 9


@pytest.mark.interpreted
@on_loop
async def test_the_engine_sees_what_profile_and_operator_want_and_nothing_else_changed(tmp_path: Path) -> None:
    request = {
        "max_tokens_default": 100,
        "max_tokens_cap": 500,
        "sampling_defaults": {"temperature": 0.7},
        "chat_template_kwargs": {"enable_thinking": False},
        "model_policy": "reject",
        "model_aliases": ["gpt-4o"],
    }
    async with bench(tmp_path, state={"request": request}) as run:
        client = await run.client()

        async def sent(path: str, body: bytes) -> bytes:
            assert (await client.ask("POST", path, body)).status == 200
            return run.engine.requests[-1].body

        odd = b'{ "model" :"gpt-4o", "messages": [],\n "x": 1.50e0, "max_tokens": 9999 }'
        added = b',"temperature":0.7,"chat_template_kwargs":{"enable_thinking":false}}'
        assert await sent(CHAT, odd) == b'{"model":"tiny-a","messages":[],"x":1.5,"max_tokens":500' + added
        assert json.loads(await sent("/v1/completions", b'{"model":"tiny-a"}'))["max_tokens"] == 100
        complete = b'{"model":"tiny-a","max_tokens":5,"temperature":0}'
        assert await sent("/v1/completions", complete) == complete
        answer = await client.ask("POST", CHAT, b'{"model":"other"}')
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
        assert answer.json["error"]["models"] == ["tiny-a", "gpt-4o"]
        # what asks without a slot names its model as well
        for path in ("/v1/embeddings", "/tokenize", "/v1/messages/count_tokens", "/pooling", "/rerank"):
            assert await sent(path, b'{"model":"gpt-4o"}') == b'{"model":"tiny-a"}'
            assert await sent(path, b'{"model":"tiny-a"}') == b'{"model":"tiny-a"}'
            before = len(run.engine.requests)
            assert (await client.ask("POST", path, b'{"model":"other"}')).status == 404
            assert (await client.ask("POST", path, b"not JSON")).status == 400
            assert len(run.engine.requests) == before
