# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of llm-pool's requests: the engine gets them in its own words, the client a remedy where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit import bench, on_loop, serving_state
from rulings import CHAT

from frontdoor.config import Rules
from frontdoor.errors import CODES, Refusal
from frontdoor.policy.dialect import PLAIN, Dialect
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies
from frontdoor.policy.llm_pool import NAMES, thinking_kwargs

RESPONSES = "/v1/responses"
OFF = {"how": "disabled", "template_kwargs": {"enable_thinking": False}}
ON = {"how": "separate", "template_kwargs": {"enable_thinking": True}}
ALWAYS = {"how": "inline", "template_kwargs": {}}
OLD = Dialect("repetition_penalty", counts_answer=True)
NEW = OLD._replace(templates_responses=True)
LLAMA = Dialect("repeat_penalty", templates_responses=True, formats_responses=True)
# as llm-pool's own documentation has it
DECODING = {"beam_size": 1, "top_k": 1, "top_p": 1.0, "temperature": 0.1, "repetition_penalty": 1.0, "max_tokens": 256}


def ask(
    body: Any,
    path: str = RESPONSES,
    *,
    dialect: Dialect = NEW,
    remote: bool = False,
    reasoning: Any = None,
    rules: Rules | None = None,
) -> Any:
    """What the engine gets, parsed, or the refusal."""
    profile = {"served_model_name": "tiny-a", "modalities": ["text"], "reasoning": reasoning}
    if remote:
        profile |= {"remote": True}
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = policies(rules or Rules(), profile, PLAIN if remote else dialect)[path].apply(Document(text))
    if isinstance(sent, Refusal):
        assert sent.code in CODES
        assert sent.status in CODES[sent.code].statuses
        return sent
    return json.loads(sent)


def code(sent: Any) -> tuple[int, str]:
    assert isinstance(sent, Refusal)
    return sent.status, sent.code


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b'{ "messages":[{"role":"user","content":"the \\"metrics\\" of thinking"}] }'),
        (CHAT, b'{ "messages":[],"tools":[{"parameters":{"metrics":true,"decoding":{"x":1}}}] }'),
        # DeepSeek and others have an object of this name
        (CHAT, b'{"thinking":{"type":"disabled"},"messages":[]}'),
        (CHAT, b'{"response_format":{"type":"text"},"reasoning_effort":"low","messages":[],"n":1}'),
        (RESPONSES, b'{ "input":"hi","text":{"format":{"type":"text"}} }'),
        (RESPONSES, b'{ "input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}] }'),
        (RESPONSES, b'{ "input":[{"role":"user","content":[{"type":"text","text":"x"}]}] }'),
    ],
)
def test_a_request_without_these_fields_is_not_touched(path: str, body: bytes) -> None:
    rules = policies(Rules(), {"served_model_name": "tiny-a", "modalities": ["text"], "reasoning": OFF}, OLD)[path]
    document = Document(body)
    sent = rules.apply(document)
    assert sent is body
    assert document.measured is False


def test_a_decoding_becomes_the_fields_of_the_engine() -> None:
    same = {"top_k": 1, "top_p": 1.0, "temperature": 0.1, "repetition_penalty": 1.0}
    stop = {"decoding": {**DECODING, "stop": ["END"]}}
    assert ask({"input": "x", **stop}) == {"input": "x", **same, "max_output_tokens": 256, "stop": ["END"]}
    assert ask({"messages": [], **stop}, CHAT) == {"messages": [], **same, "max_tokens": 256, "stop": ["END"]}
    sent = ask({"messages": [], "decoding": DECODING}, CHAT, dialect=LLAMA)
    assert (sent["repeat_penalty"], "repetition_penalty" in sent) == (1.0, False)
    # the cap of the profile holds for it too
    assert ask({"input": "x", "decoding": DECODING}, rules=Rules(max_tokens_cap=9))["max_output_tokens"] == 9
    # nothing, an empty one and nulls ask for nothing
    for nothing in (None, {}, dict.fromkeys(DECODING)):
        assert ask({"input": "x", "decoding": nothing}) == {"input": "x"}


