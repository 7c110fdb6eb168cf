# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark that is left to systemd: begun once, joined or found by the next run, and kept until it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _transient
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import bench, draw, job, service
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.bench import BenchmarkError
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import essence
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import host_class
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import ToldToEndFault
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import layout_of
from unit.plugins.module_utils._evidence.records import HOST, record
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost

from .benchmarks import data

PARAMS = {
    **{name: spec.get("default") for name, spec in ARGUMENTS.items()},
    "shapes": ["short-128"],
    "tools_python": "/opt/b70/evidence/bin/python",
    "name": "b70-01",
    "api_key": "hidden",
}
SERVED = ("tiny-a", "sha256:0f3c", "one")  # with the invocation of its engine


class Systemd:
    """Knows one unit, and those of others that run."""

    def __init__(self) -> None:
        self.now = _transient.State("inactive", "success", "0")
        self.started: list[_transient.Task] = []
        self.others: set[str] = set()

    def state(self, unit: str) -> _transient.State:
        return _transient.State("active", "success", "0") if unit in self.others else self.now

    def forget(self, unit: str) -> None:
        pass

    def start(self, task: _transient.Task) -> None:
        self.started.append(task)
        self.now = _transient.State("active", "success", "0")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "module.zip"
    path.write_bytes(b"program")
    return path


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def here(tmp_path: Path, systemd: Systemd) -> job.Job:
    return job.Job("main", tmp_path / "run/main/benchmark", systemd)  # type: ignore[arg-type]


def start(here: job.Job, archive: Path, **given: Any) -> str:
    served = given.pop("served", SERVED)
    return here.start({**PARAMS, **given}, served, lambda: archive, lambda: None)


def test_a_benchmark_is_begun_once_and_then_joined(here: job.Job, systemd: Systemd, archive: Path) -> None:
    assert [start(here, archive), start(here, archive)] == ["begun", "joined"]
    (task,) = systemd.started
    assert (task.unit, task.limit_s) == ("b70-benchmark-main.service", 43200)
    assert here.folder.stat().st_mode & 0o777 == 0o700
    assert here.file("asked.json").stat().st_mode & 0o777 == 0o600
    assert "hidden" not in " ".join(task.run_argv())
    assert "hidden" in here.file("asked.json").read_text()


def test_no_benchmark_beside_a_gate(here: job.Job, systemd: Systemd, archive: Path) -> None:
    systemd.others = {"b70-promotion-main.service"}
    with pytest.raises(BenchmarkError, match=r"end it with `systemctl stop b70-promotion-main\.service`"):
        start(here, archive)
    assert not here.folder.exists()
    systemd.others = {"b70-soak-main.service"}
    assert start(here, archive) == "begun"


def test_another_benchmark_is_not_joined(here: job.Job, archive: Path) -> None:
    start(here, archive)
    with pytest.raises(BenchmarkError, match="another benchmark runs on this host, with other settings"):
        start(here, archive, streams=[1])


def test_what_nobody_collected_is_found(here: job.Job, systemd: Systemd, archive: Path) -> None:
    start(here, archive)
    here.file("result.json").write_text(json.dumps({"record": {"id": "r"}}))
    systemd.now = _transient.State("inactive", "success", "0")
    assert start(here, archive) == "found"
    assert [here.collect(), here.collect()] == [{"record": {"id": "r"}}] * 2
    here.forget()
    assert start(here, archive) == "begun"
    assert len(systemd.started) == 2


def test_two_controllers_that_watch_get_the_same_result(here: job.Job, systemd: Systemd, archive: Path) -> None:
    assert [start(here, archive), start(here, archive)] == ["begun", "joined"]
    here.file("result.json").write_text(json.dumps({"record": {"id": "r"}}))
    systemd.now = _transient.State("inactive", "success", "0")
    assert here.collect() == {"record": {"id": "r"}}
    here.forget()
    assert here.collect() == {"record": {"id": "r"}}
    # The key is gone at once.
    assert "hidden" not in here.file("asked.json").read_text()


def test_a_late_controller_does_not_disturb_the_next_benchmark(here: job.Job, archive: Path) -> None:
    here.forget()
    assert not here.folder.exists()
    start(here, archive)
    here.forget()
    assert start(here, archive) == "joined"


def test_the_result_of_other_settings_is_not_taken_for_this_one(here: job.Job, systemd: Systemd, archive: Path) -> None:
    start(here, archive)
    here.file("result.json").write_text("{}")
    systemd.now = _transient.State("inactive", "success", "0")
    assert start(here, archive, streams=[1]) == "begun"
    assert not here.file("result.json").exists()


