# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that finds the slot's lock held: who is refused at once, and who waits for the end of the other one."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.driver import NEAR_END_S
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT


@pytest.fixture
def fake_host():
    return host("ab")


def test_a_held_lock_fails_cleanly(fake_host):
    switch(fake_host, "a")
    fake_host.lock_holder = "pid 1 since then: b"
    result = switch(fake_host, "b")
    assert (result["failed"], result["changed"]) == (True, False)
    assert "pid 1 since then: b" in result["msg"]
    assert fake_host.open


def held(fake_host, target, for_s):
    """Another switch to the target holds the lock for so long."""
    fake_host.lock_holder, fake_host.lock_for_s = f"pid 1 (ann) since then: {target}", for_s
    fake_host.put(LAYOUT.lock_file, f"{fake_host.lock_holder}\n")


def test_who_asks_for_what_another_run_has_all_but_served_waits_for_its_end(fake_host):
    switch(fake_host, "a")
    held(fake_host, "a", 3.0)
    result = switch(fake_host, "a")
    assert (result["failed"], result["changed"], result["outcome"]) == (False, False, "unchanged")
    assert (result["profile"], result["verified"]) == ("a", True)


@pytest.mark.parametrize(
    ("target", "asked", "for_s"),
    [
        ("a", "a", 3600.0),  # the other one does not end
        ("b", "a", 3.0),  # a is served, but is about to be replaced
        ("a", "b", 3.0),
        ("a", None, 3.0),
    ],
)
def test_who_asks_for_anything_else_is_refused_at_once(fake_host, target, asked, for_s):
    switch(fake_host, "a")
    held(fake_host, target, for_s)
    before = fake_host.mono
    result = switch(fake_host, asked)
    assert (result["failed"], result["failure"]["phase"]) == (True, "lock")
    assert fake_host.mono - before <= (NEAR_END_S if for_s > NEAR_END_S else 0.0)


@pytest.mark.parametrize("change", ["another rendering", "not verified", "closed"])
def test_what_is_not_yet_served_as_it_is_rendered_now_is_not_waited_for(fake_host, change):
    switch(fake_host, "a")
    held(fake_host, "a", 3.0)
    if change == "another rendering":
        fake_host.render("a", fingerprint="sha256:a-2")
    else:
        state = json.loads(fake_host.texts[LAYOUT.state_file][0])
        fake_host.put(
            LAYOUT.state_file, json.dumps(state | {"verified" if change == "not verified" else "open": False})
        )
    assert switch(fake_host, "a")["failure"]["phase"] == "lock"
