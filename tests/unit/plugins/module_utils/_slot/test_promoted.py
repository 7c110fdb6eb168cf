# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile is production on a host by the records there, for one fingerprint, until a later gate fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import host_class
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.production import promotion, status_here
from ansible_collections.arcpro.b70.plugins.plugin_utils._slot_words import slot_status
from unit.plugins.module_utils._evidence.records import record
from unit.plugins.module_utils._slot.calls import b70ctl
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, profile_data

DAY = "2026-11-2{}T04:16:00Z"


PARTS = profile_data("a")["examined"]
OTHER = profile_data("a", frontdoor__max_active_generations=32)["examined"]


def gate(
    day: int,
    verdict: str = "passed",
    summary: str = "14 of 14 items passed",
    parts: str | None = PARTS,
    **given: Any,
) -> dict[str, Any]:
    data = {"summary": summary, **({"examined": parts} if parts else {})}
    told = {"profile": "a", "fingerprint": "sha256:a-1", "data": data}
    return row(record("promotion", DAY.format(day), verdict=verdict, **{**told, **given}))


def put(fake_host: FakeHost, *rows: dict[str, Any], machine: str = "") -> None:
    newest_first = sorted(rows, key=lambda one: one["number"], reverse=True)
    fake_host.put(
        LAYOUT.records_index,
        json.dumps({"schema": 1, "machine": machine or host_class.machine(), "records": newest_first}),
    )


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([], None),
        ([gate(1)], "passed"),
        ([gate(1), gate(2, "failed")], "failed"),
        ([gate(1, "failed"), gate(2)], "passed"),
        # A gate that was ended by hand, or was not a whole one, says nothing.
        ([gate(1), gate(2, "unfinished")], "passed"),
        ([gate(1, "unfinished")], None),
        # Another profile, another fingerprint, another kind.
        ([gate(1), gate(2, "failed", profile="b")], "passed"),
        ([gate(1), gate(2, "failed", fingerprint="sha256:a-2")], "passed"),
        ([gate(1, fingerprint="sha256:a-2")], None),
        ([gate(1, fingerprint=None)], None),
        # Other permits, another canary or another accuracy set, or a record that does not tell.
        ([gate(1, parts=OTHER)], None),
        ([gate(1), gate(2, "failed", parts=OTHER)], "passed"),
        ([gate(1, parts=None)], None),
        ([row(record("soak", profile="a", fingerprint="sha256:a-1"))], None),
    ],
)
def test_the_last_gate_with_a_verdict_counts(rows, verdict):
    found = promotion(rows, "a", "sha256:a-1", PARTS)
    assert (found and found["verdict"]) == verdict


def test_nothing_that_ran_without_a_fingerprint_is_promoted():
    assert promotion([gate(1, fingerprint=None)], "a", None, PARTS) is None


def test_a_profile_that_was_rendered_before_is_not_promoted():
    assert promotion([gate(1, parts=None)], "a", "sha256:a-1", None) is None


@pytest.mark.parametrize(
    ("status", "last", "here"),
    [
        ("candidate", None, "candidate"),
        ("candidate", gate(1), "production"),
        ("experiment", gate(1), "production"),
        ("candidate", gate(1, "failed"), "candidate"),
        # What the catalogue calls production for all hosts, a gate here takes back.
        ("production", None, "production"),
        ("production", gate(1), "production"),
        ("production", gate(1, "failed"), "candidate"),
        ("rejected", gate(1), "rejected"),
        ("blocked", gate(1), "blocked"),
    ],
)
def test_a_passed_gate_makes_it_production(status, last, here):
    assert status_here(status, last) == here


@pytest.fixture
def serving() -> FakeHost:
    fake_host = FakeHost()
    fake_host.render("a", status="candidate")
    fake_host.render("b", status="candidate")
    assert b70ctl(fake_host, "switch", "a")[0] == 0
    return fake_host


def statuses(fake_host: FakeHost) -> dict[str, str]:
    return {one["name"]: one["status"] for one in api.info(fake_host.effects(), LAYOUT)["profiles"]}


def test_the_host_says_what_is_production_on_it(serving: FakeHost):
    assert statuses(serving) == {"a": "candidate", "b": "candidate"}
    put(serving, gate(1), gate(2, profile="b", fingerprint="sha256:other"))
    assert statuses(serving) == {"a": "production", "b": "candidate"}
    assert "*  a        0      production" in b70ctl(serving, "list")[1]
    line = f"production gate: passed at {DAY.format(1)}, 14 of 14 items passed"
    assert line in b70ctl(serving, "status")[1].splitlines()
    info = api.info(serving.effects(), LAYOUT)
    assert info["promotion"]["verdict"] == "passed"
    assert line in slot_status(info, "h1", "")


def test_a_later_failure_takes_it_back(serving: FakeHost):
    put(serving, gate(1), gate(2, "failed", "13 of 14 items passed, 1 failed"))
    assert statuses(serving)["a"] == "candidate"
    assert f"production gate: FAILED at {DAY.format(2)}, 13 of" in b70ctl(serving, "status")[1]


def test_a_failure_takes_it_back_also_where_the_clock_was_ahead_when_it_passed(serving: FakeHost):
    put(serving, {**gate(9), "number": 1}, {**gate(2, "failed"), "number": 2})
    assert statuses(serving)["a"] == "candidate"


def test_a_machine_with_a_copy_of_the_disk_has_no_production(serving: FakeHost):
    put(serving, gate(1), machine="0" * 32)
    assert statuses(serving)["a"] == "candidate"
    assert "promotion" not in b70ctl(serving, "history")[1]


def test_another_fingerprint_of_it_is_not_production(serving: FakeHost):
    put(serving, gate(1))
    serving.render("a", status="candidate", fingerprint="sha256:a-2")
    assert b70ctl(serving, "switch", "a")[0] == 0
    assert statuses(serving)["a"] == "candidate"
    assert "production gate" not in b70ctl(serving, "status")[1]


@pytest.mark.parametrize(
    "changes",
    [{"frontdoor__max_active_generations": 32}, {"canary__seed": 8}, {"accuracy__threshold": 0.1}],
)
def test_other_permits_another_canary_or_accuracy_is_not_production(serving: FakeHost, changes: dict[str, Any]):
    put(serving, gate(1))
    assert statuses(serving)["a"] == "production"
    serving.render("a", status="candidate", **changes)
    # The fingerprint is the same, so no engine is started.
    assert b70ctl(serving, "verify")[0] == 0
    assert statuses(serving)["a"] == "candidate"
    assert "production gate" not in b70ctl(serving, "status")[1]


def test_the_verdict_stands_in_the_history(serving: FakeHost):
    put(serving, gate(1))
    (line,) = [line for line in b70ctl(serving, "history")[1].splitlines() if "promotion" in line]
    assert line.split()[1:] == ["promotion", "a", "passed", "0.0", "14", "of", "14", "items", "passed"]


def test_an_index_that_is_torn_promotes_nothing(serving: FakeHost):
    serving.put(LAYOUT.records_index, '{"schema": 1, "records": [{"kind"')
    assert statuses(serving)["a"] == "candidate"
