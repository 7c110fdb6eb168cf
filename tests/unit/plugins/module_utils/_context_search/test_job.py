# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search as a unit of the host: begun once, joined, collected, and its record in every case."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._context_search import job
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import job as jobs
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.work import Work, WorkError
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Reply
from ansible_collections.arcpro.b70.plugins.modules.b70_context_search import ARGUMENTS
from unit import contracts
from unit.plugins.module_utils._context_search.test_driver import Host, rendering, served
from unit.plugins.module_utils._slot.calls import recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, profile_data
from unit.plugins.module_utils._soak.test_job import Systemd, begun_at_once
from unit.plugins.plugin_utils._evidence import fleet


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
    assert job.SearchJob(params).start(archive).joined is False
    assert job.SearchJob(params).start(archive).joined is True
    (task,) = systemd.started
    assert task.unit == "b70-context-search-main.service"
    work = job.SearchJob(params).work
    job.main(str(work.folder))
    assert job.SearchJob(params).look().state == "running"
    systemd.running = False
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
        job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
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
        job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    host.lock_holder, host.lock_for_s = "the slot settles", 999.0
    (why, left) = job.SearchJob(params).look().result["reasons"]
    assert why.endswith("nothing is served, the slot is in phase switching"), why
    assert "a trial is in place of b until the next switch to it" in left


