# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of records and of the catalogue in a real browser: complete in themselves, readable on any screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import REFUSED
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.page import catalogue_page
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.page import evidence_page
from page.browser import Browser
from page.test_page import PALE
from unit.plugins.plugin_utils._evidence.fleet import fleet

# What makes a person scroll sideways; wide tables scroll by themselves.
WIDE = """
[...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility() && !node.closest(".wide table"))
  .filter((node) => node.getBoundingClientRect().right > document.documentElement.clientWidth + .5)
  .map((node) => node.outerHTML.slice(0, 80))
"""
# Labels of one chart that overlap.
CROWDED = """
[...document.querySelectorAll(".plot svg[role=img]")].flatMap((chart) => {
  const boxes = [...chart.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([a, one], place) => boxes.slice(place + 1)
    .filter(([_, two]) => one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom)
    .map(([b]) => `${a} and ${b}`));
})
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    file = tmp_path / "index.html"
    file.write_text(
        evidence_page(fleet(), ["b70-02/soak/x.json: verdict: 'fine' is none of passed, failed, unfinished"])
    )
    browser.look(width, 900, dark=dark)
    browser.open(file.as_uri())
    browser.wait("document.readyState", "complete".__eq__)
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    assert browser.run("document.querySelectorAll('.plot svg[role=img]').length") == 8
    assert browser.run(WIDE) == []
    assert browser.run(CROWDED) == []
    assert browser.run(PALE) == []
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_catalogue_fits_and_is_narrowed_down(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    stacks = load_stacks()
    profiles = load_catalogue(stacks=stacks)
    file = tmp_path / "profiles.html"
    file.write_text(catalogue_page(profiles, stacks))
    browser.look(width, 900, dark=dark)
    browser.open(file.as_uri())
    browser.wait("document.readyState", "complete".__eq__)
    names = "[...document.querySelectorAll('tbody tr:not([hidden]) strong')].map((node) => node.textContent)"
    assert sorted(browser.run(names)) == sorted(profiles)
    browser.type("[name=words]", "GEMMA int4")
    assert browser.run(names)
    assert all("gemma" in name for name in browser.run(names))
    browser.choose("[name=cards]", "1")
    browser.press("[name=served]")
    few = browser.run(names)
    assert few
    assert all(profiles[name]["cards"] == 1 and profiles[name]["status"] not in REFUSED for name in few)
    assert browser.run("document.querySelector('[name=count]').value") == f"{len(few)} of {len(profiles)} profiles"
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    assert browser.run(WIDE) == []
    assert browser.run(PALE) == []
    assert browser.complaints == []
