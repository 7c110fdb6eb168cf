# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status page in a real browser: that it tells the truth in every phase, and that everybody can read it."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from page.browser import Browser
from page.show import Show, phases, slots

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = "qwen36-35b-a3b-int4-autoround", "gemma4-12b-it-int4-autoround-c8"
TITLE = "Gemma 4 12B IT, INT4 AutoRound"
MOVE = f"{OLD} → {NEW}"
SHOWN = "document.readyState === 'complete' && !document.getElementById('all').hidden"
# Text whose contrast to what is behind it is below 4.5 (WCAG AA), or below 3 where it is large.
PALE = r"""
(() => {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = (node) => {
    const colour = parts(getComputedStyle(node).backgroundColor);
    return colour.length < 4 || colour[3] > 0 ? colour : behind(node.parentElement);
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim(), node = walk.currentNode.parentElement, style = getComputedStyle(node);
    if (!text || !node.checkVisibility() || node.matches("script, style")) continue;
    const [a, b] = [light(parts(style.color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(`${text}: ${ratio.toFixed(2)}`);
  }
  return found;
})()
"""
# What sticks out to the right.
WIDE = """
[...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility() && !node.closest("svg, #progress"))
  .filter((node) => node.getBoundingClientRect().right > document.documentElement.clientWidth + .5)
  .map((node) => node.outerHTML.slice(0, 80))
"""
# Counts what the page asks from now on: in all, and at once.
COUNT = """
(() => {
  const real = window.fetch;
  let now = 0;
  window.asked = window.most = 0;
  window.fetch = (...words) => {
    window.asked += 1;
    window.most = Math.max(window.most, now += 1);
    return real(...words).finally(() => { now -= 1; });
  };
})()
"""
FIRST = re.compile(r"\d+ ms|[\d.]+ s")
# A time of another day has its day in front; one of today has none, but just after midnight few are of today.
DAY = "[A-Z][a-z]{2} [0-9]{1,2}, [0-9]{2}:[0-9]{2}"
TIME = f"(?:[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}|{DAY})"
NOT_KNOWN = "\N{EN DASH}"
NO_STORAGE = (
    "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException('off', 'SecurityError') }})"
)
ENTER = "field = document.getElementById('key'), field.value = {!r}, field.form.requestSubmit()"


@pytest.fixture(scope="module")
def show() -> Iterator[Show]:
    with Show() as show:
        yield show


def text(browser: Browser, name: str) -> str:
    return str(browser.run(f"document.getElementById({name!r}).innerText"))


def visit(browser: Browser, show: Show, phase: str, width: int = 1200, *, dark: bool = False) -> None:
    """Open the page of a slot in that phase."""
    show.tell(phases()[phase])
    browser.look(width, 800, dark=dark)
    browser.complaints.clear()
    browser.open("about:blank")
    browser.open(show.url)
    browser.wait(SHOWN)


TOLD = {
    "serving": ("Serving, verified", TITLE, "Takes text and image, 32,768 tokens of context."),
    "unverified": ("Serving, not verified", TITLE, "has not given its canary answers"),
    "degraded": ("Serving, degraded", TITLE, "Takes text and image, 32,768 tokens of context."),
    "switching": ("Switching", MOVE, r"About \d+ s left."),
    "loading": ("Loading", MOVE, "before anyone is let in."),
    "settling": ("Loading", NEW, r"before anyone is let in. \d+ s so far; how long it takes is not known yet."),
    "verifying": ("Verifying", MOVE, r"before anyone is let in. \d+ s so far; how long it takes is not known yet."),
    "overdue": ("Verifying", MOVE, "It takes longer than the 64 s it took the last time."),
    "back": ("Switching", f"{NEW} → {OLD}", "no new requests are taken"),
    "stopping": ("Stopping", NEW, "no new requests are taken"),
    "stopped": ("Stopped", "No model is served", "slot main was stopped on request"),
    "idle": ("Idle", "tiny-a", "^Idle since .+, because nobody asked for it.$"),
    "failed": ("Failed", "No model is served", "b70ctl status"),
}


