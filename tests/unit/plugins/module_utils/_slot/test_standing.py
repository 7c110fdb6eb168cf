# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which profile is meant where nobody names one: what runs, else what was verified last, as the host tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _slot_module
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import occupied
from unit.plugins.module_utils._slot.calls import check, host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost

PARAMS: dict[str, Any] = {
    "state": "active",
    "profile": None,
    "initial_profile": "",
    "slot": LAYOUT.slot,
    "gate": "verified",
    "on_failure": "rollback",
    "drain_timeout": 60.0,
    "min_serving": None,
    "health_timeout": None,
    "lock_timeout": 0.0,
    "canary_repeats": None,
    "record_baseline": False,
    "accept_status": [],
    "planned_stacks": [],
    "planned_weights": [],
    "planned_files": [],
    "switch_id": "x",
    "requested_by": "test",
    "reason": "",
    "config_dir": str(LAYOUT.config_dir),
    "run_dir": str(LAYOUT.run_dir),
    "state_dir": str(LAYOUT.state_dir),
    "unit_dir": str(LAYOUT.unit_dir),
    "frontdoor_url": LAYOUT.frontdoor_url,
}


@pytest.fixture
def fake_host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    made = host("ab")
    monkeypatch.setattr(_slot_module, "host_effects", lambda _clock: made.effects())
    return made


def asked(**changes: object) -> dict[str, object]:
    return _slot_module.run_switch({**PARAMS, **changes}, check_mode=True)


def test_a_restart_is_of_what_is_served(fake_host: FakeHost) -> None:
    switch(fake_host, "b")
    predicted = asked(state="restarted", initial_profile="a")
    assert (predicted["wanted"], predicted["changed"]) == ("b", True)


def test_a_slot_that_serves_nothing_is_not_restarted(fake_host: FakeHost) -> None:
    predicted = asked(state="restarted", initial_profile="a")
    assert (predicted["wanted"], predicted["changed"], predicted["failed"]) == (None, False, False)


def test_what_the_same_play_installs_is_not_looked_for(fake_host: FakeHost) -> None:
    profile = json.loads(fake_host.effects().files.read(LAYOUT.profile_json("a")) or "{}")
    planned = {"planned_stacks": [profile["stack"]["id"]], "planned_weights": [profile["model"]["path"]]}
    assert asked(profile="a", **planned)["not_looked_at"] == ["stack", "weights"]
    assert asked(profile="a", planned_stacks=["other-1"], planned_weights=["/other"])["not_looked_at"] == []


def test_a_host_that_never_served_takes_the_initial_profile_or_nothing(fake_host: FakeHost) -> None:
    assert api.standing(fake_host.effects(), LAYOUT) is None
    found = asked()
    assert (found["wanted"], found["outcome"], found["changed"]) == (None, "unchanged", False)
    found = asked(initial_profile="a")
    assert (found["wanted"], found["outcome"], found["changed"]) == ("a", "committed", True)


@pytest.mark.parametrize("after", ["served", "rebooted"])
def test_what_is_or_was_served_comes_before_the_initial_profile(fake_host: FakeHost, after: str) -> None:
    switch(fake_host, "a")
    switch(fake_host, "b")
    if after == "rebooted":
        fake_host.reboot()
    found = asked(initial_profile="a")
    assert (found["wanted"], found["changed"]) == ("b", after != "served")
    # Said by name, it is the same.
    assert {**found, "switch_id": ""} == {**check(fake_host, "b"), "wanted": "b", "switch_id": ""}


def test_a_slot_that_was_stopped_begins_anew(fake_host: FakeHost) -> None:
    switch(fake_host, "b")
    switch(fake_host, None)
    assert asked(initial_profile="a")["wanted"] == "a"


def test_a_name_is_taken_as_it_is_and_a_stop_needs_none(fake_host: FakeHost) -> None:
    switch(fake_host, "a")
    assert asked(profile="b", initial_profile="a")["wanted"] == "b"
    assert asked(state="stopped")["wanted"] is None


def test_what_the_slot_holds_is_told_with_its_stacks(fake_host: FakeHost) -> None:
    found = occupied(fake_host.effects(), LAYOUT)
    assert found == {"profile": None, "profiles": []}
    assert switch(fake_host, "a")["outcome"] == "committed"
    stack = {"stack": "cpu", "stack_id": "cpu-1a2b3c4d5e"}
    assert occupied(fake_host.effects(), LAYOUT) == {"profile": "a", "profiles": [{"name": "a", **stack}]}
    fake_host.put(LAYOUT.slot_file, "{")
    assert occupied(fake_host.effects(), LAYOUT)["profile"] == "a", (
        "a torn slot.json is written anew by the very play that asks"
    )
    fake_host.put(LAYOUT.profile_json("a"), "{")
    assert occupied(fake_host.effects(), LAYOUT)["profiles"] == [{"name": "a", "stack": None, "stack_id": None}]