def test_one_that_could_not_begin_leaves_everything(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.SearchJob(params).start(archive)
    host.lock_holder, host.lock_for_s = "a switch", 999.0
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    (why,) = job.SearchJob(params).look().result["reasons"]
    assert "phase lock" in why, why
    assert why.endswith("; the engine was not touched")


def test_a_result_whose_answer_was_lost_is_given_again(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    first = {**params, "token": "1"}
    assert job.SearchJob(first).start(archive).joined is False
    assert job.SearchJob(first).start(archive).joined is False
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    job.SearchJob(params).look()  # whose answer was lost as well
    assert job.SearchJob(first).start(archive).joined is False
    job.SearchJob(first).acknowledge()
    second = {**params, "token": "2"}
    assert job.SearchJob(second).start(archive).state == "running"
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    third = {**params, "token": "3"}
    collected = job.SearchJob(third).start(archive)
    assert (collected.state, collected.joined) == ("ended", True)
    assert job.SearchJob(third).start(archive) == collected
    assert len(systemd.started) == 2


def test_two_plays_at_once_begin_one_search(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = [job.SearchJob({**params, "token": token}) for token in ("1", "2")]
    first, second = begun_at_once(monkeypatch, archive, *plays)
    assert (first.state, first.joined) == ("running", False)
    assert (second.state, second.joined) == ("running", True)
    assert len(systemd.started) == 1


def test_neither_a_clock_that_was_set_back_nor_a_full_disk_wedges_it(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.SearchJob(params).start(archive)
    work = job.SearchJob(params).work
    job.main(str(work.folder))
    seen = work.seen()
    assert seen is not None
    work.save_seen({**seen, "ended": {**seen["ended"], "at": "2001-01-01T00:00:00Z"}})
    systemd.running = False

    def full(*_given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", full)
        with pytest.raises(WorkError, match=r"No space left on device.*run the same again"):
            job.SearchJob(params).answer(check_mode=False)
    found = job.SearchJob(params).answer(check_mode=False)
    assert (found["joined"], found["verdict"]) == (True, "passed")
    assert record(params)["ended_at"] == record(params)["began_at"]


def test_a_look_collects_nothing(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    shown = {**params, "state": "shown"}
    assert job.SearchJob(shown).answer(check_mode=False)["waits"] is False
    job.SearchJob(params).start(archive)
    assert job.SearchJob(shown).answer(check_mode=False)["waits"] is True
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    assert job.SearchJob(shown).answer(check_mode=False)["waits"] is True
    assert job.SearchJob(params).start(archive).joined is True
    job.SearchJob({**params, "step": "acknowledge"}).answer(check_mode=False)
    assert job.SearchJob(shown).answer(check_mode=False)["waits"] is False


def test_another_search_is_not_joined(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.SearchJob(params).start(archive)
    other = {**params, "sequences": 32, "most": 8192}
    with pytest.raises(WorkError, match="under way, with sequences 64, not 32; most 0, not 8192: run it with"):
        job.SearchJob(other).start(archive)
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    with pytest.raises(WorkError, match=r"has ended, with .*: it passed, and its record is .*; run this again"):
        job.SearchJob(other).start(archive)
    assert job.SearchJob(other).start(archive).state == "running"


def test_what_would_have_no_way_back_is_refused_before_it_begins(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    switch(host, "b")
    switch(host, "a", gate=Gate.HEALTHY)
    with pytest.raises(WorkError, match="no search begins: there is no way back to"):
        job.SearchJob(params).start(archive)
    assert (systemd.started, job.SearchJob(params).work.folder.exists()) == ([], False)


@pytest.mark.parametrize("words", [["--max-num-seqs", "63"], ["--max-num-seqs=63"]])
def test_more_sequences_than_the_engine_works_on_at_once_are_refused(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path, words: list[str]
) -> None:
    argv = [*profile_data("b")["engine"]["argv"], "--max-model-len=15616", *words]
    host.render("b", engine__argv=argv, engine__max_model_len=15616)
    todo = "set engine.settings.max_num_seqs to 64 or more, or search for 63 at most"
    with pytest.raises(WorkError, match=f"no search begins: the engine of b works on 63 sequences at once, .*; {todo}"):
        job.SearchJob(params).start(archive)
    assert (systemd.started, job.SearchJob(params).work.folder.exists()) == ([], False)
    assert job.SearchJob({**params, "sequences": 63}).start(archive).state == "running"


def test_none_passes(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    host.tokens = lambda length: 1000
    job.SearchJob(params).start(archive)
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
    result = job.SearchJob(params).look().result
    assert result["verdict"] == "failed"
    assert "no length from 1024 has room for 64 sequences; a is served again, verified" in result["reasons"]


def test_a_length_that_has_room_and_fails_is_in_the_record(
    host: Host, systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    host.breaks = lambda tokens: Reply(503, "full") if tokens > 4400 else None
    job.SearchJob(params).start(archive)
    job.main(str(job.SearchJob(params).work.folder))
    systemd.running = False
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
    assert not job.SearchJob(params).work.folder.exists()


@pytest.fixture
def former(host: Host, systemd: Systemd, params: dict[str, Any], archive: Path) -> Work:
    """A search of the former version that has ended: it sent no probes, and its trials know of none."""
    work = job.SearchJob(params).work
    job.SearchJob({**params, "probe_timeout": 0.0, "token": "1"}).start(archive)
    job.main(str(work.folder))
    systemd.running = False
    given, seen = work.given(), work.seen()
    assert given is not None
    assert seen is not None
    del given["plan"]["probe_timeout"]
    (work.folder / "given.json").write_text(json.dumps(given))
    work.save_seen({**seen, "trials": fleet.former(seen["trials"])})
    return work


def test_a_search_of_the_former_version_is_collected_and_recorded(former: Work, params: dict[str, Any]) -> None:
    shown = job.SearchJob({**params, "state": "shown"}).answer(check_mode=False)
    assert (shown["found"], shown["waits"], shown["verdict"]) == (4480, True, "passed")
    assert "the last start: 4480 tokens, room for 65.25 sequences" in shown["line"]
    found = job.SearchJob({**params, "probe_timeout": 0.0}).answer(check_mode=False)
    assert (found["joined"], found["verdict"], record(params)["data"]["found"]) == (True, "passed", 4480)


def test_a_search_of_the_former_version_sent_no_probes(former: Work, params: dict[str, Any], archive: Path) -> None:
    with pytest.raises(WorkError, match=r"another search has ended, with probe_timeout 0.0, not 1800: it passed"):
        job.SearchJob(params).start(archive)
    assert job.SearchJob(params).start(archive).state == "running"


def test_what_a_play_of_the_former_version_collected_is_not_returned_again(
    former: Work, params: dict[str, Any], archive: Path
) -> None:
    result = job.SearchJob(params).look().result
    former.save_result({**result, "collected_by": "1"})
    assert job.SearchJob({**params, "state": "shown"}).answer(check_mode=False)["waits"] is False
    assert job.SearchJob({**params, "token": "2"}).start(archive).state == "running"


@pytest.mark.parametrize("seen", [{"now": ""}, {"trials": None}, {"trials": [{}]}])
def test_what_no_version_wrote_is_named_with_what_to_remove(
    former: Work, params: dict[str, Any], seen: dict[str, Any]
) -> None:
    former.save_seen(seen)
    with pytest.raises(WorkError, match=rf"the search in {former.folder} .*; remove {former.folder} to give it up"):
        job.SearchJob(params).answer(check_mode=False)