@pytest.mark.parametrize("phase", TOLD)
def test_every_phase_is_told_as_it_is(browser: Browser, show: Show, phase: str) -> None:
    word, headline, line = TOLD[phase]
    visit(browser, show, phase)
    browser.wait("document.getElementById('phase').innerText", lambda value: value == word)
    assert text(browser, "name") == headline
    assert re.search(line, text(browser, "line")), text(browser, "line")
    assert browser.run("document.title") == f"{word}: {headline}"
    reason = text(browser, "reason") if not browser.run("document.getElementById('reason').hidden") else ""
    assert ("a canary answer was wrong" in reason) is (phase in ("failed", "back")), reason
    # how far it is stands there where that is known, and only then
    far = browser.run(
        "(b => b.hidden ? null : b.getAttribute('aria-valuenow') ?? '?')(document.getElementById('progress'))"
    )
    moving = ("switching", "loading", "settling", "verifying", "overdue", "back")
    assert (far is None) is (phase not in moving), far
    if phase == "switching":
        assert 30 < int(far) < 98
    if phase == "overdue":
        assert int(far) == 98
    if phase == "verifying":
        assert far == "?"
    assert browser.run("document.getElementById('try').hidden") is (phase not in ("serving", "unverified", "degraded"))
    assert browser.complaints == []


def test_replicas_are_there_where_there_are_several(browser: Browser, show: Show) -> None:
    visit(browser, show, "degraded")
    browser.wait("document.getElementById('replicas').innerText", lambda value: "refused the connection" in value)
    rows = browser.run("[...document.querySelectorAll('#replicas tbody tr')].map((row) => row.innerText)")
    assert len(rows) == 4
    for number, words in enumerate(("serving", "serving", "is being started again", "refused the connection")):
        assert words in rows[number]
        assert "of 2" in rows[number]
    assert text(browser, "reason") == "2 of 4 replicas serve."
    visit(browser, show, "serving")
    assert browser.run("document.getElementById('several').hidden")


WATCHED = {
    "serving": ("Serving, verified", ()),
    "watched": (
        "Serving, verified",
        ("busy, looked TIME", "DAY, TIME: started the engine anew (done): UNIT is wedged"),
    ),
    "unwatched": ("Serving, verified", ("silent since TIME",)),
    "wedged": ("Engine is wedged", ("wedged, looked TIME", "TIME: reported it: UNIT is wedged")),
    "restarting": ("Verifying", ("wedged, looked TIME",)),
    "half-wedged": ("Engine is wedged", ("0 busy, 1 wedged, looked TIME",)),
}
NEXT = ("tried again at TIME: the engine failed; tried twice", "nothing, all is as wanted")


def told_as(words: str) -> str:
    """What matches the words."""
    pattern = re.escape(words).replace(r"DAY,\ TIME", "DAY")
    for name, what in (("TIME", TIME), ("DAY", DAY), ("UNIT", r"\S+\.service")):
        pattern = pattern.replace(name, what)
    return pattern


@pytest.mark.parametrize("phase", WATCHED)
def test_what_the_watchdog_saw_and_did_is_there(browser: Browser, show: Show, phase: str) -> None:
    word, expected = WATCHED[phase]
    visit(browser, show, phase)
    browser.wait("document.getElementById('phase').innerText", lambda value: value == word)
    facts = browser.run(
        "Object.fromEntries([...document.querySelectorAll('#facts dt')]"
        ".map((name) => [name.innerText, name.nextElementSibling.innerText]))"
    )
    told = [facts[name] for name in ("Watchdog", "What it did last") if name in facts]
    assert len(told) == len(expected)
    for value, words in zip(told, expected, strict=True):
        assert re.match(told_as(words), value), value
    if expected:
        assert facts["Wanted"].endswith(" is the committed profile")
        assert re.match(told_as(NEXT[phase == "watched"]), facts["Next"]), facts["Next"]
    if word == "Engine is wedged":
        assert "nothing has moved for 3 min." in text(browser, "reason")
    if phase == "half-wedged":
        rows = browser.run("[...document.querySelectorAll('#replicas tbody tr')].map((row) => row.cells[2].innerText)")
        assert rows == ["serving", "wedged"]
    assert browser.complaints == []


