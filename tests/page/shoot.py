# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the status page, for people to look at: python tests/page/shoot.py FOLDER [PHASE ...]

Without a phase all of them, and what is no phase: an engine that is gone, a frontdoor that hangs, one that wants a key,
a host with two slots.
FOLDER/docs-*.png are the two that docs/images has.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from page.browser import Browser, started
from page.show import Show, phases, slots

SCREENS = {"desktop": (1200, 800), "phone": (375, 812)}


def take(browser: Browser, url: str, file: Path, *, dark: bool, screen: str, whole: bool = True) -> None:
    """One picture, when the page has settled."""
    browser.look(*SCREENS[screen], dark=dark)
    browser.open(url)
    browser.wait("document.readyState === 'complete' && !document.getElementById('all').hidden")
    time.sleep(1.2)
    browser.shoot(file, whole=whole)


def take_all(browser: Browser, folder: Path, name: str) -> None:
    """Pictures of the page that is open."""
    for screen, size in SCREENS.items():
        for dark in (False, True):
            browser.look(*size, dark=dark)
            time.sleep(0.3)
            browser.shoot(folder / f"{name}-{screen}-{'dark' if dark else 'light'}.png", whole=True)


def no_phases(browser: Browser, folder: Path) -> None:
    """What can be wrong beside the slot."""
    told = "document.getElementById('phase')?.innerText"
    with Show() as show:
        browser.open(show.url)
        browser.wait(told, lambda value: value == "Serving, verified")
        time.sleep(3)
        show.kill_engine()
        browser.wait(told, lambda value: value == "Engine does not answer")
        time.sleep(3)
        take_all(browser, folder, "engine-gone")
        show.hang()
        browser.wait(told, lambda value: value == "No answer")
        take_all(browser, folder, "hangs")
    keys = folder / "keys.toml"
    keys.write_text(f'[keys]\nanna = "sha256:{hashlib.sha256(b"s-anna").hexdigest()}"\n')
    with Show(str(keys)) as show:
        browser.open(show.url.replace("127.0.0.1", "127.0.0.2"))
        browser.wait(told, lambda value: value == "Locked")
        take_all(browser, folder, "locked")


def two_slots(browser: Browser, folder: Path) -> None:
    """A host with two slots, of which either is chosen."""
    with Show(second="aux") as show:
        time.sleep(4)
        for state, changes in slots().items():
            show.tell(changes)
            for slot in ("main", "aux"):
                browser.open("about:blank")
                browser.open(f"{show.url}#slot={slot}")
                browser.wait("document.readyState === 'complete' && !document.getElementById('all').hidden")
                time.sleep(1.2)
                take_all(browser, folder, f"{state}-{slot}")


def main() -> int:
    """Take the pictures and say what the browser complained about."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or list(phases())
    folder.mkdir(parents=True, exist_ok=True)
    with Show() as show, started() as browser:
        time.sleep(4)
        for phase in wanted:
            show.tell(phases()[phase])
            for screen in SCREENS:
                for dark in (False, True):
                    file = folder / f"{phase}-{screen}-{'dark' if dark else 'light'}.png"
                    take(browser, show.url, file, dark=dark, screen=screen)
        show.tell(phases()["serving"])
        time.sleep(5)
        take(browser, show.url, folder / "docs-serving.png", dark=False, screen="desktop", whole=False)
        show.tell(phases()["switching"])
        take(browser, show.url, folder / "docs-switching.png", dark=True, screen="phone", whole=False)
        if not sys.argv[2:]:
            no_phases(browser, folder)
            two_slots(browser, folder)
        print("\n".join(browser.complaints))
    return 0


if __name__ == "__main__":
    sys.exit(main())
