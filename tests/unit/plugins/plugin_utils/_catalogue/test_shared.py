# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One reading of the catalogue for all processes of a run."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import shared
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import DEFAULTS, load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.places import WeightsSettings
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks

MINE = """
name: mine
status: experiment
stack: cpu
cards: 0
model: {directory: x}
engine: {settings: {max_model_len: 1024}}
title: %s
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/mine.yml").write_text(MINE % "First")
    return tmp_path / "profiles"


@pytest.fixture
def readings(monkeypatch):
    """Return the list to which each reading of the files appends."""
    read = []

    def load(*given):
        read.append(given)
        return load_catalogue(*given)

    monkeypatch.setattr(shared, "load_catalogue", load)
    return read


def reading(folder, inline=None, site=DEFAULTS):
    return shared.Reading((folder,), (), inline or {}, site)


def test_the_files_are_read_once_and_again_when_one_changes(folder, readings, tmp_path):
    asked = reading(folder)
    assert asked.shared(tmp_path) == asked.shared(tmp_path) == asked.profiles()
    assert len(readings) == 2  # the third is the comparison
    (folder / "mine.yml").write_text(MINE % "Second title")
    assert asked.shared(tmp_path)["mine"]["title"] == "Second title"
    (folder / "other.yml").write_text(MINE.replace("mine", "other") % "Other")
    assert "other" in asked.shared(tmp_path)


def test_what_else_decides_has_a_reading_of_its_own(folder, tmp_path):
    asked = reading(folder)
    assert "data" not in asked.shared(tmp_path)
    inline = {"data": {"extends": "mine", "status": "experiment"}}
    assert reading(folder, inline=inline).shared(tmp_path)["data"]["stack"] == "cpu"
    site = WeightsSettings(sources={"x": {"repo": "someone/x", "revision": "a" * 40}})
    assert reading(folder, site=site).shared(tmp_path)["mine"] == reading(folder, site=site).profiles()["mine"]


def test_stacks_are_read_once(folder, monkeypatch, tmp_path):
    known = load_stacks()
    assert shared.shared_stacks((), tmp_path) == known
    monkeypatch.setattr(shared, "load_stacks", lambda folders: pytest.fail("they were read again"))
    assert shared.shared_stacks((), tmp_path) == known
    assert "mine" in reading(folder).shared(tmp_path)


def test_faults_are_told_to_everyone(folder, tmp_path):
    (folder / "mine.yml").write_text("name: mine\nstack: cpuu\nstatus: experiment\n")
    for _process in range(2):
        with pytest.raises(CatalogueError, match=r"mine\.yml"):
            reading(folder).shared(tmp_path)


@pytest.mark.parametrize("spoil", ["missing", "damaged"])
def test_a_folder_that_keeps_nothing_costs_no_answer(folder, tmp_path, spoil):
    asked, place = reading(folder), tmp_path / spoil
    if spoil == "damaged":
        place.mkdir()
        asked.shared(place)
        for kept in place.glob("*.json"):
            kept.write_text("{")
    assert "mine" in asked.shared(place)