ROWS = (
    "[...document.querySelectorAll('#slot-table tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
)
CHOSEN = "document.querySelector('#slot-table [aria-current]')?.innerText"


@pytest.fixture(scope="module")
def two() -> Iterator[Show]:
    with Show(second="aux") as show:
        yield show


def visit_two(browser: Browser, show: Show, state: str, where: str = "", width: int = 1200) -> None:
    """Open the page of a host with two slots, of which the second is in that state."""
    show.tell(slots()[state])
    browser.look(width, 800)
    browser.complaints.clear()
    browser.open("about:blank")
    browser.open(show.url + where)
    browser.wait(SHOWN)


def test_one_slot_needs_no_table_of_slots(browser: Browser, show: Show) -> None:
    visit(browser, show, "serving")
    assert browser.run("document.getElementById('slot-list').hidden")
    assert text(browser, "permits-name") == "Slots in use"
    # what names a slot that is not there, shows that which is
    browser.open("about:blank")
    browser.open(f"{show.url}#slot=aux")
    browser.wait(SHOWN)
    assert text(browser, "phase") == "Serving, verified"
    assert browser.complaints == []


def test_every_slot_has_a_row_and_its_details_where_it_is_chosen(browser: Browser, two: Show) -> None:
    visit_two(browser, two, "two-slots")
    rows = browser.wait(ROWS, lambda rows: len(rows) == 2 and rows[1][5] == "2 of 4")
    of_main = [NEW, NEW.removesuffix("-c8"), "Serving, verified", "1 of 1", "none", "busy"]
    assert [rows[0][0], *rows[0][1:4], rows[0][5], *rows[0][7:]] == ["main", *of_main]
    of_aux = ["qwen3-4b-instruct-2507-fp8", "qwen3-4b-instruct", "Serving, degraded", "2 of 4", "none"]
    assert [rows[1][0], *rows[1][1:4], rows[1][5], rows[1][7]] == ["aux", *of_aux]
    assert rows[1][8] == "0 busy, 1 idle, 2 unknown, 3 unknown"
    assert all(re.fullmatch(TIME, row[4]) and re.fullmatch(r"\d of [48]", row[6]) for row in rows)
    assert (text(browser, "phase"), text(browser, "name"), browser.run(CHOSEN)) == (
        "main: Serving, verified",
        TITLE,
        "main",
    )
    assert browser.run("document.getElementById('several').hidden")
    assert text(browser, "permits-name") == "Permits in use"
    # with the keyboard, whose place stays while the page is drawn anew
    browser.run("document.querySelector('#slot-table tbody tr:last-child a').focus()")
    browser.press("#slot-table tbody tr:last-child a", "Enter")
    browser.wait("document.getElementById('phase').innerText", lambda value: value == "aux: Serving, degraded")
    assert text(browser, "name") == "Qwen3 4B Instruct 2507, FP8"
    assert (text(browser, "reason"), text(browser, "limit")) == ("2 of 4 replicas serve.", "of 4")
    assert browser.run("document.querySelectorAll('#replicas tbody tr').length") == 4
    assert '"model": "qwen3-4b-instruct"' in text(browser, "curl")
    # its own switches, of which it has none; and its own requests: visitors of main are turned away, its own is not
    assert text(browser, "switches") == "No switch is on record."
    browser.wait("document.querySelectorAll('#requests tbody tr').length", lambda value: value > 1)
    assert "refused" not in text(browser, "requests")
    browser.run(COUNT)
    browser.wait("window.asked", lambda value: value > 3)
    assert browser.run("document.activeElement.innerText") == browser.run(CHOSEN) == "aux"
    assert browser.complaints == []