@pytest.mark.interpreted
def test_an_engine_elsewhere_gets_what_its_api_has() -> None:
    decoding = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 5, "stop": ["x"], "repetition_penalty": 1.0}
    sent = ask({"messages": [], "decoding": decoding}, CHAT, remote=True)
    assert sent == {"messages": [], "temperature": 0.5, "top_p": 0.9, "max_tokens": 5, "stop": ["x"]}
    for name, value in (("top_k", 1), ("repetition_penalty", 1.1)):
        refused = ask({"messages": [], "decoding": {name: value}}, CHAT, remote=True)
        assert code(refused) == (400, "parameter_unsupported")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beam_size", value) for value in (0, 17, 1.5, True, "1")),
        *(("top_k", value) for value in (0, 201)),
        *(("top_p", value) for value in (0, 0.0, 1.1)),
        *(("temperature", value) for value in (-0.1, 2.1)),
        *(("repetition_penalty", value) for value in (-1, 4.1)),
        *(("max_tokens", value) for value in (0, 4097, 1.0)),
        *(("stop", value) for value in ("END", [1])),
        ("nothing", 1),
    ],
)
def test_a_decoding_out_of_its_range_is_told(name: str, value: Any) -> None:
    refused = ask({"input": "x", "decoding": {name: value}})
    assert code(refused) == (422, "invalid_parameter")
    assert refused.details == {"param": f"decoding.{name}"}


@pytest.mark.parametrize("name", ["decoding", "thinking", "allow_remote", "metrics", "fairness_key"])
def test_a_field_of_the_wrong_type_is_told(name: str) -> None:
    refused = ask({"input": "x", name: 7})
    assert code(refused) == (422, "invalid_parameter")
    assert refused.details == {"param": name}


def test_what_contradicts_itself_is_told() -> None:
    assert code(ask({"input": "x", "temperature": 1, "decoding": {"temperature": 0}})) == (422, "invalid_parameter")
    assert ask({"input": "x", "temperature": 1, "decoding": {"temperature": 1}}) == {"input": "x", "temperature": 1}
    given = {"input": "x", "thinking": "enabled", "chat_template_kwargs": {"enable_thinking": False}}
    assert code(ask(given, reasoning=OFF)) == (422, "invalid_parameter")
    assert code(ask({"input": "x", "messages": [{"role": "user", "content": "x"}]})) == (422, "invalid_parameter")


def test_beams_are_refused() -> None:
    assert code(ask({"input": "x", "decoding": {"beam_size": 2}})) == (400, "parameter_unsupported")


@pytest.mark.parametrize(
    ("reasoning", "modes"),
    [
        (None, {}),
        (OFF, {"disabled": {"enable_thinking": False}, "enabled": {"enable_thinking": True}}),
        (ON, {"enabled": {"enable_thinking": True}, "disabled": {"enable_thinking": False}}),
        (ALWAYS, {"enabled": {}}),
        ({"how": "separate", "template_kwargs": {"effort": "low"}}, {"enabled": {"effort": "low"}}),
    ],
)
def test_thinking_is_what_the_profile_can_be_put_in(reasoning: Any, modes: dict[str, Any]) -> None:
    assert thinking_kwargs(reasoning) == modes
    for path in (CHAT, RESPONSES):
        assert ask({"thinking": "default", "input": "x"}, path, reasoning=reasoning) == {"input": "x"}
        for mode in ("enabled", "disabled"):
            sent = ask({"thinking": mode, "input": "x", "chat_template_kwargs": {"a": 1}}, path, reasoning=reasoning)
            if mode in modes:
                assert sent == {"input": "x", "chat_template_kwargs": {"a": 1, **modes[mode]}}
            else:
                assert code(sent) == (400, "thinking_unsupported")


