# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator

import pytest

from page.browser import Browser, started


@pytest.fixture(scope="session")
def running() -> Iterator[Browser]:
    """Run one browser for all tests of this process."""
    with started() as browser:
        yield browser


@pytest.fixture
def browser(running: Browser) -> Browser:
    """Return the browser with an empty page, on which nothing was complained of."""
    running.open("about:blank")
    running.complaints.clear()
    return running
