# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold before anything is touched, and that nothing is touched when it does not."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder
from unit.plugins.module_utils._slot.calls import check, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def fake_host():
    return host("abc")


def guard_rejected(fake_host):
    fake_host.render("b", status="rejected", status_reason="wrong answers under load")
    return "wrong answers under load"


def guard_weights(fake_host):
    del fake_host.texts[next(path for path in fake_host.texts if path.match("/models/b/model.safetensors"))]
    return "no weight file"


def guard_no_model(fake_host):
    for path in [path for path in fake_host.texts if path.is_relative_to("/models/b")]:
        del fake_host.texts[path]
    return "/models/b"


def guard_other_weights(fake_host):
    fake_host.render("b", model__record="1" * 64)
    put_record(fake_host, "2")
    return "the weights of b are not those that it was rendered for: the files in /models/b have changed since"


def put_record(fake_host, digit):
    files = {"model.safetensors": {"size": 1, "sha256": digit * 64}}
    fake_host.put(PurePosixPath("/models/b/.b70-weights.json"), json.dumps({"files": files}))


def guard_stack(fake_host):
    del fake_host.texts[next(path for path in fake_host.texts if path.name == "fingerprint.json")]
    return "cpu-1a2b3c4d5e is not installed"


def guard_other_stack(fake_host):
    record = next(path for path in fake_host.texts if path.name == "fingerprint.json")
    fake_host.render("b", stack__dir="/opt/b70/stacks/other")
    fake_host.put(record.parents[1] / "other" / "fingerprint.json", json.dumps({"stack_id": "cpu-0000000000"}))
    return "expected cpu-1a2b3c4d5e; got cpu-0000000000"


def guard_torn_stack(fake_host):
    fake_host.put(next(path for path in fake_host.texts if path.name == "fingerprint.json"), "{")
    return "is not JSON"


def remote(fake_host, **files):
    """Profile b with an engine elsewhere; no stack, no weights."""
    given = {"base_url": "https://a/v1", "model": "m", "api_key_file": None, "ca_file": None, **files}
    engine = {"engine__kind": "openai", "engine__argv": ["/usr/sbin/haproxy"], "engine__remote": given}
    fake_host.render("b", stack__dir="", model__path="", **engine)


def guard_remote_key(fake_host):
    remote(fake_host, api_key_file="/etc/b70-vllm-slot/keys/b")
    return "the API key for the remote engine of b: /etc/b70-vllm-slot/keys/b is missing or empty"


def guard_remote_program(fake_host):
    remote(fake_host)
    del fake_host.texts[PurePosixPath("/usr/sbin/haproxy")]
    return "/usr/sbin/haproxy is missing"


def guard_disk(fake_host):
    fake_host.free = 1000
    return "MiB free"


def guard_readonly(fake_host):
    fake_host.readonly.add(LAYOUT.unit_dir)
    return "read-only"


def guard_port(fake_host):
    fake_host.foreign = (Holder(4711, "nc -l 18080", "root", "", "port 18080"),)
    return "4711"


def guard_cards(fake_host):
    fake_host.render("b", cards=4)
    return "4 cards"


def guard_no_unit(fake_host):
    fake_host.unit("b").exists = False
    return B


def guard_unknown(fake_host):
    del fake_host.texts[LAYOUT.profile_json("b")]
    return "`b70ctl list` shows those that are"


def guard_broken_profile(fake_host):
    fake_host.render("b", engine__argv="vllm serve")
    return "engine.argv"


def guard_journal(fake_host):
    fake_host.full.add(LAYOUT.state_dir)
    return "No space left"


GUARDS = [value for name, value in sorted(globals().items()) if name.startswith("guard_")]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_failed_guard_touches_nothing(fake_host, guard):
    switch(fake_host, "a")
    words = guard(fake_host)
    before = (fake_host.texts[LAYOUT.state_file], list(fake_host.running), list(fake_host.enabled), fake_host.starts)
    result = switch(fake_host, "b")
    assert (result["failed"], result["changed"], result["outcome"]) == (True, False, "untouched")
    assert words in result["msg"]
    assert "a is still served, verified" in result["msg"]
    assert before == (
        fake_host.texts[LAYOUT.state_file],
        list(fake_host.running),
        list(fake_host.enabled),
        fake_host.starts,
    )
    fake_host.assert_invariants()


