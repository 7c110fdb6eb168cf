# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chat page in a real browser, before a frontdoor whose engine does as it is asked."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from page.browser import Browser
from page.chat import LAST, NUMBERS, READY, answered, say, visit
from page.show import Show
from page.test_page import PALE, WIDE

PROGRAM = Path(__file__).with_name("chatting.py")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@contextlib.contextmanager
def talking(**settings: Any) -> Iterator[Show]:
    with Show(json.dumps(settings), PROGRAM) as show:
        yield show


@pytest.fixture(scope="module")
def show() -> Iterator[Show]:
    with talking(modalities=["text", "image"]) as show:
        yield show


def test_an_answer_is_streamed_with_its_numbers(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    assert browser.run("document.getElementById('model').innerText") == "Tiny A"
    say(browser, "paced please")
    # the first part is shown before the others are there
    browser.wait(LAST.format("innerText"), lambda told: told.strip() == "tiny-a")
    time.sleep(0.2)
    with urllib.request.urlopen(show.url + "version", timeout=60):
        pass
    told = answered(browser)
    assert told.startswith("tiny-a heard: paced please")
    assert (numbers := NUMBERS.search(told)), told
    assert numbers["rate"], told
    say(browser, "short please")
    assert "cut at the limit of tokens" in answered(browser)
    assert browser.complaints == []


def test_a_conversation_is_sent_as_it_was_and_reasoning_is_not(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    for text in ("think hard", "tags too", "refuse this", "history"):
        say(browser, text)
        told = answered(browser)
    assert json.loads(told.partition("\n")[0]) == [
        {"role": "user", "content": "think hard"},
        {"role": "assistant", "content": "**42**"},
        {"role": "user", "content": "tags too"},
        {"role": "assistant", "content": "then that"},
        {"role": "user", "content": "history"},
    ]
    browser.press("#new")
    say(browser, "history")
    assert json.loads(answered(browser).partition("\n")[0]) == [{"role": "user", "content": "history"}]


@pytest.mark.parametrize(
    ("asked", "reasoning", "answer"), [("think", "step by step", "42"), ("tags", "first this", "then that")]
)
def test_reasoning_is_folded(browser: Browser, show: Show, asked: str, reasoning: str, answer: str) -> None:
    visit(browser, show.url)
    say(browser, asked)
    told = answered(browser)
    assert answer in told
    assert reasoning not in told
    browser.press("article.assistant summary")
    assert reasoning in str(browser.run(LAST.format("innerText")))
    assert browser.complaints == []


def test_an_answer_can_be_copied_and_generated_anew(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    browser.allow("clipboard-read", "clipboard-write")
    say(browser, "think hard")
    answered(browser)
    browser.press("article.assistant .copy")
    browser.wait("document.querySelector('.copy').innerText", lambda text: text == "Copied")
    # as the model wrote it, without its reasoning
    assert browser.run("navigator.clipboard.readText()") == "**42**"
    browser.press("#again")
    assert "42" in answered(browser)
    assert browser.run("document.querySelectorAll('article').length") == 2
    # what a page without TLS has
    browser.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    say(browser, "plain")
    answered(browser)
    browser.run("[...document.querySelectorAll('.copy')].at(-1).click()")
    browser.wait("[...document.querySelectorAll('.copy')].at(-1).innerText", lambda text: text == "Copied")
    # only the last answer can be generated anew
    assert browser.run("document.querySelectorAll('#again').length") == 1
    assert browser.complaints == []


def test_stop_ends_the_generation(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    say(browser, "forever")
    browser.wait(LAST.format("innerText"), lambda told: "on on on" in told)
    assert browser.run("document.getElementById('send')") is None
    browser.press("#stop")
    told = answered(browser)
    assert "on on on" in told
    assert "Stopped." in told
    assert "TTFT" in told
    # the engine is told as well
    active = "fetch('/status').then((answer) => answer.json()).then((told) => told.frontdoor.active_generations)"
    browser.wait(active, lambda value: value == 0)
    say(browser, "and now")
    assert "heard: and now" in answered(browser)
    assert browser.complaints == []


def test_what_a_model_writes_runs_and_loads_nothing(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    say(browser, "markdown")
    answered(browser)
    inside = LAST.format("querySelectorAll({!r}).length")
    assert browser.run(inside.format("h1, table, pre code")) == 3
    assert "<script>" in browser.run(LAST.format("innerText"))
    assert browser.run(inside.format("script, img, form, input, style, [onclick], [onerror]")) == 0
    about = "[a.getAttribute('href'), a.rel, a.target]"
    links = browser.run(f"[...document.querySelectorAll('article a')].map((a) => {about})")
    # a picture is a link as well
    assert [href for href, _rel, _target in links[:2]] == ["http://192.0.2.1/leak.png", "https://example.org/"]
    assert {(rel, target) for _href, rel, target in links} == {("noopener noreferrer", "_blank")}
    assert not [href for href, _rel, _target in links if "javascript" in (href or "")]
    assert browser.run("document.title") == "Chat: Tiny A"
    # nor would the browser have let it
    blocked = "(() => { try { document.body.innerHTML += '<p>'; return false; } catch { return true; } })()"
    assert browser.run(blocked) is True
    assert [line for line in browser.complaints if "TrustedHTML" not in line] == []


def test_pictures_are_sent_where_the_model_sees(browser: Browser, show: Show, tmp_path: Path) -> None:
    file = tmp_path / "dot.png"
    file.write_bytes(PNG)
    visit(browser, show.url)
    browser.choose("#images", [file, file])
    browser.wait("document.querySelectorAll('.pictures img').length", lambda count: count == 2)
    browser.press(".pictures button:last-child")
    say(browser, "What is this?")
    assert "pictures: data:image/png\n" in answered(browser)
    assert browser.run("document.querySelectorAll('article.user img').length") == 1
    assert browser.run("document.querySelectorAll('.pictures img').length") == 0
    assert browser.complaints == []


def test_the_model_is_chosen_where_several_serve(browser: Browser) -> None:
    with talking(second=True) as show:
        visit(browser, show.url)
        assert browser.run("[...document.getElementById('model').options].map((one) => one.text)") == [
            "Tiny A",
            "Tiny B",
        ]
        # only the second one sees
        assert browser.run("document.getElementById('attach')") is None
        browser.choose("#model", "tiny-b")
        browser.wait("document.getElementById('attach')")
        say(browser, "hi")
        assert answered(browser).startswith("tiny-b heard: hi")
        browser.choose("#model", "tiny-a")
        say(browser, "hi")
        assert answered(browser).startswith("tiny-a heard: hi")
        assert browser.complaints == []


def test_settings_are_sent_where_they_are_set(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    say(browser, "settings")
    assert json.loads(answered(browser).partition("\n")[0]) == {"temperature": None, "max_tokens": None}
    browser.press(".settings summary")
    browser.type("#system", "Be brief.")
    browser.type("#temperature", "0.5")
    browser.type("#max-tokens", "7")
    say(browser, "settings")
    assert json.loads(answered(browser).partition("\n")[0]) == {"temperature": 0.5, "max_tokens": 7}
    browser.press("#new")
    say(browser, "history")
    assert json.loads(answered(browser).partition("\n")[0])[0] == {"role": "system", "content": "Be brief."}


def test_what_goes_wrong_is_said_and_can_be_tried_again(browser: Browser, show: Show) -> None:
    visit(browser, show.url)
    say(browser, "refuse this")
    assert "the prompt is too odd" in answered(browser)
    say(browser, "break")
    told = answered(browser)
    assert "half an" in told
    assert "the engine ended the connection in the middle of the response" in told
    browser.press("#again")
    browser.wait("document.querySelectorAll('article.assistant').length", lambda count: count == 2)
    assert "half an" in answered(browser)


def test_a_closed_slot_is_told_until_it_opens(browser: Browser) -> None:
    with talking() as show:
        closed = {"phase": "stopped", "open": False, "verified": False, "reason": "slot main was stopped on request"}
        show.tell(closed)
        browser.look(1000, 800)
        browser.open(show.url + "chat")
        browser.wait("document.getElementById('trouble')?.innerText", lambda told: bool(told) and "stopped" in told)
        assert browser.run("document.getElementById('send').disabled")
        show.tell({})
        browser.wait(READY)
        assert browser.run("document.getElementById('trouble')") is None


def test_a_key_is_asked_for_and_kept_in_memory_only(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[keys]\nanna = "sha256:{hashlib.sha256(b"s-anna").hexdigest()}"\n')
    with talking(keys_file=str(file)) as show:
        # as from another machine
        url = show.url.replace("127.0.0.1", "127.0.0.2") + "chat"
        browser.look(1000, 800)
        browser.open(url)
        browser.wait("document.getElementById('key')")
        assert browser.run("document.getElementById('send').disabled")
        browser.type("#key", "s-wrong")
        browser.press("#key", "Enter")
        wrong = "That API key is not known here."
        browser.wait("document.querySelector('form.key p')?.innerText", lambda told: told == wrong)
        browser.type("#key", "s-anna")
        browser.press("#key", "Enter")
        browser.wait(READY)
        say(browser, "hello")
        assert answered(browser).startswith("tiny-a heard: hello")
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert "anna" not in browser.run(kept)
        browser.open("about:blank")
        browser.open(url)
        browser.wait("document.getElementById('key')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_can_be_read(browser: Browser, show: Show, dark: bool) -> None:
    visit(browser, show.url)
    for text in ("think", "markdown", "refuse", "hello"):
        say(browser, text)
        answered(browser)
    for width in (1200, 700, 340):
        browser.look(width, 800, dark=dark)
        assert browser.run(WIDE) == [], f"at {width}"
        assert browser.run(PALE) == [], f"at {width}"
    assert browser.run("document.documentElement.lang") == "en"
    assert browser.run("document.querySelector('[role=log]').getAttribute('aria-label')") == "Conversation"


def test_the_status_page_leads_to_it(show: Show) -> None:
    with urllib.request.urlopen(show.url, timeout=60) as answer:
        assert b'<a href="chat">' in answer.read()