@pytest.mark.parametrize(("state", "word"), [("two-slots-stopped", "Stopped"), ("two-slots-failed", "Failed")])
def test_a_slot_that_serves_nothing_is_told_beside_one_that_does(
    browser: Browser, two: Show, state: str, word: str
) -> None:
    visit_two(browser, two, state, "#slot=aux")
    browser.wait("document.getElementById('phase').innerText", lambda value: value == f"aux: {word}")
    assert browser.run("document.title") == f"aux: {word}: No model is served"
    main, aux = browser.run(ROWS)
    assert (main[3], aux[3]) == ("Serving, verified", word)
    assert aux[1:3] == [NOT_KNOWN] * 2
    assert aux[4] == NOT_KNOWN
    if word == "Failed":
        assert "b70ctl-aux status, b70ctl-aux history" in text(browser, "line")
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("state", ["two-slots", "two-slots-failed"])
def test_the_table_of_slots_can_be_read_and_heard(browser: Browser, two: Show, state: str, dark: bool) -> None:
    visit_two(browser, two, state, "#slot=aux")
    browser.wait(CHOSEN, lambda value: value == "aux")
    for width in (1200, 700, 340):
        browser.look(width, 800, dark=dark)
        assert browser.run(WIDE) == [], f"at {width}"
        assert browser.run(PALE) == [], f"at {width}"
    browser.look(1200, 800)
    spoken = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in browser.do("Accessibility.getFullAXTree")["nodes"]
        if not node.get("ignored")
    ]
    assert ("table", "Slots of this host") in spoken
    assert {("rowheader", "main"), ("rowheader", "aux"), ("link", "main"), ("link", "aux")} <= {*spoken}
    heads = ("Slot", "Profile", "Model", "Phase", "Verified", "Replicas", "Permits in use", "Queue", "Watchdog")
    assert {("columnheader", name) for name in heads} <= {*spoken}


def test_the_file_of_the_watchdog_is_what_its_schema_says() -> None:
    schema = json.loads((ROOT / "roles/slot/files/schema/liveness.schema.json").read_text())
    told = [*phases().values(), *(changes["second"] for changes in slots().values())]
    written = [changes["liveness"] for changes in told if "liveness" in changes]
    assert written
    for one in written:
        jsonschema.validate(one, schema)


