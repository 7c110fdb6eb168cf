# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search as a unit of the host: begun once, joined, collected, and its record in every case."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._context_search import job
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.work import Work
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate
from ansible_collections.arcpro.b70.plugins.modules.b70_context_search import ARGUMENTS
from unit import contracts
from unit.plugins.module_utils._context_search.test_driver import Host, rendering, served
from unit.plugins.module_utils._slot.calls import recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed
from unit.plugins.module_utils._soak.test_job import Systemd


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    found = served()
    monkeypatch.setattr(job, "host_effects", lambda clock: found.effects())
    monkeypatch.setattr(job, "layout_of", lambda params: LAYOUT)
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self: None)
    return found


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(job, "_SYSTEMD", found)
    return found


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    given = {key: value["default"] for key, value in ARGUMENTS.items() if "default" in value}
    places = {"state_dir": str(tmp_path / "state"), "records_dir": str(tmp_path / "records")}
    return {**given, **places, "profile": "b", "sequences": 64, "least": 1024}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "module.zip"
    path.write_bytes(b"program")
    return path


def record(params: dict[str, Any]) -> dict[str, Any]:
    store = Store(params["records_dir"])
    (record_id,) = store.ids()
    found = store.read(record_id)
    contracts.check("record", json.dumps(found))
    return found