def test_what_the_request_asks_for_wins_over_the_profile() -> None:
    rules = Rules(chat_template_kwargs={"enable_thinking": False, "other": 1})
    sent = ask({"thinking": "enabled", "messages": []}, CHAT, reasoning=OFF, rules=rules)
    assert sent["chat_template_kwargs"] == {"enable_thinking": True, "other": 1}


def test_thinking_is_not_sent_where_it_is_ignored() -> None:
    asked = {"thinking": "enabled", "input": "x"}
    assert code(ask(asked, dialect=OLD, reasoning=OFF)) == (400, "thinking_unsupported")
    assert ask(asked, CHAT, dialect=OLD, reasoning=OFF)["chat_template_kwargs"] == {"enable_thinking": True}
    assert "chat_template_kwargs" in ask(asked, dialect=LLAMA, reasoning=OFF)


def test_remote_execution_is_a_matter_of_the_engine() -> None:
    for allowed in (None, True, False):
        assert ask({"input": "x", "allow_remote": allowed}) == {"input": "x"}
    assert ask({"input": "x", "allow_remote": True}, remote=True) == {"input": "x"}
    assert code(ask({"input": "x", "allow_remote": False}, remote=True)) == (403, "remote_execution_disallowed")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (CHAT, ("max_tokens",)),
        (CHAT, ("max_completion_tokens",)),
        (CHAT, ("max_tokens", "max_completion_tokens")),
        (RESPONSES, ("max_output_tokens",)),
    ],
)
def test_a_length_of_two_names_is_one_length(path: str, names: tuple[str, ...]) -> None:
    same = dict.fromkeys(names, 5)
    assert ask({**same, "decoding": {"max_tokens": 5}}, path) == same
    for name in names:
        refused = ask({**same, name: 6, "decoding": {"max_tokens": 5}}, path)
        assert code(refused) == (422, "invalid_parameter")
        assert name in refused.message


def test_a_fairness_key_is_checked_and_left_out() -> None:
    assert ask({"input": "x", "fairness_key": " alice "}) == {"input": "x"}
    assert ask({"input": "x", "fairness_key": None}) == {"input": "x"}
    unusable: list[Any] = ["", " ", "x" * 129, [], {}, 5]
    for wrong in unusable:
        assert code(ask({"input": "x", "fairness_key": wrong})) == (422, "invalid_parameter")


def test_what_no_engine_takes_is_refused() -> None:
    for name, value in (("source_lang_code", "nl"), ("target_lang_code", "en"), ("thinking_token_budget", 100)):
        assert code(ask({"input": "x", name: value})) == (400, "parameter_unsupported")
        assert ask({"input": "x", name: None}) == {"input": "x"}


def test_an_effort_goes_into_the_reasoning() -> None:
    assert ask({"input": "x", "reasoning_effort": "low"}) == {"input": "x", "reasoning": {"effort": "low"}}
    both = {"input": "x", "reasoning_effort": "low", "reasoning": {"summary": "auto"}}
    assert ask(both)["reasoning"] == {"summary": "auto", "effort": "low"}


def test_a_response_format_goes_into_the_text() -> None:
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    made = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    assert ask({"input": "x", "response_format": wanted}) == {"input": "x", "text": {"format": made}}
    # llama-server reads it where it is
    asked = {"input": "x", "response_format": wanted}
    assert ask(asked, dialect=LLAMA) == asked
    assert code(ask({"input": "x", "response_format": {"type": "xml"}})) == (400, "response_format_unsupported")
    assert code(ask({"input": "x", "response_format": {"type": "json_schema"}})) == (422, "invalid_parameter")