def test_what_is_going_on_is_there(browser: Browser, show: Show) -> None:
    visit(browser, show, "serving")
    assert browser.wait("document.querySelectorAll('#requests tbody tr').length", lambda value: value > 3)
    assert "/v1/chat/completions" in text(browser, "requests")
    # more ask than there are slots for: they are told so, and are seen
    browser.wait("document.getElementById('requests').innerText", lambda value: "refused: busy (503)" in value)
    assert text(browser, "limit") == "of 8"
    assert browser.run("document.querySelectorAll('#slots i').length") == 8
    browser.wait("Number(document.getElementById('rate').innerText) || 0", lambda value: value > 0)
    assert text(browser, "rate-name") == "Tokens per second"
    browser.wait("document.getElementById('first').innerText", lambda value: bool(FIRST.fullmatch(value)))
    assert browser.run("document.querySelectorAll('#rates path').length") == 3
    switches = text(browser, "switches")
    assert "went back: phase canary: a canary answer was wrong or missing" in switches
    assert switches.count("done") == 2
    facts = text(browser, "facts")
    shown = ("Intel/gemma-4-12B-it-int4-AutoRound", "sha256:5e0c7d1a", f"b70-slot-main-{NEW}.service: answers")
    for expected in (*shown, f"{NEW}, production", ": 781 tok/s with 8 streams", ": 13 of 14 items passed"):
        assert expected in facts
    assert f'"model": "{NEW.removesuffix("-c8")}"' in text(browser, "curl")
    browser.wait(
        "[...document.querySelectorAll('#slots i.used')].map((mark) => getComputedStyle(mark).backgroundColor)",
        lambda colours: bool(colours) and "rgba(0, 0, 0, 0)" not in colours,
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phase", ["serving", "wedged", "degraded", "switching", "stopped", "failed"])
def test_it_can_be_read(browser: Browser, show: Show, phase: str, dark: bool) -> None:
    visit(browser, show, phase, dark=dark)
    for width in (1200, 700, 340):
        browser.look(width, 800, dark=dark)
        assert browser.run(WIDE) == [], f"at {width}"
        assert browser.run(PALE) == [], f"at {width}"
    page = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", page)[:3])) < 200) is dark, page


def test_it_can_be_heard(browser: Browser, show: Show) -> None:
    visit(browser, show, "serving")
    browser.wait("document.querySelectorAll('#requests tbody tr').length", lambda value: value > 0)
    nodes = browser.do("Accessibility.getFullAXTree")["nodes"]
    spoken: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            spoken.setdefault(node["role"]["value"], []).append(name)
    assert len(spoken["status"]) == 1
    assert set(spoken["table"]) == {"Last requests", "Last switches"}
    assert [name.partition(" in the last")[0] for name in spoken["image"]] == [
        "Tokens per second",
        "Time to first token",
        "Requests turned away",
    ]
    assert {"Path", "Result", "From → to"} <= set(spoken["columnheader"])
    assert spoken["heading"][0] == TITLE
    assert browser.run("document.documentElement.lang") == "en"


def test_a_frontdoor_with_keys_asks_for_one(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[keys]\nanna = "sha256:{hashlib.sha256(b"s-anna").hexdigest()}"\n')
    with Show(str(keys)) as show:
        browser.look(1200, 800)
        # as from another machine: this one may look without a key
        browser.open(show.url.replace("127.0.0.1", "127.0.0.2"))
        browser.wait("document.getElementById('phase')?.innerText", lambda value: value == "Locked")
        assert browser.run("document.getElementById('all').hidden")
        browser.run(ENTER.format("s-wrong"))
        browser.wait(
            "document.getElementById('line').innerText", lambda value: value == "That API key is not known here."
        )
        # it is not asked again and again what only a key can change: several would have been asked meanwhile
        browser.run(COUNT)
        time.sleep(1)
        assert browser.run("window.asked") == 0
        browser.run(ENTER.format("s-anna"))
        browser.wait("document.getElementById('line').innerText", lambda value: "Takes text" in value)
        assert text(browser, "phase") == "Serving, verified"
        assert "Authorization: Bearer KEY" in text(browser, "curl")


def test_an_engine_that_is_gone_is_not_said_to_serve(browser: Browser) -> None:
    with Show() as show:
        visit(browser, show, "serving")
        browser.wait("document.querySelectorAll('#requests tbody tr').length", lambda value: value > 1)
        show.kill_engine()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "Engine does not answer")
        assert text(browser, "name") == TITLE
        assert "the engine does not answer" in text(browser, "reason")
        browser.wait("document.getElementById('requests').innerText", lambda value: "engine unreachable (502)" in value)


def test_after_a_stop_no_rate_of_before_is_told_as_that_of_now(browser: Browser) -> None:
    shown = "['rate', 'first'].map((id) => document.getElementById(id).innerText)"
    with Show() as show:
        visit(browser, show, "serving")
        browser.wait(shown, lambda values: NOT_KNOWN not in values and float(values[0]) > 0)
        show.tell(phases()["stopped"])
        show.kill_engine()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "Stopped")
        browser.wait(shown, lambda values: values == [NOT_KNOWN] * 2)
        # what was before is still seen, as what was before
        assert text(browser, "rate-note").startswith("at most ")
        assert browser.run("document.querySelectorAll('#rates path').length") == 3
        assert browser.run("document.getElementById('rates').getAttribute('aria-label')").endswith(", now unknown")
        assert browser.complaints == []


def test_a_frontdoor_that_is_gone_is_not_shown_as_if_it_were_there(browser: Browser) -> None:
    with Show() as show:
        visit(browser, show, "serving")
        show.stop()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "No answer")
        assert re.fullmatch(told_as("What is below was true at TIME."), text(browser, "line"))
        assert float(browser.run("getComputedStyle(document.getElementById('all')).opacity")) < 1


def test_a_frontdoor_that_hangs_is_not_shown_as_alive(browser: Browser) -> None:
    with Show() as show:
        visit(browser, show, "serving")
        browser.run(COUNT)
        show.hang()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "No answer")
        assert text(browser, "reason") == "The frontdoor did not answer within 5 s."
        assert re.fullmatch(told_as("What is below was true at TIME."), text(browser, "line"))
        assert float(browser.run("getComputedStyle(document.getElementById('all')).opacity")) < 1
        # and is asked again, by one refresh at a time, which is two questions
        asked = browser.run("window.asked")
        browser.wait("window.asked", lambda value: value > asked)
        assert browser.run("window.most") == 2
        show.go_on()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "Serving, verified")
        assert browser.run("getComputedStyle(document.getElementById('all')).opacity") == "1"