def test_it_is_begun_joined_and_collected(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    before = rendering(host)
    assert job.start(params, archive)["joined"] is False
    assert job.start(params, archive)["joined"] is True
    (task,) = systemd.started
    assert task.unit == "b70-context-search-main.service"
    work = job.work_of(params)
    job.main(str(work.folder))
    assert job.look(params)["state"] == "running"
    systemd.running = False
    found = job.start(params, archive)
    assert (found["joined"], found["result"]["verdict"]) == (True, "passed")
    assert found["result"]["reasons"] == ["4480 tokens is the longest with 64 sequences; a is served again, verified"]
    kept = record(params)
    assert (kept["data"]["found"], len(kept["data"]["trials"]), kept["profile"]) == (4480, 6, "b")
    assert kept["data"]["summary"] == "max_model_len: 4480 for 64 sequences, 6 starts"
    assert (rendering(host), host.running) == (before, [LAYOUT.unit("a")])
    # What was collected is not collected again.
    assert job.start(params, archive)["joined"] is False


@pytest.mark.parametrize("settled_first", [True, False])
def test_one_that_is_killed_leaves_a_record_and_no_trial(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, settled_first: bool
) -> None:
    before = rendering(host)
    job.start(params, archive)
    host.kill_at = host.effects_done + 150
    with pytest.raises(Killed):
        job.main(str(job.work_of(params).folder))
    systemd.running = False
    if settled_first:
        recover(host)
    found = job.look(params)
    if not settled_first:
        recover(host)
    assert found["result"]["verdict"] == "unfinished"
    assert record(params)["data"]["found"] is None
    assert (rendering(host), host.running, host.state.verified) == (before, [LAYOUT.unit("a")], True)


def test_one_that_was_killed_says_what_is_served_now(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.start(params, archive)
    host.kill_at = host.effects_done + 150
    with pytest.raises(Killed):
        job.main(str(job.work_of(params).folder))
    systemd.running = False
    host.lock_holder, host.lock_for_s = "the slot settles", 999.0
    (why, left) = job.look(params)["result"]["reasons"]
    assert why.endswith("nothing is served, the slot is in phase switching"), why
    assert "a trial is in place of b until the next switch to it" in left


def test_one_that_could_not_begin_leaves_everything(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.start(params, archive)
    host.lock_holder, host.lock_for_s = "a switch", 999.0
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    (why,) = job.look(params)["result"]["reasons"]
    assert "phase lock" in why, why
    assert why.endswith("; the engine was not touched")


def test_a_result_whose_answer_was_lost_is_given_again(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    first = {**params, "token": "1"}
    assert job.start(first, archive)["joined"] is False
    assert job.start(first, archive)["joined"] is False
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    job.look(params)  # whose answer was lost as well
    assert job.start(first, archive)["joined"] is False
    second = {**params, "token": "2"}
    assert job.start(second, archive)["state"] == "running"
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    third = {**params, "token": "3"}
    collected = job.start(third, archive)
    assert (collected["state"], collected["joined"]) == ("ended", True)
    assert job.start(third, archive) == collected
    assert len(systemd.started) == 2


def test_two_plays_at_once_begin_one_search(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = []
    others: list[Thread] = []
    prepare = Work.prepare

    def with_another(self: Work, *given: Any) -> None:
        if not others:
            others.append(Thread(target=lambda: found.append(job.start({**params, "token": "2"}, archive))))
            others[0].start()
            others[0].join(0.5)  # it has found no search, or waits until this one has begun
        prepare(self, *given)

    monkeypatch.setattr(Work, "prepare", with_another)
    found.append(job.start({**params, "token": "1"}, archive))
    others[0].join()
    assert [(one["state"], one["joined"]) for one in found] == [("running", False), ("running", True)]
    assert len(systemd.started) == 1


def test_neither_a_clock_that_was_set_back_nor_a_full_disk_wedges_it(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.start(params, archive)
    work = job.work_of(params)
    job.main(str(work.folder))
    seen = work.seen()
    assert seen is not None
    work.save_seen({**seen, "ended": {**seen["ended"], "at": "2001-01-01T00:00:00Z"}})
    systemd.running = False

    def full(*_given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", full)
        with pytest.raises(job.SearchError, match=r"No space left on device.*run the same again"):
            job.answer(params, check_mode=False)
    found = job.answer(params, check_mode=False)
    assert (found["joined"], found["verdict"]) == (True, "passed")
    assert record(params)["ended_at"] == record(params)["began_at"]


def test_a_look_collects_nothing(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    shown = {**params, "state": "shown"}
    assert job.answer(shown, check_mode=False)["waits"] is False
    job.start(params, archive)
    assert job.answer(shown, check_mode=False)["waits"] is True
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    assert job.answer(shown, check_mode=False)["waits"] is True
    assert job.start(params, archive)["joined"] is True
    assert job.answer(shown, check_mode=False)["waits"] is False


def test_another_search_is_not_joined(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.start(params, archive)
    other = {**params, "sequences": 32, "most": 8192}
    with pytest.raises(job.SearchError, match="under way, with sequences 64, not 32; most 0, not 8192: run it with"):
        job.start(other, archive)
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    with pytest.raises(job.SearchError, match=r"has ended, with .*: it passed, and its record is .*; run this again"):
        job.start(other, archive)
    assert job.start(other, archive)["state"] == "running"


def test_what_would_have_no_way_back_is_refused_before_it_begins(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    switch(host, "b")
    switch(host, "a", gate=Gate.HEALTHY)
    with pytest.raises(job.SearchError, match="nothing is searched: there is no way back to"):
        job.start(params, archive)
    assert (systemd.started, job.work_of(params).folder.exists()) == ([], False)


def test_none_passes(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    host.tokens = lambda length: 1000
    job.start(params, archive)
    job.main(str(job.work_of(params).folder))
    systemd.running = False
    result = job.look(params)["result"]
    assert result["verdict"] == "failed"
    assert "no length from 1024 has room for 64 sequences; a is served again, verified" in result["reasons"]


def test_check_mode_begins_nothing(host: Host, systemd: Systemd, params: dict[str, Any]) -> None:
    assert job.answer(params, check_mode=True)["state"] == "none"
    assert systemd.started == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profile": "bb"}, "nothing is searched: profile 'bb' is not rendered"),
        ({"sequences": 0}, "sequences and granularity are at least 1"),
        ({"most": 1030}, "nothing is searched: no multiple of 128 lies between 1025 and 1030"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_begins(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(job.SearchError, match=words):
        job.start({**params, "least": 1025, **changes}, archive)
    assert systemd.started == []
    assert not job.work_of(params).folder.exists()