@pytest.mark.interpreted
def test_messages_and_parts_become_the_input() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}
    made = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    text = {"type": "text", "text": "a"}
    assert ask({"input": [text, {"type": "text", "text": "b"}]}) == {"input": [{"role": "user", "content": "ab"}]}
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [text]},
        {"role": "user", "content": "r"},
    ]
    assert ask({"messages": turns})["input"][1] == {"role": "assistant", "content": "a"}
    # a model for text refuses pictures before anything else
    assert code(ask({"input": [text, picture]})) == (400, "modality_unsupported")
    profile = {"served_model_name": "tiny-a", "modalities": ["text", "image"]}
    body = json.dumps({"messages": [{"role": "user", "content": [text, picture]}]}).encode()
    sent = policies(Rules(), profile, OLD)[RESPONSES].apply(Document(body))
    assert not isinstance(sent, Refusal)
    assert json.loads(sent)["input"][0]["content"] == [{"type": "input_text", "text": "a"}, made]


def test_instructions_are_what_the_system_says() -> None:
    turns = [{"role": "user", "content": "q"}]
    system = {"role": "system", "content": "be brief"}
    assert ask({"messages": turns, "instructions": "be brief"}, CHAT) == {"messages": [system, *turns]}
    asked = {"input": "q", "instructions": "be brief"}
    assert ask(asked) == asked
    for messages, told in (([system, *turns], "x"), (turns, 7), (None, "x")):
        refused = ask({"messages": messages, "instructions": told}, CHAT)
        assert code(refused) == (422, "invalid_parameter")


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"messages": []}, (422, "invalid_parameter")),
        ({"messages": [{"role": "system", "content": "x"}]}, (422, "invalid_parameter")),
        ({"messages": [{"role": "assistant", "content": "x"}]}, (422, "invalid_parameter")),
        ({"messages": [{"role": "user", "content": 1}]}, (422, "invalid_parameter")),
        (
            {"input": [{"type": "text", "text": "a"}, {"type": "file", "file_data": "x"}]},
            (400, "file_input_unsupported"),
        ),
        ({"input": [{"type": "text", "text": "a"}, {"type": "hologram"}]}, (422, "invalid_parameter")),
    ],
)
def test_conversations_that_cannot_be_meant(body: Any, refused: tuple[int, str]) -> None:
    assert code(ask(body)) == refused


def test_files_of_the_host_are_not_named() -> None:
    profile = {"served_model_name": "tiny-a", "modalities": ["text", "image"]}
    part = {"type": "image_url", "image_url": {"url": "FILE:///etc/passwd"}}
    sent = policies(Rules(), profile, OLD)[RESPONSES].apply(Document(json.dumps({"input": [part]}).encode()))
    assert code(sent) == (400, "remote_media_refused")


@pytest.mark.parametrize("path", sorted(NAMES))
def test_no_field_is_passed_on(path: str) -> None:
    """Each name is looked for, whatever stands before it: engines ignore what they do not know."""
    for name in NAMES[path] - {"messages"}:
        sent = ask({"input": "x" * 100, name: None}, path)
        assert sent == {"input": "x" * 100}


@on_loop
async def test_a_refusal_and_a_translation_end_to_end(tmp_path: Path) -> None:
    told = serving_state("")
    profile, engine = told["profile"] | {"reasoning": OFF}, told["engine"] | {"dialect": NEW._asdict()}
    async with bench(tmp_path, {"profile": profile, "engine": engine}) as run:
        client = await run.client()
        body = json.dumps({"input": "x", "thinking": "enabled", "decoding": {"top_k": 3}}).encode()
        answer = await client.ask("POST", RESPONSES, body)
        assert json.loads(answer.json["body"]) == {
            "input": "x",
            "top_k": 3,
            "chat_template_kwargs": {"enable_thinking": True},
        }
        run.write_state(profile=profile | {"reasoning": None}, sequence=8)
        answer = await client.ask("POST", RESPONSES, body)
        assert (answer.status, answer.json["error"]["code"]) == (400, "thinking_unsupported")
        assert answer.json["error"]["param"] == "thinking"
        assert len(run.engine.requests) == 1
