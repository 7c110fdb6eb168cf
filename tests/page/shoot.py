# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the status page, for people to look at: python tests/page/shoot.py FOLDER [PHASE ...]

Without a phase all of them. FOLDER/docs-*.png are the two that docs/images has.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from page.browser import Browser
from page.show import Show, phases

SCREENS = {"desktop": (1200, 800), "phone": (390, 844)}


def take(browser: Browser, url: str, file: Path, *, dark: bool, screen: str, whole: bool = True) -> None:
    """One picture, when the page has settled."""
    browser.look(*SCREENS[screen], dark=dark)
    browser.open(url)
    browser.wait("document.readyState === 'complete' && !document.getElementById('all').hidden")
    time.sleep(1.2)
    browser.shoot(file, whole=whole)


def main() -> int:
    """Take the pictures and say what the browser complained about."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or list(phases())
    folder.mkdir(parents=True, exist_ok=True)
    with Show() as show, Browser() as browser:
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
        print("\n".join(browser.complaints))
    return 0


if __name__ == "__main__":
    sys.exit(main())
