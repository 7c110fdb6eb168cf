# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search as a unit of the host: begun once, joined, collected, and its record in every case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._context_search import job
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import job as jobs
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Reply
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError
from ansible_collections.arcpro.b70.plugins.modules.b70_context_search import ARGUMENTS
from unit import contracts
from unit.plugins.module_utils._context_search.test_driver import Host, rendering, served
from unit.plugins.module_utils._slot.calls import recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, profile_data
from unit.plugins.module_utils._work.units import Systemd, program


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    found = served()
    monkeypatch.setattr(jobs, "host_effects", lambda clock: found.effects())
    monkeypatch.setattr(jobs, "layout_of", lambda params: LAYOUT)
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self: None)
    return found


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(job.SearchJob, "systemd", found)
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return program(tmp_path)


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    given = {key: value["default"] for key, value in ARGUMENTS.items() if "default" in value}
    places = {"state_dir": str(tmp_path / "state"), "records_dir": str(tmp_path / "records")}
    return {**given, **places, "profile": "b", "sequences": 64, "least": 1024}


def record(params: dict[str, Any]) -> dict[str, Any]:
    store = Store(params["records_dir"])
    (record_id,) = store.ids()
    found = store.read(record_id)
    contracts.check("record", json.dumps(found))
    return found


