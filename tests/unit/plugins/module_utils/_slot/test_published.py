# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes in a rendering without changing a token, and what becomes of the state where there is no room for it."""

from __future__ import annotations

import json
from dataclasses import replace
from errno import EIO, ENOSPC

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.frontdoor import SPARE_BYTES
from unit.plugins.module_utils._slot.calls import check, host, names, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT, FakeFiles
from unit.plugins.module_utils._slot.world import World, request

BOUND = ["KillSignal=SIGINT", "NUMAPolicy=bind", "NUMAMask=0"]


@pytest.fixture
def world():
    return host("ab", engine__directives=["KillSignal=SIGINT"])


def test_new_limits_are_published_without_a_restart(world):
    switch(world, "a")
    engine = world.unit("a").invocation
    world.render("a", engine__directives=["KillSignal=SIGINT"], frontdoor__max_active_generations=7)
    predicted = check(world, "a")
    result = switch(world, "a")
    assert (result["failed"], result["changed"], predicted["changed"]) == (False, True, True)
    assert "start" not in names(result)
    assert world.unit("a").invocation == engine
    assert world.state.limits["max_active_generations"] == 7
    assert world.state.verified
    assert switch(world, "a")["changed"] is False


def test_a_changed_part_of_the_unit_is_drift_until_a_switch_starts_the_engine_anew(world):
    switch(world, "a")
    engine = world.unit("a").invocation
    assert api.info(world.effects(), LAYOUT)["drift"] is None
    world.render("a", engine__directives=BOUND)
    drift = api.info(world.effects(), LAYOUT)["drift_of"]
    assert drift == {"directives": f"started with KillSignal=SIGINT, rendered is {' '.join(BOUND)}"}
    # Another verification is none of a new start.
    assert api.switch(world.effects(), LAYOUT, request("a", recheck=True))["failed"]
    result = switch(world, "a")
    assert (result["failed"], "start" in names(result)) == (False, True)
    assert world.unit("a").invocation != engine
    assert api.info(world.effects(), LAYOUT)["drift"] is None


def test_an_engine_of_an_older_version_of_the_state_is_left_alone(world):
    switch(world, "a")
    state = json.loads(world.texts[LAYOUT.state_file][0])
    del state["engine"]["directives"]
    world.put(LAYOUT.state_file, json.dumps(state))
    assert switch(world, "a")["changed"] is False
    assert api.info(world.effects(), LAYOUT)["drift"] is None


class Full(FakeFiles):
    """A disk without room: what is written needs room that something else gives up first."""

    def __init__(self, world, number=ENOSPC):
        super().__init__(world)
        self.number, self.room = number, 0

    def write(self, path, text):
        if path.is_relative_to(LAYOUT.run_dir):
            if len(text) > self.room:
                raise OSError(self.number, "No space left on device", str(path))
            self.room -= len(text)
            self.room += len(self._world.texts.get(path, ("", None))[0])
        super().write(path, text)

    def remove(self, path):
        if path.is_relative_to(LAYOUT.run_dir):
            self.room += len(self._world.texts.get(path, ("", None))[0])
        super().remove(path)


def test_a_state_finds_room_where_there_is_none_left(world):
    switch(world, "a")
    assert len(world.texts[LAYOUT.spare_file][0]) == SPARE_BYTES
    result = api.switch(replace(world.effects(), files=Full(world)), LAYOUT, request("b"))
    assert (result["failed"], result["profile"]) == (False, "b")
    assert world.state.profile_name == "b"
    assert world.open


def test_other_faults_of_the_disk_are_told(world):
    switch(world, "a")
    result = api.switch(replace(world.effects(), files=Full(world, EIO)), LAYOUT, request("b"))
    assert (result["failed"], result["outcome"]) == (True, "untouched")


def test_a_pristine_host_has_no_spare_room_yet():
    world = World()
    world.render("a")
    assert switch(world, "a")["verified"]
    assert LAYOUT.spare_file in world.texts