@pytest.mark.parametrize(
    "served",
    [("tiny-b", "sha256:0f3c", "one"), ("tiny-a", "sha256:77", "one"), ("tiny-a", "sha256:0f3c", "two"), (None,) * 3],
)
def test_the_result_of_what_was_served_before_is_not_found(
    here: job.Job, systemd: Systemd, archive: Path, served: tuple[str | None, ...]
) -> None:
    start(here, archive)
    assert start(here, archive, served=served) == "joined"
    here.file("result.json").write_text("{}")
    systemd.now = _transient.State("inactive", "success", "0")
    assert start(here, archive, served=served) == "begun"


def test_a_benchmark_that_failed_before_it_measured_is_begun_anew(
    here: job.Job, systemd: Systemd, archive: Path
) -> None:
    start(here, archive)
    here.file("result.json").write_text(json.dumps({"failed": True, "msg": "guidellm is not installed"}))
    systemd.now = _transient.State("inactive", "success", "0")
    assert start(here, archive) == "begun"
    assert not here.file("result.json").exists()


@pytest.mark.parametrize("other", [{"frontdoor_url": "http://[::1]:8000"}, {"timeout": 60}, {"api_key": "another"}])
def test_what_would_measure_otherwise_is_another_benchmark(here: job.Job, archive: Path, other: dict[str, Any]) -> None:
    start(here, archive)
    with pytest.raises(BenchmarkError, match="with other settings"):
        start(here, archive, **other)


def test_what_cannot_work_is_said_before_anything_is_begun(here: job.Job, systemd: Systemd, archive: Path) -> None:
    def refuse() -> None:
        raise BenchmarkError("nothing verified is served")

    with pytest.raises(BenchmarkError, match="nothing verified"):
        here.start(PARAMS, SERVED, lambda: archive, refuse)
    assert (systemd.started, here.folder.exists()) == ([], False)


@pytest.mark.parametrize(
    ("state", "log", "words"),
    [
        (_transient.State("failed", "timeout", "15"), "", "it took longer than benchmark_timeout"),
        (_transient.State("failed", "exit-code", "1"), "Traceback\nMemoryError\n", "left no result: MemoryError"),
        (_transient.State("inactive", "success", "0"), "", "somebody ended it, or the host restarted"),
    ],
)
def test_a_benchmark_that_left_nothing_says_why(
    here: job.Job, systemd: Systemd, archive: Path, state: _transient.State, log: str, words: str
) -> None:
    start(here, archive)
    systemd.now = state
    here.file("log").write_text(log)
    found = here.collect()
    assert found["failed"]
    assert words in found["msg"]


def test_each_run_has_prompts_of_its_own() -> None:
    seeds = {job.wanted_of(PARAMS, moment).seed for moment in ("2026-11-23T04:16:00Z", "2026-11-23T04:17:00Z")}
    assert len(seeds) == 2


def test_the_versions_are_read_from_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.11/site-packages/guidellm-0.8.1.dist-info").mkdir(parents=True)
    (tmp_path / "fingerprint.json").write_text(json.dumps({"distributions": [{"name": "vllm", "version": "0.32.0"}]}))
    assert job._tool_version(Tool("guidellm", f"{tmp_path}/bin/python")) == "0.8.1"
    assert job._tool_version(Tool("vllm", f"{tmp_path}/bin/vllm")) == "?"
    assert job._engine_version(str(tmp_path), "vllm") == "0.32.0"
    assert job._engine_version("/nowhere", "vllm") == "?"


def test_the_earlier_record_is_of_the_same_generator_and_host_and_passed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    wanted, other = ({"generator": {"name": name, "version": "1"}, "shapes": {}} for name in ("guidellm", "vllm"))
    first = record(began_at="2026-11-23T04:00:00Z", data=wanted)
    store.write(first)
    mine = record(began_at="2026-11-23T04:01:00Z", data=wanted)
    store.write(mine)
    store.write(record(began_at="2026-11-23T04:02:00Z", data=wanted, host={**HOST, "class": "another"}))
    store.write(record(began_at="2026-11-23T04:03:00Z", data=wanted, verdict="failed", reasons=["1 of 4 failed"]))
    store.write(record(began_at="2026-11-23T04:04:00Z", data=other))
    found = job._earlier(store, [], "tiny-a", HOST["class"], "guidellm")
    assert [one["id"] for one in found] == [mine["id"], first["id"]]
    later = record(began_at="2026-11-23T04:05:00Z", data={**wanted, "shapes": {}}, host={**HOST, "name": "b70-02"})
    others = [essence(later), essence({**later, "id": "9", "host": {**HOST, "class": "another"}})]
    found = job._earlier(store, others, "tiny-a", HOST["class"], "guidellm")
    assert found == [essence(later), essence(mine), essence(first)]
    assert job._earlier(store, [], "tiny-b", HOST["class"], "guidellm") == []