def test_it_is_begun_joined_and_collected(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    before = rendering(host)
    assert job.SearchJob(params).start(archive).joined is False
    assert job.SearchJob(params).start(archive).joined is True
    (task,) = systemd.started
    assert task.unit == "b70-context-search-main.service"
    work = job.SearchJob(params).folder
    job.main(str(work.path))
    assert job.SearchJob(params).look().state == "running"
    systemd.end()
    found = job.SearchJob(params).start(archive)
    assert (found.joined, found.result["verdict"]) == (True, "passed")
    assert found.result["reasons"] == ["4480 tokens is the longest with 64 sequences; a is served again, verified"]
    kept = record(params)
    assert (kept["data"]["found"], len(kept["data"]["trials"]), kept["profile"]) == (4480, 6, "b")
    assert kept["data"]["summary"] == "max_model_len: 4480 for 64 sequences, 6 starts"
    assert (rendering(host), host.running) == (before, [LAYOUT.unit("a")])
    # What was told is not told again.
    job.SearchJob(params).acknowledge()
    assert job.SearchJob(params).start(archive).joined is False


@pytest.mark.parametrize("settled_first", [True, False])
def test_one_that_is_killed_leaves_a_record_and_no_trial(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, settled_first: bool
) -> None:
    before = rendering(host)
    job.SearchJob(params).start(archive)
    host.kill_at = host.effects_done + 150
    with pytest.raises(Killed):
        job.main(str(job.SearchJob(params).folder.path))
    systemd.end()
    if settled_first:
        recover(host)
    found = job.SearchJob(params).look()
    if not settled_first:
        recover(host)
    assert found.result["verdict"] == "unfinished"
    assert record(params)["data"]["found"] is None
    assert (rendering(host), host.running, host.state.verified) == (before, [LAYOUT.unit("a")], True)


def test_one_that_was_killed_says_what_is_served_now(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.SearchJob(params).start(archive)
    host.kill_at = host.effects_done + 150
    with pytest.raises(Killed):
        job.main(str(job.SearchJob(params).folder.path))
    systemd.end()
    host.lock_holder, host.lock_for_s = "the slot settles", 999.0
    (why, left) = job.SearchJob(params).look().result["reasons"]
    assert why.endswith("nothing is served, the slot is in phase switching"), why
    assert "a trial is in place of b until the next switch to it" in left


def test_one_that_could_not_begin_leaves_everything(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.SearchJob(params).start(archive)
    host.lock_holder, host.lock_for_s = "a switch", 999.0
    job.main(str(job.SearchJob(params).folder.path))
    systemd.end()
    (why,) = job.SearchJob(params).look().result["reasons"]
    assert "phase lock" in why, why
    assert why.endswith("; the engine was not touched")


def test_another_search_is_not_joined(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.SearchJob(params).start(archive)
    other = {**params, "sequences": 32, "most": 8192}
    with pytest.raises(WorkError, match="under way, with sequences 64, not 32; most 0, not 8192: run this again"):
        job.SearchJob(other).start(archive)


def test_what_would_have_no_way_back_is_refused_before_it_begins(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    switch(host, "b")
    switch(host, "a", gate=Gate.HEALTHY)
    with pytest.raises(WorkError, match="no search begins: there is no way back to"):
        job.SearchJob(params).start(archive)
    assert (systemd.started, job.SearchJob(params).folder.path.exists()) == ([], False)


@pytest.mark.parametrize("words", [["--max-num-seqs", "63"], ["--max-num-seqs=63"]])
def test_more_sequences_than_the_engine_works_on_at_once_are_refused(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, words: list[str]
) -> None:
    argv = [*profile_data("b")["engine"]["argv"], "--max-model-len=15616", *words]
    host.render("b", engine__argv=argv, engine__max_model_len=15616)
    todo = "set engine.settings.max_num_seqs to 64 or more, or search for 63 at most"
    with pytest.raises(WorkError, match=f"no search begins: the engine of b works on 63 sequences at once, .*; {todo}"):
        job.SearchJob(params).start(archive)
    assert (systemd.started, job.SearchJob(params).folder.path.exists()) == ([], False)
    assert job.SearchJob({**params, "sequences": 63}).start(archive).state == "running"


def test_none_passes(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    host.tokens = lambda length: 1000
    job.SearchJob(params).start(archive)
    job.main(str(job.SearchJob(params).folder.path))
    systemd.end()
    result = job.SearchJob(params).look().result
    assert result["verdict"] == "failed"
    assert "no length from 1024 has room for 64 sequences; a is served again, verified" in result["reasons"]


def test_a_length_that_has_room_and_fails_is_in_the_record(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    host.breaks = lambda tokens: Reply(503, "full") if tokens > 4400 else None
    job.SearchJob(params).start(archive)
    job.main(str(job.SearchJob(params).folder.path))
    systemd.end()
    assert job.SearchJob(params).look().result["reasons"] == [
        "4352 tokens is the longest with 64 sequences; a is served again, verified",
        "4480 tokens: the engine reports room for 65.25, but 64 of 64 requests near the limit failed: 503 full",
    ]
    trials = {trial["length"]: trial for trial in record(params)["data"]["trials"]}
    assert (trials[4480]["passes"], trials[4352]["passes"], trials[4352]["problem"]) == (False, True, "")
    assert list(trials[4352]["probes"]) == ["ttft", "decode", "near_limit"]
    assert trials[15616]["probes"] == {}


def test_check_mode_begins_nothing(host: Host, systemd: Systemd, params: dict[str, Any]) -> None:
    assert job.SearchJob(params).answer(check_mode=True)["state"] == "none"
    assert systemd.started == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profile": "bb"}, "no search begins: profile 'bb' is not rendered"),
        ({"sequences": 0}, "sequences and granularity are at least 1"),
        ({"most": 1030}, "no search begins: no multiple of 128 lies between 1025 and 1030"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_begins(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorkError, match=words):
        job.SearchJob({**params, "least": 1025, **changes}).start(archive)
    assert systemd.started == []
    assert not job.SearchJob(params).folder.path.exists()


@pytest.mark.parametrize("seen", [{"now": ""}, {"trials": None}, {"trials": [{}]}])
def test_what_no_version_wrote_is_named_with_what_to_remove(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, seen: dict[str, Any]
) -> None:
    job.SearchJob(params).start(archive)
    folder = job.SearchJob(params).folder
    folder.save_seen(seen)
    systemd.end()
    with pytest.raises(WorkError, match=rf"the search in {folder.path} .*; remove {folder.path} to give it up"):
        job.SearchJob(params).answer(check_mode=False)
