# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak as a unit of the host: what it is given, and its record in every case."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import job as jobs
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store, StoreError
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault, layout_of
from ansible_collections.arcpro.b70.plugins.module_utils._soak import job, watching
from ansible_collections.arcpro.b70.plugins.module_utils._soak.cycles import nothing_seen
from ansible_collections.arcpro.b70.plugins.module_utils._soak.judging import ISOLATED
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError
from ansible_collections.arcpro.b70.plugins.modules.b70_soak import ARGUMENTS
from unit import contracts
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._soak.test_cycles import Engine, soak
from unit.plugins.module_utils._work.units import Systemd, program


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    fake_host, found = host("a", load_s=1.0), Systemd()
    switch(fake_host, "a")
    served = watching.served(fake_host.effects(), layout_of({**_defaults(), "slot": "main"}))
    monkeypatch.setattr(job.SoakJob, "systemd", found)
    monkeypatch.setattr(jobs, "host_effects", lambda clock: fake_host.effects())
    monkeypatch.setattr(watching, "served", lambda fx, layout: watching.Served(served.profile, "1" * 32, 0, ""))
    return found


def _defaults() -> dict[str, Any]:
    return {key: value["default"] for key, value in ARGUMENTS.items()}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return program(tmp_path)


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {**_defaults(), "state_dir": str(tmp_path / "state"), "records_dir": str(tmp_path / "records")}


def write_seen(params: dict[str, Any], seen: dict[str, Any]) -> None:
    job.SoakJob(params).folder.save_seen(seen)


def records(params: dict[str, Any]) -> list[dict[str, Any]]:
    store = Store(params["records_dir"])
    found = [store.read(record_id) for record_id in store.ids()]
    for record in found:
        contracts.check("record", json.dumps(record))
    return found


