# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import fcntl
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import handing, host_class
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import store as stores
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import row
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import INDEX, LOCK, Store, StoreError
from unit import contracts
from unit.plugins.module_utils._evidence.records import record

FIRST = record(began_at="2026-11-23T04:16:00Z")
SECOND = record("soak", began_at="2026-11-23T05:16:00Z", profile="tiny-b", verdict="failed", reasons=["it fell silent"])


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "records")


def test_a_record_is_written_with_its_row_for_all_to_read(store):
    path = store.write(FIRST)
    store.write(SECOND)
    assert path == store.root / "benchmark" / f"{FIRST['id']}.json"
    assert store.read(FIRST["id"]) == FIRST
    contracts.check("record", path.read_text())
    index = store.root / INDEX
    contracts.check("index", index.read_text())
    assert [item["id"] for item in json.loads(index.read_text())["records"]] == [SECOND["id"], FIRST["id"]]
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, index)} == {0o644}
    assert {file.name for file in store.root.rglob("*") if file.is_file()} == {
        INDEX,
        LOCK,
        *(f"{one['id']}.json" for one in (FIRST, SECOND)),
    }


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_everybody_may_read_records_whatever_the_umask_of_root_is(store, umask):
    before = os.umask(umask)
    try:
        path = store.write(FIRST)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (store.root, path.parent)} == {0o755}
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, store.root / INDEX)} == {0o644}


def test_who_may_only_read_the_folder_holds_up_no_writer(store, monkeypatch):
    monkeypatch.setattr(stores, "LOCK_LIMIT_S", 0.0)
    store.write(FIRST)
    descriptor = os.open(store.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        store.write(SECOND)
    finally:
        os.close(descriptor)
    assert stat.S_IMODE((store.root / LOCK).stat().st_mode) == 0o600


def test_a_writer_that_never_ends_is_named(store, monkeypatch):
    monkeypatch.setattr(stores, "LOCK_LIMIT_S", 0.0)
    store.write(FIRST)
    with (store.root / LOCK).open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=rf"{store.root / LOCK} for 0 s.*`fuser"):
            store.write(SECOND)
    assert store.rows() == [row(FIRST)]


def test_rows_are_newest_first_and_of_what_is_asked_for(store):
    assert store.rows() == []
    store.write(SECOND)
    store.write(FIRST)
    assert store.rows() == [row(SECOND), row(FIRST)]
    assert store.rows("benchmark") == [row(FIRST)]
    assert store.rows(profile="tiny-b") == [row(SECOND)]
    assert store.rows("benchmark", "tiny-b") == []


def test_a_record_is_written_once(store):
    path = store.write(FIRST)
    assert store.write({**FIRST, "verdict": "failed"}) == path
    assert [item["verdict"] for item in store.rows()] == ["passed"]
    path.write_text("{")
    store.write(FIRST)
    assert store.read(FIRST["id"]) == FIRST


def test_records_are_numbered_as_they_are_written_whatever_the_clock_says(store):
    for day in (23, 22, 24):
        store.write({**record(began_at=f"2026-11-{day}T04:16:00Z"), "number": 0})
    (store.root / INDEX).unlink()
    assert [(item["number"], item["began_at"][8:10]) for item in store.rows()] == [(3, "24"), (2, "22"), (1, "23")]
    contracts.check("record", store.path(store.rows()[0]["id"]).read_text())


def test_a_machine_with_a_copy_of_the_disk_has_none_of_the_records(store, monkeypatch):
    store.write(FIRST)
    for module in (stores, host_class):
        monkeypatch.setattr(module, "machine", lambda: "0" * 32)
    assert (store.rows(), handing.hand_over(store, {})["records"]) == ([], {})
    host = {**FIRST["host"], "machine": "0" * 32}
    store.write({**SECOND, "host": host})
    index = json.loads((store.root / INDEX).read_text())
    assert (index["machine"], [item["id"] for item in index["records"]]) == ("0" * 32, [SECOND["id"]])


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", '{"schema": 2, "records": []}', '{"schema": 1, "records": [1]}']
)
def test_a_missing_or_torn_index_is_made_again_from_the_files(store, content):
    store.write(FIRST)
    index = store.root / INDEX
    index.unlink() if content is None else index.write_text(content)
    assert store.rows() == [row(FIRST)]
    store.write(SECOND)
    assert [item["id"] for item in json.loads(index.read_text())["records"]] == [SECOND["id"], FIRST["id"]]


def test_a_record_whose_row_a_crash_prevented_is_listed_and_one_that_was_removed_is_not(store):
    store.write(FIRST)
    before = (store.root / INDEX).read_text()
    store.write(SECOND)
    (store.root / INDEX).write_text(before)
    assert store.rows() == [row(SECOND), row(FIRST)]
    store.path(FIRST["id"]).unlink()
    assert store.rows() == [row(SECOND)]


def test_a_damaged_record_is_not_listed_and_named_by_who_reads_it(store):
    path = store.write(FIRST)
    path.write_text("{")
    (store.root / INDEX).unlink()
    assert store.rows() == []
    assert store.ids() == [FIRST["id"]]
    with pytest.raises(StoreError, match=rf"{path}.*remove it, or restore it"):
        store.read(FIRST["id"])


def test_what_is_no_id_or_not_there_is_said(store):
    with pytest.raises(StoreError, match="is not the id of a record"):
        store.read("../../etc/passwd")
    with pytest.raises(StoreError, match="there is no record"):
        store.read(FIRST["id"])


def test_writers_at_once_lose_no_row(store):
    made = [record(began_at=f"2026-11-23T04:16:{second:02}Z") for second in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.write, made))
    listed = json.loads((store.root / INDEX).read_text())["records"]
    assert [item["id"] for item in listed] == [one["id"] for one in reversed(made)]
