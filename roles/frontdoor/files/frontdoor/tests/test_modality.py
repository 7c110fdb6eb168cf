# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model gets what it takes, wherever and however a request holds it; words about images are no images."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulings import CHAT, GENERATE, IMAGE, TEXT, apply

from frontdoor.config import Rules
from frontdoor.errors import Refusal


def image(kind: str = "image_url") -> str:
    return json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": kind}]}]})


def within(part: str) -> str:
    return '{"messages":[{"role":"user","content":[{"type":"text","text":"x"},' + part + "]}]}"


UNTYPED = within('{"image_url":"data:x"}')


@pytest.mark.parametrize(
    "body",
    [
        *(image("image_url"), image("input_image"), image("image"), image("input_audio"), image("video_url")),
        *(image("image_embeds"), image("image_pil"), image("audio_embeds"), image("video_embeds"), image("document")),
        '{"input":[{"type":"message","content":[{"type":"input_image","image_url":"data:"}]}]}',
        '{"messages":[{"content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}',
        # without a type, and with one that is not looked at
        *(UNTYPED, within('{"image_pil":1}'), within('{"audio_url":{"url":"x"}}'), within('{"input_audio":{}}')),
        within('{"type":"text","text":"x","uuid":"a","image_url":"data:x"}'),
        within('{"type":"text","uuid":"a","image_url":null}'),
        within('{"image_url":null}'),
        # spelt with escapes
        within('{"type":"\\u0069mage_url","image_url":{"url":"data:x"}}'),
        within('{"\\u0069mage\\u005Furl":"data:x"}'),
        '{"mess\\u0061ges":[{"cont\\u0065nt":[{"t\\u0079pe":"im\\u0061ge_url"}]}]}',
        # what not every reader of JSON takes
        within('{"type":"image_url"}').replace("{", '{"n":-0,"s":"\\ud800","\\ud800":1,', 1),
        within('{"\\ud800":1,"type":"image_url","x":123456789012345678901234567890}'),
        # elsewhere
        '{"system":[{"type":"image","source":{}}],"messages":[]}',
        '{"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"data:x"}}]}',
        '{"input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:x"}]}]}',
        '{"messages":[[{"role":"user","content":[{"type":"image_url"}]}]]}',
        '{"input":[[{"role":"user","content":[{"type":"image_url"}]}]]}',
        '{"content_parts":[{"type":"image_url","url":"data:x"}],"sampling_params":{}}',
        '{"features":{"mm_hashes":{"image":["a"]},"mm_placeholders":{}},"sampling_params":{}}',
        '{"queries":"x","documents":{"content":[{"type":"image_url"}]}}',
        '{"data_1":[{"content":[{"image_embeds":"x"}]}],"data_2":"x"}',
    ],
)
def test_text_models_refuse_other_parts(body: str) -> None:
    for path in (CHAT, "/v1/responses", "/v1/messages", GENERATE, "/v1/messages/count_tokens", "/v1/embeddings"):
        result = apply(Rules(), body, path, profile=TEXT)
        assert isinstance(result, Refusal)
        assert (result.status, result.code) == (400, "modality_unsupported")
        assert result.message.startswith("tiny-a takes text only; the request contains a part of type ")


@pytest.mark.parametrize(
    "body",
    [
        '{"messages":[{"content":"say {\\"type\\": \\"image_url\\"}"}]}',
        '{"messages":[{"content":"x"}],"tools":[{"type":"image"}]}',
        '{"messages":[{"content":[{"type":"text","text":"image_url"}]}], "image": 1}',
        '{"metadata":{"type":"image"},"messages":[{"content":"x"}]}',
        '{"messages":[{"content":[{"type":"tool_use","input":{"type":"image","image_url":"x","content":[{"a":"image"}]}}]}]}',
        '{"messages":[{"tool_calls":[{"type":"function","function":{"arguments":{"type":"image"}}}]}]}',
        '{"messages":[{"tool_calls":[{"type":"image","function":{"arguments":"{\\"type\\":\\"image\\"}"}}]}]}',
        '{"input":[{"type":"function_call","arguments":"{\\"type\\":\\"image\\"}","x":{"type":"image"}}]}',
        '{"input":["image","audio","video"]}',
        '{"query":"image","documents":["image","document"]}',
        within('{"type":"text","text":"x","image_url":null,"input_audio":null}'),
        within('{"type":"text","text":"image","x":{"type":"image"}}'),
        '{"messages":"image","input":"video"}',
    ],
)
def test_words_about_images_are_no_images(body: str) -> None:
    for path in (CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings"):
        sent = apply(Rules(), body, path, profile=TEXT)
        if path == "/v1/responses" and "messages" in json.loads(body):
            # not the engine's field there
            assert not isinstance(sent, Refusal) or sent.code == "invalid_parameter"
        else:
            assert sent == body


@pytest.mark.parametrize("body", ['{"image broken', '{"messages":[{"image":1}', "{'messages':\"image\"}"])
def test_what_may_hold_an_image_and_cannot_be_read_is_refused(body: str) -> None:
    refusal = apply(Rules(), body, profile=TEXT)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    "part",
    ['{"type":"text","type":"image_url"}', '{"type":"image_url","type":"text"}', '{"type":"image","x":-Infinity}'],
)
def test_what_readers_take_differently_is_refused(part: str) -> None:
    refusal = apply(Rules(), within(part), profile=TEXT)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "ambiguous_json")


def test_what_the_profile_takes_passes_untouched() -> None:
    assert apply(Rules(), image(), profile=IMAGE) == image()
    assert apply(Rules(), UNTYPED, profile=IMAGE) == UNTYPED
    assert isinstance(apply(Rules(), image("input_audio"), profile=IMAGE), Refusal)
    assert apply(Rules(), image(), profile={"modalities": None}) == image()
    assert apply(Rules(), image(), profile=None) == image()
    deep = '{"messages":' + "[" * 900 + '"image_url"' + "]" * 900 + "}"
    assert apply(Rules(), deep, profile=TEXT) == deep


KINDS = {"image_url": "image", "image": "image", "input_audio": "audio", "video_url": "video", "text": None, "x": None}


def foreign(content: Any, member: str | None = None) -> bool:
    """What `Search` finds, told from a decoded request."""
    if member is None:
        return any(foreign(content.get(name), name) for name in ("messages", "input", "system"))
    if isinstance(content, list):
        return any(foreign(one, member) for one in content if isinstance(one, dict | list))
    if not isinstance(content, dict):
        return False
    return (
        (isinstance(content.get("type"), str) and KINDS.get(content["type"]) is not None)
        or content.get("image_url") is not None
        or ("image_url" in content and content.get("type") is None)
        or any(foreign(content.get(name), member) for name in ("content", "output"))
    )


PARTS = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["image", 'a"b\\', "\\", '\\"]', "é\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(sorted(KINDS)) | inner,
                "content": inner,
                "output": inner,
                "image_url": st.none() | st.just("data:x"),
                "input": inner,
                "text": inner,
            },
        )
    ),
    max_leaves=10,
)


@settings(max_examples=500)
@given(
    st.dictionaries(st.sampled_from(["messages", "input", "system", "metadata", "model"]), PARTS, max_size=4),
    st.sampled_from([None, 0, 3]),
)
def test_images_are_found_where_a_decoded_request_has_them(content: dict[str, Any], indent: int | None) -> None:
    refused = isinstance(apply(Rules(), json.dumps(content, indent=indent), profile=TEXT), Refusal)
    assert refused == foreign(content)