def test_it_works_where_the_browser_keeps_nothing(browser: Browser, show: Show) -> None:
    script = browser.do("Page.addScriptToEvaluateOnNewDocument", source=NO_STORAGE)["identifier"]
    try:
        visit(browser, show, "serving")
        assert text(browser, "phase") == "Serving, verified"
        assert browser.complaints == []
    finally:
        browser.do("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_without_scripts_it_says_so(browser: Browser, show: Show) -> None:
    browser.do("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(show.url)
        browser.wait("document.readyState === 'complete' && document.querySelector('noscript') !== null")
        assert "JavaScript" in browser.run("document.querySelector('main').innerText")
        assert browser.run("document.querySelector('noscript a').href") == f"{show.url}status"
    finally:
        browser.do("Emulation.setScriptExecutionDisabled", value=False)


def test_browsers_ask_for_nothing_that_is_not_there(browser: Browser, show: Show) -> None:
    with urllib.request.urlopen(show.url, timeout=60) as answer:
        assert b'<link rel="icon" href="data:' in answer.read()
    visit(browser, show, "serving")
    icon = browser.run("document.querySelector('link[rel=icon]').href")
    assert icon.startswith("data:image/svg+xml,<svg")
    assert browser.run("document.querySelectorAll('link[rel=icon]').length") == 1
    assert browser.complaints == []


def write_keys(file: Path, **keys: str) -> None:
    lines = [f'{name} = "sha256:{hashlib.sha256(key.encode()).hexdigest()}"\n' for name, key in keys.items()]
    file.write_text("[keys]\n" + "".join(lines))


def test_keys_that_cannot_be_read_are_shown_until_they_can(browser: Browser, tmp_path: Path) -> None:
    keys, told = tmp_path / "keys.toml", "document.getElementById('keys').innerText"
    write_keys(keys, anna="s-anna")
    with Show(str(keys)) as show:
        visit(browser, show, "serving")
        assert browser.run("document.getElementById('keys').hidden")
        keys.write_text('[keys]\nanna = "s-of-somebody-who-wrote-it-by-hand"\n')
        browser.wait(told, lambda value: "the key 'anna' is not" in value)
        said = text(browser, "keys")
        assert said.startswith("A changed file of API keys cannot be used; the keys of before still count")
        assert "Put it right on the host, or run the role again." in said
        assert f"{keys}: " in said
        assert "by-hand" not in browser.run("document.body.innerText")
        # what is served is told as before
        assert text(browser, "phase") == "Serving, verified"
        for width, dark in itertools.product((1200, 700, 340), (False, True)):
            browser.look(width, 800, dark=dark)
            assert browser.run("document.getElementById('keys').checkVisibility()")
            assert browser.run(WIDE) == [], f"at {width}"
            assert browser.run(PALE) == [], f"at {width}"
        both = f"(warn({{keys_error: 'one', settings_error: 'two'}}), {told})"
        assert [line for line in browser.run(both).split("\n") if line in ("one", "two")] == ["one", "two"]
        # as other warnings look; asked in one go, because the page writes the reason's class at each look
        keys_look, reason_look = browser.run(
            "(reason = document.getElementById('reason'), reason.className = 'wait', reason.hidden = false,"
            " ['keys', 'reason'].map((name) => getComputedStyle(document.getElementById(name)).borderLeftColor))"
        )
        assert keys_look == reason_look
        write_keys(keys, anna="s-anna", berta="s-berta")
        browser.wait("document.getElementById('keys').hidden")
        assert browser.complaints == []
        # beside another trouble, and not beside none at all
        keys.write_text("[keys")
        browser.wait(told, lambda value: "not valid TOML" in value)
        show.tell(phases()["failed"])
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "Failed")
        assert "a canary answer was wrong" in text(browser, "reason")
        assert "not valid TOML" in text(browser, "keys")
        show.stop()
        browser.wait("document.getElementById('phase').innerText", lambda value: value == "No answer")
        assert browser.run("document.getElementById('keys').hidden")
