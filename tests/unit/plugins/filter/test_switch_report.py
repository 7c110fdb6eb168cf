# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.arcpro.b70.plugins.filter.switch_report import switch_report

URL = "http://192.0.2.10:8000/v1"
SWITCHED = {
    "slot": "main",
    "changed": True,
    "profile": "tiny-b",
    "previous_profile": "tiny-a",
    "served_model": "tiny-b",
    "verified": True,
    "phases": [{"name": "lock", "seconds": 0.001}, {"name": "health", "seconds": 31.04}, {"name": "canary", "seconds": 1.2}],
    "canary": [{"name": "exact_ok", "passed": True}, {"name": "copy_phrase", "passed": True}],
    "actions": [],
}


def test_a_switch_says_what_where_and_how_long():
    assert switch_report(SWITCHED, "h1", URL) == [
        "h1 serves tiny-b (model id tiny-b; now served, before: tiny-a; verified by 2 canary answers)",
        f"frontdoor: {URL}",
        "32.2 s in all: health 31.0 s, canary 1.2 s",
    ]


def test_an_unverified_model_is_never_called_verified():
    line = switch_report(SWITCHED | {"verified": False, "canary": []}, "h1", URL)[0]
    assert "NOT verified" in line


def test_a_stopped_slot_has_no_address():
    lines = switch_report({"slot": "main", "changed": True, "profile": None, "phases": []}, "h1", URL)
    assert lines == ["h1 serves nothing: slot main is stopped"]


def test_check_mode_lists_the_actions_only():
    lines = switch_report(SWITCHED | {"actions": ["stop tiny-a", "start tiny-b"]}, "h1", URL)
    assert lines == ["h1 would: stop tiny-a", "h1 would: start tiny-b"]


@pytest.mark.parametrize("bad", [None, "text", {"msg": "something else"}])
def test_anything_but_the_modules_result_is_refused(bad):
    with pytest.raises(AnsibleFilterError, match="b70_model_slot"):
        switch_report(bad, "h1", URL)
