# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page in this machine's Chromium, headless, driven by Playwright, which brings no browser of its own here."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Error, Page, sync_playwright

from machine import LIMIT_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """Return the Chromium of this machine; raise RuntimeError that says how to get one."""
    named = os.environ.get("B70_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("no Chromium is here: sh tests/tools/browser.sh, or name one: B70_CHROMIUM=/path/to/chrome")
    return found


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Yield a page of a browser that ends with the block."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=program(), args=flags, timeout=LIMIT_S * 1000)
        try:
            yield Browser(chromium.new_page(no_viewport=True))
        finally:
            chromium.close()


# The status page asks every two seconds, the chat page every five while it is closed; here ten times as often. Their
# limits for an answer stay.
OFTEN = """
(() => {
  const real = window.setTimeout;
  window.setTimeout = (done, after, ...words) => real(done, after >= 2000 ? after / 10 : after, ...words);
})()
"""


class Browser:
    """One page. `complaints` are what the console shows: errors, refused assets, exceptions."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._protocol = page.context.new_cdp_session(page)
        self.complaints: list[str] = []
        page.add_init_script(OFTEN)
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location['url']}")

    def do(self, method: str, **params: Any) -> Any:
        """Run one command of the DevTools protocol, for what Playwright sets for a whole context only."""
        return self._protocol.send(method, params)

    def allow(self, *permissions: str) -> None:
        """Give pages these permissions, as a person who is asked would."""
        self._page.context.grant_permissions(list(permissions))

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be a screen of this size in CSS pixels, with this taste."""
        phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.do("Emulation.setDeviceMetricsOverride", **size)
        self._page.emulate_media(color_scheme="dark" if dark else "light")

    def open(self, url: str) -> None:
        """Go there, and wait for no more than its first bytes."""
        self._page.goto(url, wait_until="commit")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        return self._page.evaluate(script)

    def wait(self, script: str, holds: Callable[[Any], bool] = bool) -> Any:
        """Wait until the value of an expression is as wanted, and return it."""
        deadline = time.monotonic() + LIMIT_S
        value: Any = "unknown"
        while True:
            # between two pages there is none to ask
            with contextlib.suppress(Error):
                value = self.run(script)
                if holds(value):
                    return value
            assert time.monotonic() < deadline, f"{script} stays {value!r}"
            self._page.wait_for_timeout(50)

    def type(self, selector: str, text: str) -> None:
        """Write into a field as a person does."""
        self._page.fill(selector, text)

    def press(self, selector: str, key: str = "") -> None:
        """Click an element, or press a key in it."""
        if key:
            self._page.press(selector, key)
        else:
            self._page.click(selector)

    def choose(self, selector: str, value: str | list[Path]) -> None:
        """Choose an option of a list, or files of a field."""
        if isinstance(value, str):
            self._page.select_option(selector, value)
        else:
            self._page.set_input_files(selector, value)

    def shoot(self, file: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG; `whole`: all of the page, not only what fits the screen."""
        self._page.screenshot(path=file, full_page=whole)
