# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import jsonschema
import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import record as records
from unit import contracts
from unit.plugins.module_utils._evidence.records import HOST, record
from unit.plugins.plugin_utils._evidence.fleet import search, soak


def test_the_schemas_are_some():
    for name in ("record", "index"):
        jsonschema.Draft202012Validator.check_schema(contracts.schema(name))


def test_the_kinds_of_schema_and_code_are_the_same():
    assert contracts.schema("record")["properties"]["kind"]["enum"] == list(records.KINDS)
    assert contracts.schema("index")["properties"]["records"]["items"]["properties"]["kind"]["enum"] == list(
        records.KINDS
    )
    assert set(records.KINDS) <= set(contracts.schema("record")["$defs"])


@pytest.mark.parametrize("one", [soak, search])
def test_records_keep_to_the_schema(one):
    contracts.check("record", json.dumps(one("2026-11-20")))


def test_an_id_says_when_what_and_which_and_is_one_of_its_host_and_slot():
    made = record("context_search", "2026-11-23T04:16:00Z")
    assert made["id"].startswith("20261123T041600Z-context_search-tiny-a-")
    assert records.ID.fullmatch(made["id"])
    assert record("context_search", "2026-11-23T04:16:00Z")["id"] == made["id"]
    elsewhere = record("context_search", "2026-11-23T04:16:00Z", host={**HOST, "name": "b70-02"})
    beside = record("context_search", "2026-11-23T04:16:00Z", slot="second")
    assert len({made["id"], elsewhere["id"], beside["id"]}) == 3


def test_what_nobody_asked_is_null():
    made = record(canary=None, engine=None, stack=None, fingerprint=None)
    assert made["canary"] == {"before": None, "after": None}
    assert (made["engine"], made["stack"], made["fingerprint"]) == (None, None, None)


def test_a_record_ends_when_it_began_where_the_clock_was_set_back():
    made = record(began_at="2026-11-23T04:16:00Z", ended_at="2026-11-23T04:15:59Z")
    assert made["ended_at"] == made["began_at"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"verdict": "fine"}, "the verdict 'fine'"),
        ({"ended_at": "2026-11-23 04:16"}, "ended_at of a record is '2026-11-23 04:16'"),
        ({"profile": "../etc"}, "makes no id"),
        ({"data": {"ttft_s": float("nan")}}, "JSON"),
    ],
)
def test_a_record_that_would_not_be_one_is_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        record(**given)


def test_a_kind_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="the kinds are benchmark, soak"):
        record("guess")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "no record of schema 1"),
        ('{"schema": 2}', "no record of schema 1"),
        ('{"schema": 1}', "lacks id, number"),
    ],
)
def test_a_damaged_file_is_named_by_what_is_wrong(content, problem):
    with pytest.raises(ValueError, match=problem):
        records.parse(content, "a")


def test_a_record_under_the_name_of_another_is_refused():
    with pytest.raises(ValueError, match="it holds the record"):
        records.parse(records.text(record()), "another")


def test_the_row_has_the_summary_or_the_first_reason():
    assert records.row(record(data={"summary": "781 tok/s"}, reasons=["no"]))["summary"] == "781 tok/s"
    assert records.row(record(verdict="failed", reasons=["the canary failed", "no"]))["summary"] == "the canary failed"
    assert records.row(record())["summary"] == ""
    contracts.check("index", json.dumps({"schema": 1, "machine": "", "records": [records.row(record())]}))
