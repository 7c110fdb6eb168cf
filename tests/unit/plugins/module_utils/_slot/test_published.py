# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes in a rendering without changing a token, and what becomes of the state where there is no room for it."""

from __future__ import annotations

import json
from dataclasses import replace
from errno import EIO, ENOSPC

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.frontdoor import SPARE_BYTES
from unit.plugins.module_utils._slot.calls import check, host, names, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeFiles, FakeHost, request

BOUND = ["KillSignal=SIGINT", "NUMAPolicy=bind", "NUMAMask=0"]


@pytest.fixture
def fake_host():
    return host("ab", engine__directives=["KillSignal=SIGINT"])


def test_new_limits_are_published_without_a_restart(fake_host):
    switch(fake_host, "a")
    engine = fake_host.unit("a").invocation
    fake_host.render("a", engine__directives=["KillSignal=SIGINT"], frontdoor__max_active_generations=7)
    predicted = check(fake_host, "a")
    result = switch(fake_host, "a")
    assert (result["failed"], result["changed"], predicted["changed"]) == (False, True, True)
    assert "start" not in names(result)
    assert fake_host.unit("a").invocation == engine
    assert fake_host.state.limits["max_active_generations"] == 7
    assert fake_host.state.verified
    assert switch(fake_host, "a")["changed"] is False


def test_a_changed_part_of_the_unit_is_drift_until_a_switch_starts_the_engine_anew(fake_host):
    switch(fake_host, "a")
    engine = fake_host.unit("a").invocation
    assert api.info(fake_host.effects(), LAYOUT)["drift"] is None
    fake_host.render("a", engine__directives=BOUND)
    drift = api.info(fake_host.effects(), LAYOUT)["drift_of"]
    assert drift == {"directives": f"started with KillSignal=SIGINT, rendered is {' '.join(BOUND)}"}
    # Another verification is none of a new start.
    assert api.switch(fake_host.effects(), LAYOUT, request("a", recheck=True))["failed"]
    result = switch(fake_host, "a")
    assert (result["failed"], "start" in names(result)) == (False, True)
    assert fake_host.unit("a").invocation != engine
    assert api.info(fake_host.effects(), LAYOUT)["drift"] is None


def test_an_engine_of_an_older_version_of_the_state_is_left_alone(fake_host):
    switch(fake_host, "a")
    state = json.loads(fake_host.texts[LAYOUT.state_file][0])
    del state["engine"]["directives"]
    fake_host.put(LAYOUT.state_file, json.dumps(state))
    assert switch(fake_host, "a")["changed"] is False
    assert api.info(fake_host.effects(), LAYOUT)["drift"] is None


class Full(FakeFiles):
    """A disk without room: what is written needs room that something else gives up first."""

    def __init__(self, fake_host, number=ENOSPC):
        super().__init__(fake_host)
        self.number, self.room = number, 0

    def write(self, path, text):
        if path.is_relative_to(LAYOUT.run_dir):
            if len(text) > self.room:
                raise OSError(self.number, "No space left on device", str(path))
            self.room -= len(text)
            self.room += len(self._host.texts.get(path, ("", None))[0])
        super().write(path, text)

    def remove(self, path):
        if path.is_relative_to(LAYOUT.run_dir):
            self.room += len(self._host.texts.get(path, ("", None))[0])
        super().remove(path)


def test_a_state_finds_room_where_there_is_none_left(fake_host):
    switch(fake_host, "a")
    assert len(fake_host.texts[LAYOUT.spare_file][0]) == SPARE_BYTES
    result = api.switch(replace(fake_host.effects(), files=Full(fake_host)), LAYOUT, request("b"))
    assert (result["failed"], result["profile"]) == (False, "b")
    assert fake_host.state.profile_name == "b"
    assert fake_host.open


def test_other_faults_of_the_disk_are_told(fake_host):
    switch(fake_host, "a")
    result = api.switch(replace(fake_host.effects(), files=Full(fake_host, EIO)), LAYOUT, request("b"))
    assert (result["failed"], result["outcome"]) == (True, "untouched")


def test_a_pristine_host_has_no_spare_room_yet():
    fake_host = FakeHost()
    fake_host.render("a")
    assert switch(fake_host, "a")["verified"]
    assert LAYOUT.spare_file in fake_host.texts
