# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients that people use, through the frontdoor, against the real engine: what it says is what they get.

They ask the model that sees, which stays served. The one that embeds has its turn in the tests of the switch.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.canary import png
from clients.line import Line, same
from page.browser import started
from page.chat import NUMBERS, answered, say, visit
from system.product import COLOUR_QUESTION, QUESTION, ROOT, Frontdoor, picture, play

# what anthropic's client has no parameter for
EXACT = {"temperature": 0}


@pytest.fixture(scope="module")
def served(frontdoor: Frontdoor) -> str:
    """What the model is called, and calls itself: whatever was served before, it is the one that takes pictures."""
    status = frontdoor.status()
    if (status["model_slot"]["name"], status["verified"]) != ("tiny-vision", True):
        switched = play(ROOT / "switch.yml", "-e", "profile=tiny-vision")
        assert switched.code == 0, switched.output
    assert "image" in frontdoor.status()["model_slot"]["modalities"]
    return "tiny-vision"


@pytest.fixture(scope="module", params=["heard", "installed"])
def base_url(request: pytest.FixtureRequest, between: Line, frontdoor: Frontdoor) -> str:
    """Of the frontdoor that is listened to, and of the one that the role installed."""
    return between.url if request.param == "heard" else frontdoor.url


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=180) as client:
        yield client


def test_openai_chat(client: openai.OpenAI, base_url: str, between: Line, served: str) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=served, messages=messages, temperature=0, max_tokens=32)
    assert answer.choices[0].message.content is not None
    assert served in answer.choices[0].message.content
    same(between, base_url, "/v1/chat/completions")


def test_openai_chat_as_a_stream(client: openai.OpenAI, base_url: str, between: Line, served: str) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    stream = client.chat.completions.create(
        model=served,
        messages=messages,
        temperature=0,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert served in text
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens > 0
    body = same(between, base_url, "/v1/chat/completions")
    assert not body or body.endswith(b"data: [DONE]\n\n")


def test_openai_responses(client: openai.OpenAI, base_url: str, between: Line, served: str) -> None:
    answer = client.responses.create(model=served, input=QUESTION, temperature=0, max_output_tokens=32)
    assert served in answer.output_text
    same(between, base_url, "/v1/responses")
    with client.responses.stream(model=served, input=QUESTION, temperature=0, max_output_tokens=32) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert served in final.output_text
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in kinds
    same(between, base_url, "/v1/responses")


def test_openai_completions(client: openai.OpenAI, base_url: str, between: Line, served: str) -> None:
    answer = client.completions.create(model=served, prompt=QUESTION, temperature=0, max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    same(between, base_url, "/v1/completions")


def test_what_the_model_cannot_do_is_refused_in_the_engines_words(
    client: openai.OpenAI, base_url: str, between: Line, served: str
) -> None:
    with pytest.raises(openai.APIStatusError) as embedding:
        client.embeddings.create(model=served, input="text")
    assert embedding.value.status_code in (400, 404, 501)
    same(between, base_url, "/v1/embeddings")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": QUESTION}])
    same(between, base_url, "/v1/chat/completions")
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=served, messages=[{"role": "user", "content": QUESTION}], temperature=-1)
    same(between, base_url, "/v1/chat/completions")


def test_openai_models(client: openai.OpenAI, base_url: str, between: Line, served: str) -> None:
    """The one answer that gets something added, under a key of its own."""
    (model,) = client.models.list().data
    assert model.id == served
    if base_url == between.url:
        given, got = between.last("/v1/models")
        ours = json.loads(got.body)
        assert ours["data"][0].pop("b70")["limits"]
        assert ours == json.loads(given.body)
    else:
        assert model.model_extra is not None
        assert model.model_extra["b70"]["verified"] is True


def test_anthropic(base_url: str, between: Line, served: str) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    with anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0, timeout=180) as client:
        answer = client.messages.create(model=served, max_tokens=32, messages=messages, extra_body=EXACT)
        assert served in getattr(answer.content[0], "text", "")
        same(between, base_url, "/v1/messages")
        with client.messages.stream(model=served, max_tokens=32, messages=messages, extra_body=EXACT) as stream:
            text = "".join(stream.text_stream)
        assert served in text
        same(between, base_url, "/v1/messages")
        with pytest.raises(anthropic.APIStatusError) as refused:
            client.messages.create(model=served, max_tokens=-1, messages=messages)
        assert refused.value.status_code == 400
        same(between, base_url, "/v1/messages")


def test_curl(base_url: str, between: Line, served: str, tmp_path: Path) -> None:
    def curl(*words: str) -> bytes:
        argv = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "180", *words]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout

    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "temperature": 0}
    url = f"{base_url}/v1/chat/completions"
    typed = ("--header", "Content-Type: application/json")
    got = curl(url, *typed, "--data", json.dumps(body))
    assert served in json.loads(got)["choices"][0]["message"]["content"]
    assert same(between, base_url, "/v1/chat/completions") in (b"", got)
    got = curl("--no-buffer", url, *typed, "--data", json.dumps({**body, "stream": True}))
    assert got.endswith(b"data: [DONE]\n\n")
    assert same(between, base_url, "/v1/chat/completions", counted=True) in (b"", got)
    # a body that curl announces with Expect: 100-continue, and one in chunks
    long = tmp_path / "long.json"
    long.write_text(json.dumps({**body, "user": "x" * 2_000_000}))
    for more in ((), ("--header", "Transfer-Encoding: chunked")):
        got = curl(url, *typed, *more, "--data-binary", f"@{long}")
        assert served in json.loads(got)["choices"][0]["message"]["content"]
        assert same(between, base_url, "/v1/chat/completions") in (b"", got)


@pytest.mark.parametrize("colour", ["red", "green", "blue"])
def test_images(client: openai.OpenAI, base_url: str, between: Line, served: str, colour: str) -> None:
    messages: Any = [{"role": "user", "content": picture(colour)}]
    answer = client.chat.completions.create(model=served, messages=messages, temperature=0, max_tokens=8)
    assert answer.choices[0].message.content == colour.capitalize()
    same(between, base_url, "/v1/chat/completions")
    stream = client.chat.completions.create(model=served, messages=messages, temperature=0, max_tokens=8, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == colour.capitalize()
    same(between, base_url, "/v1/chat/completions", counted=True)


def test_the_chat_page(served: str, frontdoor: Frontdoor, tmp_path: Path) -> None:
    """In a browser, with words and with a picture."""
    file = tmp_path / "blue.png"
    file.write_bytes(png(48, 40, "blue"))
    with started() as browser:
        visit(browser, f"{frontdoor.url}/")
        browser.press("details summary")
        browser.type("#temperature", "0")
        say(browser, QUESTION)
        told = answered(browser)
        assert served in told
        assert NUMBERS.search(told), told
        browser.press("#new")
        browser.choose("#images", [file])
        browser.wait("document.querySelectorAll('.pictures img').length")
        say(browser, COLOUR_QUESTION)
        assert "Blue" in answered(browser)
        assert browser.complaints == []
