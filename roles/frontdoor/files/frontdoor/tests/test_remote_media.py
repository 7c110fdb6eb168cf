# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where no domain is allowed, no request makes the engine fetch anything, however it names it."""

from __future__ import annotations

import pytest
from rulings import CHAT, IMAGE, apply

from frontdoor.config import Rules
from frontdoor.errors import Refusal

NOWHERE = Rules(allowed_media_domains=())
ALL = {"modalities": ["text", "image", "audio", "video"], "served_model_name": "tiny-a"}
URL = "http://169.254.169.254/latest/meta-data"


def within(part: str) -> str:
    return '{"messages":[{"role":"user","content":[{"type":"text","text":"x"},' + part + "]}]}"


@pytest.mark.parametrize(
    "body",
    [
        *(
            within(f'{{"type":"{kind}","{kind}":{{"url":"{URL}"}}}}')
            for kind in ("image_url", "audio_url", "video_url")
        ),
        within(f'{{"type":"image_url","image_url":"{URL}"}}'),
        within('{"type":"image_url","image_url":{"detail":"auto","url":"HTTPS://x/y.png"}}'),
        within(f'{{"image_url":{{"url":"{URL}"}},"type":"image_url"}}'),
        # without a type, and with one that is not looked at
        within(f'{{"image_url":"{URL}"}}'),
        within(f'{{"type":"text","uuid":"a","video_url":{{"url":"{URL}"}}}}'),
        # spelt with escapes
        within('{"type":"image_url","image_url":{"url":"\\u0068t\\u0054p:\\/\\/x"}}'),
        within('{"type":"image_url","im\\u0061ge_url":{"\\u0075rl":"https\\u003a//x"}}'),
        # as other APIs write it
        f'{{"input":[{{"type":"message","content":[{{"type":"input_image","image_url":"{URL}"}}]}}]}}',
        within(f'{{"type":"image","source":{{"type":"url","url":"{URL}"}}}}'),
        within(f'{{"source":{{"type":"url","url":"{URL}"}},"type":"document","title":"x"}}'),
        f'{{"messages":[{{"content":[{{"type":"tool_result","content":[{{"type":"image","source":{{"url":"{URL}"}}}}]}}]}}]}}',
        f'{{"queries":"x","documents":{{"content":[{{"type":"image_url","image_url":{{"url":"{URL}"}}}}]}}}}',
        within(f'{{"type":"image","image":"{URL}"}}'),
        within(f'{{"type":"video","url":"{URL}"}}'),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings", "/tokenize", "/score"])
def test_what_would_be_fetched_is_refused(body: str, path: str) -> None:
    result = apply(NOWHERE, body, path, profile=ALL)
    assert isinstance(result, Refusal)
    assert (result.status, result.code) == (400, "remote_media_refused")
    assert "engine.allowed_media_domains" in result.message
    assert "169.254" not in result.message


@pytest.mark.parametrize(
    "body",
    [
        within('{"type":"image_url","image_url":{"url":"data:image/png;base64,http://"}}'),
        within('{"type":"image","source":{"type":"base64","data":"http"},"cache_control":{"url":"x"}}'),
        within(f'{{"type":"text","text":"{URL}","url":"{URL}"}}'),
        within(f'{{"type":"search_result","source":"{URL}","content":[{{"type":"text","text":"image"}}]}}'),
        within('{"type":"input_audio","input_audio":{"data":"aHR0cDov","format":"wav"}}'),
        f'{{"messages":[{{"content":"image_url {URL}"}}],"metadata":{{"image_url":"{URL}"}}}}',
        f'{{"messages":[{{"tool_calls":[{{"function":{{"arguments":{{"image_url":"{URL}"}}}}}}]}}]}}',
        within('{"type":"image","source":{"type":"base64","data":"x"}},{"type":"image","source":{"data":"y"}}'),
        within('{"type":"image_url","image_url":null}'),
    ],
)
def test_what_nobody_fetches_passes_untouched(body: str) -> None:
    assert apply(NOWHERE, body, profile=ALL) == body


@pytest.mark.parametrize(
    "part",
    [
        f'{{"type":"image_url","image_url":{{"url":"{URL}","url":"data:x"}}}}',
        f'{{"type":"image_url","image_url":{{"url":"data:x"}},"image_url":{{"url":"{URL}"}}}}',
    ],
)
def test_a_url_that_is_named_twice_is_refused(part: str) -> None:
    result = apply(NOWHERE, within(part), profile=ALL)
    assert isinstance(result, Refusal)
    assert (result.status, result.code) == (400, "ambiguous_json")


def test_allowed_domains_are_the_engine_s_to_compare() -> None:
    body = within(f'{{"type":"image_url","image_url":{{"url":"{URL}"}}}}')
    assert apply(Rules(allowed_media_domains=("media.example.org",)), body, profile=IMAGE) == body
    # a profile that was rendered before there was such a list does not say
    assert apply(Rules(), body, profile=IMAGE) == body


def test_a_modality_that_is_not_taken_is_told_first() -> None:
    body = within(f'{{"type":"video_url","video_url":{{"url":"{URL}"}}}}')
    result = apply(NOWHERE, body, profile=IMAGE)
    assert isinstance(result, Refusal)
    assert result.code == "modality_unsupported"


@pytest.mark.interpreted
def test_a_profile_without_modalities_is_held_to_it_as_well() -> None:
    result = apply(NOWHERE, within(f'{{"image_url":"{URL}"}}'), profile=None)
    assert isinstance(result, Refusal)
    assert result.code == "remote_media_refused"