def test_what_figures_would_be_compared_with_is_said_without_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_class, "look", lambda: HOST)
    whole = {**data(), "generator": {"name": "guidellm", "version": "1"}}
    params = {**PARAMS, "state": "foreseen", "profile": "tiny-a", "records_dir": str(tmp_path)}
    params["shapes"] = [{"name": "short-128", "prompt_tokens": 119, "output_tokens": 128, "rounds": 1}]
    for check_mode in (True, False):
        found = service.answer(params, check_mode=check_mode)
        assert (found["comparable"], found["changed"]) == (False, False)
        assert "no good record of tiny-a" in found["summary"][0]
    Store(tmp_path).write(mine := record(data=whole))
    found = service.answer(params, check_mode=True)
    assert found["comparable"]
    assert found["summary"][0] == f"short-128 c1 frontdoor cold: 71.9101 in {mine['id']} of b70-01"
    assert not service.answer({**params, "profile": "tiny-b"}, check_mode=True)["comparable"]
    later = {**whole, "shapes": {"2k-128": {**whole["shapes"]["short-128"], "prompt_tokens": 2048}}}
    Store(tmp_path).write(record(data=later, began_at="2026-12-23T04:16:00Z"))
    assert service.answer(params, check_mode=True) == found


@pytest.mark.parametrize(
    ("admitted", "lines"), [(1, ["c1"]), (2, ["c1"]), (4, ["c1", "c4"]), (3, ["c1"]), (None, ["c1", "c4"])]
)
def test_only_what_the_profile_admits_is_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admitted: int | None, lines: list[str]
) -> None:
    """Without a profile on the host, as in check mode before its files are written, whatever is recorded."""
    monkeypatch.setattr(host_class, "look", lambda: HOST)
    Store(tmp_path).write(record(data={**data(), "generator": {"name": "guidellm", "version": "1"}}))
    params = {**PARAMS, "state": "foreseen", "profile": "tiny-a", "records_dir": str(tmp_path)}
    params |= {"config_dir": str(tmp_path), "targets": ["frontdoor"]}
    params["shapes"] = [{"name": "short-128", "prompt_tokens": 119, "output_tokens": 128, "rounds": 1}]
    if admitted is not None:
        frontdoor = {"max_active_generations": admitted, "queue_timeout_s": 0}
        place = Path(str(layout_of(params).profile_json("tiny-a")))
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"name": "tiny-a", "engine": {}, "frontdoor": frontdoor}))
    found = service.answer(params, check_mode=False)
    assert [line.split()[1] for line in found["summary"]] == lines


def test_a_benchmark_that_breaks_off_leaves_its_reason(
    here: job.Job, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start(here, archive, records_dir=str(tmp_path / "records"))
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self, told: None)

    def refuse(*_given: Any) -> None:
        raise BenchmarkError("nothing verified is served")

    monkeypatch.setattr(bench, "run", refuse)
    job.main(str(here.folder))
    assert here.collect() == {"failed": True, "msg": "nothing verified is served"}


def test_a_unit_that_is_told_to_end_leaves_that_to_systemd(
    here: job.Job, systemd: Systemd, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(here, archive)
    heeding: list[Any] = []
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self, told: heeding.append(told))

    def told(_wanted: Any, fx: bench.Effects) -> None:
        fx.heed()
        heeding[0]()
        # Each time: the canary takes the first for its own end.
        for _time in range(2):
            with pytest.raises(ToldToEndFault):
                fx.heed()
        fx.heed()

    monkeypatch.setattr(bench, "run", told)
    job.main(str(here.folder))
    systemd.now = _transient.State("failed", "timeout", "0")
    assert "it took longer than benchmark_timeout" in here.collect()["msg"]


def moved(found: FakeHost, engine: Mapping[str, Any]) -> str:
    return job._moved(found.effects(), LAYOUT, engine)


def test_the_same_profile_of_another_engine_process_is_another_thing() -> None:
    found = host("ab", load_s=1.0)
    served = [job.served_of(api.info(found.effects(), LAYOUT))]
    for profile in "aba":
        switch(found, profile)
        served.append(job.served_of(api.info(found.effects(), LAYOUT)))
    assert served[0] == (None, None, None)
    assert served[1][:2] == served[3][:2]
    assert served[1] != served[3]


def test_a_closed_frontdoor_is_noticed_while_the_engine_goes_on() -> None:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    engine = api.info(found.effects(), LAYOUT)["engine"]
    assert moved(found, engine) == ""
    api.isolate(found.effects(), LAYOUT, "me", "it lies")  # the engine goes on
    assert moved(found, engine).startswith("slot main is closed: this host is in quarantine")


def test_another_engine_process_is_noticed() -> None:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    engine = api.info(found.effects(), LAYOUT)["engine"]
    switch(found, "b")
    assert moved(found, engine) == "the engine process that was measured is gone"


def test_the_program_that_draws_needs_nothing_of_the_collection() -> None:
    loader: Any = draw.__loader__
    assert "ansible_collections" not in loader.get_source(draw.__name__)
