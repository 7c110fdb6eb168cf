# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark that is left to systemd: begun once, joined or found by the next run, and kept until it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _transient
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import bench, draw, job
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.bench import BenchmarkError
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import ToldToEndFault
from unit.plugins.module_utils._evidence.records import HOST, record
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost

PARAMS = {
    **{name: spec.get("default") for name, spec in ARGUMENTS.items()},
    "shapes": ["short-128"],
    "tools_python": "/opt/b70/evidence/bin/python",
    "name": "b70-01",
    "api_key": "hidden",
}
SERVED = ("tiny-a", "sha256:0f3c")


class Systemd:
    """Knows one unit."""

    def __init__(self) -> None:
        self.now = _transient.State("inactive", "success", "0")
        self.started: list[_transient.Task] = []

    def state(self, unit: str) -> _transient.State:
        return self.now

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


@pytest.mark.parametrize("served", [("tiny-b", "sha256:0f3c"), ("tiny-a", "sha256:77"), (None, None)])
def test_the_result_of_what_was_served_before_is_not_found(
    here: job.Job, systemd: Systemd, archive: Path, served: tuple[str | None, str | None]
) -> None:
    start(here, archive)
    assert start(here, archive, served=served) == "joined"
    here.file("result.json").write_text("{}")
    systemd.now = _transient.State("inactive", "success", "0")
    assert start(here, archive, served=served) == "begun"


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


def test_progress_is_read_in_whole_lines(here: job.Job, archive: Path) -> None:
    start(here, archive)
    assert here.look(0) == {"running": True, "lines": [], "offset": 0}
    here.file("progress").write_bytes(b"canary before the benchmark\nshort-128 thr")
    seen = here.look(0)
    assert seen == {"running": True, "lines": ["canary before the benchmark"], "offset": 28}
    here.file("progress").write_bytes(b"canary before the benchmark\nshort-128 through\n")
    assert here.look(28)["lines"] == ["short-128 through"]


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
    wanted, other = ({"generator": {"name": name, "version": "1"}} for name in ("guidellm", "vllm"))
    store.write(record(began_at="2026-11-23T04:00:00Z", data=wanted))
    mine = record(began_at="2026-11-23T04:01:00Z", data=wanted)
    store.write(mine)
    store.write(record(began_at="2026-11-23T04:02:00Z", data=wanted, host={**HOST, "class": "another"}))
    store.write(record(began_at="2026-11-23T04:03:00Z", data=wanted, verdict="failed", reasons=["1 of 4 failed"]))
    store.write(record(began_at="2026-11-23T04:04:00Z", data=other))
    found = job._earlier(store, "tiny-a", HOST["class"], "guidellm")
    assert found is not None
    assert found["id"] == mine["id"]
    assert job._earlier(store, "tiny-b", HOST["class"], "guidellm") is None


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


def moved(found: FakeHost, engine: str) -> str:
    return job._moved(found.effects(), LAYOUT, engine)


def test_a_closed_frontdoor_is_noticed_while_the_engine_goes_on() -> None:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    engine = found.engine().invocation  # type: ignore[union-attr]
    assert moved(found, engine) == ""
    api.isolate(found.effects(), LAYOUT, "me", "it lies")  # the engine goes on
    assert moved(found, engine).startswith("slot main is closed: this host is in quarantine")


def test_another_engine_process_is_noticed() -> None:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    engine = found.engine().invocation  # type: ignore[union-attr]
    switch(found, "b")
    assert moved(found, engine) == "the engine process that was measured is gone"


def test_the_program_that_draws_needs_nothing_of_the_collection() -> None:
    loader: Any = draw.__loader__
    assert "ansible_collections" not in loader.get_source(draw.__name__)
