# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between what runs, what systemd would start, and what is rendered."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import World, request

UNIT_TEXT = "[Service]\nExecStart=/bin/true\n"
UNIT_FILE = LAYOUT.unit_dir / LAYOUT.unit("a")
SHA256 = hashlib.sha256(UNIT_TEXT.encode()).hexdigest()


@pytest.fixture
def world():
    world = World()
    world.render("a", unit_sha256=SHA256)
    world.put(UNIT_FILE, UNIT_TEXT)
    api.switch(world.effects(), LAYOUT, request("a"))
    return world


def drift(world):
    info = api.info(world.effects(), LAYOUT)
    assert info["drift"] == ("; ".join(info["drift_of"].values()) or None)
    return info["drift_of"]


def test_nothing_differs_after_a_switch(world):
    assert drift(world) == {}


def test_a_profile_that_was_rendered_anew(world):
    world.render("a", fingerprint="sha256:a-2", unit_sha256=SHA256)
    world.put(UNIT_FILE, UNIT_TEXT)
    assert drift(world) == {"rendering": "runs sha256:a-1, rendered is sha256:a-2"}


def test_a_process_with_other_arguments(world):
    engine = world.engine()
    engine.cmdline = (*engine.cmdline, "--max-num-seqs", "99")
    assert list(drift(world)) == ["process"]
    assert "--max-num-seqs" in drift(world)["process"]


def test_a_unit_that_was_edited_by_hand(world):
    world.put(UNIT_FILE, UNIT_TEXT + "Nice=5\n")
    world.effects().units.reload()
    assert "was changed by hand" in drift(world)["unit_file"]
    del world.texts[UNIT_FILE]
    assert "is missing" in drift(world)["unit_file"]


def test_a_unit_that_systemd_has_not_loaded(world):
    world.engine().needs_reload = True
    assert "systemctl daemon-reload" in drift(world)["unit_file"]


def test_a_profile_that_has_left_the_host(world):
    del world.texts[LAYOUT.profile_json("a")]
    assert "is not rendered" in drift(world)["rendering"]


def test_an_empty_slot_has_no_drift(world):
    api.switch(world.effects(), LAYOUT, request(None))
    assert drift(world) == {}
