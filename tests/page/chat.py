# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person does on the chat page, and sees there."""

from __future__ import annotations

import re

from page.browser import Browser

# There is no rate if all tokens arrive within the time that the page takes for the network's.
NUMBERS = re.compile(r"TTFT \d+\.\d\d s · (?:(?P<rate>[\d,]+\.\d) tok/s · )?\d+ tokens")
LAST = "[...document.querySelectorAll('article.assistant')].at(-1)?.{}"
READY = "document.getElementById('send') && !document.getElementById('send').disabled"


def visit(browser: Browser, url: str, width: int = 1000) -> None:
    """Open the chat page of the frontdoor at `url`, which ends with a slash."""
    browser.look(width, 800)
    browser.complaints.clear()
    browser.open("about:blank")
    browser.open(url + "chat")
    browser.wait(READY)


def say(browser: Browser, text: str) -> None:
    browser.type("#text", text)
    browser.press("#text", "Enter")


def answered(browser: Browser) -> str:
    """Return the last answer, when it has ended."""
    browser.wait(LAST.format("getAttribute('aria-busy')"), lambda busy: busy == "false")
    return str(browser.run(LAST.format("innerText")))
