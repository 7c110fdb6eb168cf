# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the status page in every phase, for a person to look at.

python tests/page/shoot.py FOLDER [PHASE ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from page.browser import Browser
from page.show import Show, phases

SCREENS = {"desktop": (1200, 800), "phone": (390, 844)}


def main() -> int:
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with Show() as show, Browser() as browser:
        time.sleep(4)
        for phase, changes in phases().items():
            if wanted and phase not in wanted:
                continue
            show.tell(changes)
            for screen, (width, height) in SCREENS.items():
                for dark in (False, True):
                    browser.look(width, height, dark=dark)
                    browser.open(show.url)
                    browser.wait("document.readyState === 'complete' && !document.getElementById('all').hidden")
                    time.sleep(1.2)
                    browser.shoot(folder / f"{phase}-{screen}-{'dark' if dark else 'light'}.png", whole=True)
        print("\n".join(browser.complaints))
    return 0


if __name__ == "__main__":
    sys.exit(main())