def test_one_soak_is_begun_and_joined(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    first = job.SoakJob(params).start(archive)
    again = job.SoakJob({**params, "duration": "1h"}).start(archive)
    assert (first.state, first.joined, again.state, again.joined) == ("running", False, "running", True)
    (task,) = systemd.started
    assert (task.unit, task.limit_s) == ("b70-soak-main.service", 28800 + 1800 + 4 * 3600)
    assert task.writable == (str(job.SoakJob(params).folder.out),)
    given = job.SoakJob(params).folder.given()
    assert given is not None
    # As many at once as the profile admits.
    assert (given["plan"]["concurrency"], given["plan"]["duration_s"], given["profile"]) == (2, 28800, "a")
    assert records(params) == []


@pytest.mark.parametrize("kind", ["promotion", "benchmark", "context-search"])
def test_no_soak_beside_other_recorded_work(systemd: Systemd, params: dict[str, Any], archive: Path, kind: str) -> None:
    systemd.running = {f"b70-{kind}-main.service"}
    with pytest.raises(WorkError, match=rf"no soak begins: b70-{kind}-main\.service runs and asks the engine too"):
        job.SoakJob(params).start(archive)
    assert systemd.started == []


def test_one_that_ended_alone_is_collected_once(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.SoakJob(params).start(archive)
    write_seen(params, soak(Engine(lambda number: number == 17)))
    systemd.end()
    found = job.SoakJob(params).start(archive)
    assert (found.state, found.joined, found.result["verdict"]) == ("ended", True, "passed")
    (record,) = records(params)
    assert (record["id"], record["profile"], record["engine"]["name"]) == (found.result["record"], "a", "vllm")
    assert [row["class"] for row in record["data"]["anomalies"]] == [ISOLATED]
    assert record["canary"]["before"]["ok"]
    assert job.SoakJob(params).look().result == found.result
    assert len(records(params)) == 1
    job.SoakJob(params).acknowledge()
    assert job.SoakJob(params).start(archive).joined is False
    assert len(systemd.started) == 2


def test_a_clock_that_was_set_back_wedges_nothing(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.SoakJob(params).start(archive)
    seen = soak(Engine())
    write_seen(params, {**seen, "ended": {**seen["ended"], "at": "2001-01-01T00:00:00Z"}})
    systemd.end()
    assert job.SoakJob(params).look().result["verdict"] == "passed"
    (record,) = records(params)
    assert record["ended_at"] == record["began_at"]


def test_a_record_that_cannot_be_made_is_said_with_what_to_do(
    systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    job.SoakJob(params).start(archive)
    seen = soak(Engine())
    write_seen(params, {**seen, "ended": {**seen["ended"], "at": "at noon"}})
    systemd.end()
    with pytest.raises(WorkError, match=r"no record .*'at noon'.*remove .*soak/main to give it up"):
        job.SoakJob(params).answer(check_mode=False)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), r"No space left on device.*run the same again"),
        (StoreError("another process has held .lock for 60 s"), "the record of the soak can't be written: another"),
    ],
)
def test_a_record_that_cannot_be_written_is_written_by_the_next_play(
    systemd: Systemd,
    params: dict[str, Any],
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    words: str,
) -> None:
    job.SoakJob(params).start(archive)
    write_seen(params, soak(Engine()))
    systemd.end()

    def write(*_given: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", write)
        with pytest.raises(WorkError, match=words):
            job.SoakJob(params).answer(check_mode=False)
    found = job.SoakJob(params).answer(check_mode=False)
    assert (found["joined"], found["verdict"]) == (True, "passed")


@pytest.mark.parametrize("cycles", [0, 1])
def test_one_that_was_killed_leaves_a_record(
    systemd: Systemd, params: dict[str, Any], archive: Path, cycles: int
) -> None:
    job.SoakJob(params).start(archive)
    if cycles:
        row = {"number": 1, "began_at": "2026-06-07T09:00:00Z", "seconds": None, "canary": None, "anomalies": 0}
        write_seen(params, {**nothing_seen(), "cycles": [{**row, "load": None}]})
    systemd.end()
    found = job.SoakJob(params).look()
    assert found.result["verdict"] == "unfinished"
    assert records(params)[0]["data"]["ended"]["how"] == "vanished"


def test_check_mode_begins_nothing_and_writes_no_record(
    systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    assert job.SoakJob(params).answer(check_mode=True)["state"] == "none"
    assert systemd.started == []
    job.SoakJob(params).start(archive)
    systemd.end()
    found = job.SoakJob(params).answer(check_mode=True)
    assert (found["state"], found["verdict"], records(params)) == ("ended", None, [])


def test_one_that_is_stopped_is_unfinished(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.SoakJob(params).start(archive)
    found = job.SoakJob({**params, "state": "stopped"}).answer(check_mode=False)
    assert (found["state"], found["verdict"], found["changed"]) == ("ended", "unfinished", False)
    # Systemd has dropped the unit: to stop it again is no failure.
    assert job.SoakJob({**params, "state": "stopped"}).answer(check_mode=False)["verdict"] == "unfinished"


def test_nothing_is_soaked_where_nothing_is_served(
    systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def served(fx: Any, layout: Any) -> None:
        raise SlotFault("slot main serves no verified engine")

    monkeypatch.setattr(watching, "served", served)
    with pytest.raises(WorkError, match="no soak begins: slot main serves no verified engine"):
        job.SoakJob(params).start(archive)
    assert not job.SoakJob(params).folder.path.exists()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("duration", "8 hours", "duration of the soak: '8 hours' is no duration"),
        ("interval", "", "interval of the soak"),
        ("reruns", -1, "reruns of the soak is -1: it is at least 0"),
        ("baseline_cycles", 0, "baseline_cycles of the soak is 0: it is at least 1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(params: dict[str, Any], key: str, value: Any, words: str) -> None:
    with pytest.raises(WorkError, match=words):
        job.plan_of({**params, key: value}, 8)


def test_a_plan_that_asks_no_wrong_answer_again_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(WorkError, match=r"reruns and stress of the soak are both 0.*at least 1"):
        job.plan_of({**params, "reruns": 0, "stress": 0}, 8)
    assert job.plan_of({**params, "reruns": 0, "stress": 1}, 8).stress == 1