@pytest.mark.parametrize("guard", [guard for guard in GUARDS if guard is not guard_journal])
def test_check_mode_finds_the_same_guard(fake_host, guard):
    switch(fake_host, "a")
    words = guard(fake_host)
    result = check(fake_host, "b")
    assert result["failed"]
    assert words in result["msg"]


def test_which_statuses_are_refused_is_the_site_s_choice(fake_host):
    settings = {"schema": 1, "slot": "main", "legacy_units": [], "refused_statuses": ["experiment"]}
    fake_host.render("b", status="experiment")
    fake_host.render("c", status="rejected")
    fake_host.put(LAYOUT.slot_file, json.dumps(settings))
    assert "b is experiment" in switch(fake_host, "b")["msg"]
    assert not switch(fake_host, "c")["failed"]
    assert not switch(fake_host, "b", accept_status=("experiment",))["failed"]


def test_a_slot_file_that_cannot_be_used_is_named(fake_host):
    for text, words in (
        ("{", "is not JSON"),
        ('{"schema": 9}', "schema is 9"),
        ('{"schema": 1}', "legacy_units is missing"),
    ):
        fake_host.put(LAYOUT.slot_file, text)
        result = switch(fake_host, "a")
        assert (result["outcome"], str(LAYOUT.slot_file) in result["msg"]) == ("untouched", True)
        assert words in result["msg"]
    settings = {"schema": 1, "slot": "main", "legacy_units": [], "refused_statuses": ["bad"]}
    fake_host.put(LAYOUT.slot_file, json.dumps(settings))
    assert "names 'bad'" in switch(fake_host, "a")["msg"]


def test_a_refused_status_can_be_accepted_by_name(fake_host):
    guard_rejected(fake_host)
    assert switch(fake_host, "b", accept_status=("rejected",))["failed"] is False


def test_a_rule_that_is_broken_on_purpose_is_said_at_every_switch(fake_host):
    fake_host.render("b", accepted_rules=["tp2-hangs: both cards hang"])
    result = switch(fake_host, "b")
    assert result["outcome"] == "committed"
    assert "profile b breaks a rule of its stack on purpose: tp2-hangs: both cards hang" in result["warnings"]


@pytest.mark.parametrize(
    ("own", "wanted", "words"),
    [
        ([3], 2, "profile b needs more cards than slot main has (b70_slots) (expected 2 cards; got 1 (3))"),
        ([], 1, "expected 1 cards; got 0 (none)"),
        ([0, 9], 2, "slot main has a card that this host does not show (b70_slots) (expected card 9; got 4 cards"),
    ],
)
def test_a_profile_has_the_cards_of_its_slot_alone(fake_host, own, wanted, words):
    fake_host.cards = 4
    slot = json.loads(fake_host.texts[LAYOUT.slot_file][0])
    fake_host.render("b", cards=wanted)
    fake_host.put(LAYOUT.slot_file, json.dumps({**slot, "cards": own}))
    result = switch(fake_host, "b")
    assert result["outcome"] == "untouched"
    assert words in result["msg"]


@pytest.mark.parametrize(
    ("mask", "outcome"),
    [("1", "committed"), ("1,2", "committed"), ("0", "untouched"), ("2,0", "untouched"), ("", "untouched")],
)
def test_an_engine_never_starts_on_a_card_of_another_model(fake_host, mask, outcome):
    fake_host.cards = 3
    for number, device in enumerate(("0xe211", "0xe223", "0xe223")):
        fake_host.put(PurePosixPath(f"/sys/class/drm/renderD{128 + number}/device/device"), f"{device}\n")
    fake_host.render("b", cards=1, engine__env={"ZE_AFFINITY_MASK": mask} if mask else {})
    result = switch(fake_host, "b")
    assert result["outcome"] == outcome
    if outcome == "untouched":
        assert "profile b may use /dev/dri/renderD128, which it was not made for" in result["msg"]
        assert "(expected Arc Pro B70; got card 0 is an Arc Pro B60)" in result["msg"]


def test_what_was_verified_comes_back_whatever_the_record_of_its_weights_says_since(fake_host):
    fake_host.render("b", model__record="1" * 64)
    assert switch(fake_host, "b")["verified"]  # files without a record may be any
    put_record(fake_host, "2")
    fake_host.reboot()
    fake_host.mono += 60
    assert recover(fake_host)["verified"]
