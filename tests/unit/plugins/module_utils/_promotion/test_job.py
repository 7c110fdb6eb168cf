# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The production gate as a unit of the host: what it refuses, what it takes along, and its record in every case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import job as jobs
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.job import Commission
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._promotion import job
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.gate import nothing_seen
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import NAMES, PromotionPlan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError
from ansible_collections.arcpro.b70.plugins.modules.b70_promotion import ARGUMENTS
from unit import contracts
from unit.plugins.module_utils._promotion.doors import Door, profile, run
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost
from unit.plugins.module_utils._work.units import Systemd, program

KEY = "a key that nobody may read"


@pytest.fixture
def fake_host() -> FakeHost:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    return found


@pytest.fixture
def systemd(fake_host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(job.PromotionJob, "systemd", found)
    monkeypatch.setattr(jobs, "host_effects", lambda clock: fake_host.effects())
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return program(tmp_path)


@pytest.fixture
def params(tmp_path: Path, fake_host: FakeHost) -> dict[str, Any]:
    given = {key: value.get("default") for key, value in ARGUMENTS.items()}
    # The state of the slot is the one in memory; what is recorded is in real files.
    return {**given, "profile": "a", "state_dir": str(tmp_path / "state"), "records_dir": str(tmp_path / "records")}


def records(params: dict[str, Any]) -> list[dict[str, Any]]:
    store = Store(params["records_dir"])
    found = [store.read(record_id) for record_id in store.ids()]
    for record in found:
        contracts.check("record", json.dumps(record))
    return found


def ended(params: dict[str, Any], systemd: Systemd, seen: dict[str, Any]) -> dict[str, Any]:
    """The record of a gate whose unit has seen this."""
    job.PromotionJob(params).folder.save_seen(seen)
    systemd.end()
    job.PromotionJob(params).look()
    (record,) = records(params)
    return record


def test_a_gate_is_begun_as_root_and_joined(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    first = job.PromotionJob({**params, "token": "first"}).start(archive)
    again = job.PromotionJob({**params, "token": "second"}).start(archive)
    assert (first.state, first.joined, again.state, again.joined) == ("running", False, "running", True)
    (task,) = systemd.started
    assert (task.unit, task.user, task.limit_s) == ("b70-promotion-main.service", "", 43200)
    assert first.given["plan"]["items"] == list(NAMES)
    assert records(params) == []


def test_the_key_of_a_client_is_read_by_root_once(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    one = job.PromotionJob({**params, "api_key": KEY})
    one.start(archive)
    holding = [file for file in one.folder.path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert [(file.name, file.stat().st_mode & 0o777) for file in holding] == [("secret", 0o600)]
    assert KEY not in " ".join(systemd.started[0].run_argv())
    assert (one.folder.secret(), one.folder.secret()) == (KEY, "")


def test_a_good_gate_leaves_the_record_of_a_promotion(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob(params).start(archive)
    record = ended(params, systemd, run(Door(profile())))
    assert (record["kind"], record["verdict"], record["profile"]) == ("promotion", "passed", "a")
    assert record["fingerprint"] == "sha256:a-1"
    assert [row["item"] for row in record["data"]["items"]] == list(NAMES)
    assert record["data"]["not_run"] == []
    assert record["canary"]["before"] == record["canary"]["after"]


def test_each_item_is_told_once_the_gate_has_ended(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob(params).start(archive)
    door = Door(profile())
    door.admits = 3
    ended(params, systemd, run(door))
    found = job.PromotionJob(params).answer(check_mode=False)
    assert (found["verdict"], found["waits"]) == ("failed", True)
    assert {row["item"]: row["verdict"] for row in found["rows"]}["overload"] == "failed"
    assert found["reasons"] == ["overload: 3 were admitted and 0 refused; expected 2 and 1"]


def test_a_gate_that_was_killed_leaves_a_record(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob(params).start(archive)
    seen = run(Door(profile()))
    seen |= {"rows": seen["rows"][:3], "ended": None, "served": None, "after": None}
    record = ended(params, systemd, seen)
    assert (record["verdict"], record["data"]["ended"]["how"]) == ("unfinished", "vanished")
    assert record["data"]["not_run"] == list(NAMES[3:])


def test_one_that_saw_nothing_leaves_a_record(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob(params).start(archive)
    assert ended(params, systemd, nothing_seen())["verdict"] == "unfinished"


def test_chosen_items_are_no_promotion(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    one = {**params, "items": ["cancel", "overload"]}
    job.PromotionJob(one).start(archive)
    record = ended(one, systemd, run(Door(profile()), PromotionPlan(items=("overload", "cancel"))))
    assert (record["verdict"], record["data"]["plan"]["items"]) == ("unfinished", ["overload", "cancel"])
    assert job.PromotionJob(one).answer(check_mode=False)["complete"] is True


def test_chosen_items_that_fail_fail_the_play_and_demote_nothing(
    systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    one = {**params, "items": ["overload"]}
    job.PromotionJob(one).start(archive)
    door = Door(profile())
    door.stranger_active = 1
    assert ended(one, systemd, run(door, PromotionPlan(items=("overload",), quiet_s=1.0)))["verdict"] == "unfinished"
    assert job.PromotionJob(one).answer(check_mode=False)["complete"] is False


def test_a_profile_that_is_not_served_is_refused(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    with pytest.raises(WorkError, match=r"no production gate begins: slot main serves a, not b: run switch\.yml"):
        job.PromotionJob({**params, "profile": "b"}).start(archive)
    assert not job.PromotionJob(params).folder.path.exists()


def test_a_host_that_serves_nothing_is_refused(
    systemd: Systemd, params: dict[str, Any], archive: Path, fake_host: FakeHost
) -> None:
    switch(fake_host, None, active=False)
    with pytest.raises(WorkError, match="slot main serves no verified engine"):
        job.PromotionJob(params).start(archive)


@pytest.mark.parametrize("kind", ["soak", "benchmark", "context-search"])
def test_no_gate_beside_other_work(systemd: Systemd, params: dict[str, Any], archive: Path, kind: str) -> None:
    systemd.running.add(f"b70-{kind}-main.service")
    with pytest.raises(WorkError, match=rf"b70-{kind}-main.service runs and asks the engine too"):
        job.PromotionJob(params).start(archive)


def test_another_gate_is_not_joined(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob({**params, "items": ["overload"]}).start(archive)
    with pytest.raises(WorkError, match=r"another .*gate is under way, with items \['overload'\], not \['models'"):
        job.PromotionJob(params).start(archive)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"items": ["overlod"]}, "the gate has no item overlod"),
        ({"canary_repeats": 0}, "canary_repeats of the gate is 0: it is at least 1"),
        ({"timeout": 1}, "timeout of the gate is 1: it is at least 60"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    systemd: Systemd, params: dict[str, Any], archive: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorkError, match=words):
        job.PromotionJob({**params, **given}).start(archive)


def test_check_mode_says_what_would_run(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    found = job.PromotionJob(params).answer(check_mode=True)
    assert (
        found["foreseen"][0]
        == "would run models: the models endpoint shows the id and the context length of the profile"
    )
    assert "would leave out image: the profile accepts no pictures" in found["foreseen"]
    assert (systemd.started, records(params)) == ([], [])
    with pytest.raises(WorkError, match="no production gate would begin: slot main serves a, not b"):
        job.PromotionJob({**params, "profile": "b"}).answer(check_mode=True)
    job.PromotionJob(params).start(archive)
    assert "foreseen" not in job.PromotionJob(params).answer(check_mode=True)


def test_only_a_look_tells_a_result_that_a_play_has(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    job.PromotionJob({**params, "token": "first"}).start(archive)
    ended(params, systemd, run(Door(profile())))
    job.PromotionJob({**params, "token": "first"}).acknowledge()
    found = job.PromotionJob(params).answer(check_mode=True)
    assert (found["state"], found["verdict"], "foreseen" in found) == ("none", None, True)
    for state in ("stopped", "shown"):
        assert job.PromotionJob({**params, "state": state}).answer(check_mode=True)["verdict"] == "passed"


@pytest.mark.parametrize("state", ["stopped", "shown"])
def test_check_mode_of_a_look_foresees_no_gate(systemd: Systemd, params: dict[str, Any], state: str) -> None:
    found = job.PromotionJob({**params, "state": state, "profile": "b"}).answer(check_mode=True)
    assert (found["state"], "foreseen" in found) == ("none", False)


def test_a_gate_that_can_not_begin_leaves_no_key(
    systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch, fake_host: FakeHost
) -> None:
    one = job.PromotionJob({**params, "api_key": KEY})
    one.start(archive)
    told = Commission(one.folder, one.folder.given() or {}, fake_host.effects(), LAYOUT)
    monkeypatch.setattr(job, "commission", lambda folder: told)
    fake_host.put(LAYOUT.profile_json("a"), "no profile")
    with pytest.raises(SlotFault):
        job.main(str(one.folder.path))
    assert one.folder.secret() == ""
