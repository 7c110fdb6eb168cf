# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark that is left to systemd: what it is given, what is foreseen, and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import bench, draw, job
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.bench import BenchmarkError
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import essence
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import host_class
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import job as jobs
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import ToldToEndFault, layout_of
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError
from unit.plugins.module_utils._evidence.records import HOST, record
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost
from unit.plugins.module_utils._work.units import Systemd, program

from .benchmarks import data

PARAMS = {
    **{name: spec.get("default") for name, spec in ARGUMENTS.items()},
    "shapes": ["short-128"],
    "tools_python": "/opt/b70/evidence/bin/python",
    "host_name": "b70-01",
    "api_key": "hidden",
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    found = host("ab", load_s=1.0)
    switch(found, "a")
    monkeypatch.setattr(jobs, "host_effects", lambda clock: found.effects())
    monkeypatch.setattr(job, "host_effects", lambda clock: found.effects())
    return found


@pytest.fixture
def systemd(served: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(job.BenchmarkJob, "systemd", found)
    return found


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {**PARAMS, "state_dir": str(tmp_path / "state"), "records_dir": str(tmp_path / "records")}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return program(tmp_path)


def test_a_benchmark_is_given_all_but_the_key(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    one = job.BenchmarkJob(params)
    found = one.start(archive)
    (task,) = systemd.started
    assert (task.unit, task.limit_s, found.given["profile"]) == ("b70-benchmark-main.service", 43200, "a")
    holding = [file for file in one.folder.path.rglob("*") if file.is_file() and b"hidden" in file.read_bytes()]
    assert [(file.name, file.stat().st_mode & 0o777) for file in holding] == [("secret", 0o600)]
    assert "hidden" not in " ".join(task.run_argv())


@pytest.mark.parametrize("kind", ["promotion", "soak", "context-search"])
def test_no_benchmark_beside_other_recorded_work(
    systemd: Systemd, params: dict[str, Any], archive: Path, kind: str
) -> None:
    systemd.running = {f"b70-{kind}-main.service"}
    with pytest.raises(WorkError, match=rf"end it with `systemctl stop b70-{kind}-main\.service`"):
        job.BenchmarkJob(params).start(archive)


@pytest.mark.parametrize("other", [{"frontdoor_url": "http://[::1]:8000"}, {"timeout": 60}, {"streams": [1]}])
def test_what_would_measure_otherwise_is_another_benchmark(
    systemd: Systemd, params: dict[str, Any], archive: Path, other: dict[str, Any]
) -> None:
    job.BenchmarkJob(params).start(archive)
    with pytest.raises(WorkError, match=f"another benchmark is under way, with {next(iter(other))}"):
        job.BenchmarkJob({**params, **other}).start(archive)


def test_the_result_of_what_was_served_before_is_not_told(
    systemd: Systemd, params: dict[str, Any], archive: Path, served: FakeHost
) -> None:
    job.BenchmarkJob(params).start(archive)
    job.BenchmarkJob(params).folder.save_seen({"now": "", "ended": {}, "found": {"record": {"id": "r"}}})
    systemd.end()
    assert job.BenchmarkJob(params).start(archive).result["record"] == {"id": "r"}
    for profile in "ba":
        switch(served, profile)
    assert job.BenchmarkJob(params).start(archive).state == "running"


def test_what_cannot_work_is_said_before_anything_is_begun(
    systemd: Systemd, params: dict[str, Any], archive: Path, served: FakeHost
) -> None:
    with pytest.raises(WorkError, match="a is served in slot main by now, and not b"):
        job.BenchmarkJob({**params, "profile": "b"}).start(archive)
    assert systemd.started == []
    assert job.BenchmarkJob(params).answer(check_mode=True)["foreseen"][0].startswith("would measure a: short-128 with")


def test_check_mode_tells_no_result_that_a_play_has(systemd: Systemd, params: dict[str, Any], archive: Path) -> None:
    one = job.BenchmarkJob({**params, "token": "first"})
    one.start(archive)
    one.folder.save_seen({"now": "", "ended": {}, "found": {"record": {"id": "r"}, "verdict": "passed"}})
    systemd.end()
    one.acknowledge()
    found = job.BenchmarkJob(params).answer(check_mode=True)
    assert (found["state"], found["record"], found["verdict"], found["line"]) == (
        *("none", None, None),
        "no benchmark is under way",
    )
    assert found["foreseen"][0].startswith("would measure a: short-128 with")


def test_check_mode_tells_no_result_that_a_run_would_not_join(
    systemd: Systemd, params: dict[str, Any], archive: Path
) -> None:
    one = job.BenchmarkJob({**params, "token": "first"})
    one.start(archive)
    one.folder.save_seen({"now": "", "ended": {}, "found": {"failed": True, "msg": "no"}})
    systemd.end()
    one.look()
    found = job.BenchmarkJob({**params, "token": "second"}).answer(check_mode=True)
    assert found["state"] == "none"
    assert found["foreseen"][0].startswith("would measure a: short-128 with")


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


def test_the_baseline_is_of_the_same_profile_generator_and_class() -> None:
    chosen = [
        essence(record(data={**data(), "generator": {"name": generator, "version": "1"}}, **given))
        for generator, given in (
            ("vllm", {}),
            ("guidellm", {"host": {**HOST, "class": "another"}}),
            ("guidellm", {"profile": "tiny-b"}),
            ("guidellm", {"host": {**HOST, "name": "b70-02"}}),
        )
    ]
    assert job._baseline(chosen, "tiny-a", HOST["class"], "guidellm") == chosen[3]
    assert job._baseline(chosen[:3], "tiny-a", HOST["class"], "guidellm") is None


SHORT = [{"name": "short-128", "prompt_tokens": 119, "output_tokens": 128, "rounds": 1}]


def test_what_figures_would_be_compared_with_is_said_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_class, "look", lambda: HOST)
    mine = essence(record(data={**data(), "generator": {"name": "guidellm", "version": "1"}}))
    params = {**PARAMS, "state": "foreseen", "profile": "tiny-a", "shapes": SHORT}
    for check_mode in (True, False):
        found = job.BenchmarkJob(params).answer(check_mode=check_mode)
        assert (found["comparable"], found["changed"]) == (False, False)
        assert "benchmark_baselines names no record of tiny-a" in found["summary"][0]
    params["baselines"] = [mine]
    found = job.BenchmarkJob(params).answer(check_mode=True)
    assert found["comparable"]
    assert found["summary"][0] == f"short-128 c1 frontdoor cold: 71.9101 in {mine['id']} of b70-01"
    assert not job.BenchmarkJob({**params, "profile": "tiny-b"}).answer(check_mode=True)["comparable"]


@pytest.mark.parametrize(("admitted", "missing"), [(1, []), (2, ["c2"]), (4, ["c2"]), (3, ["c2", "c3"]), (None, [])])
def test_what_the_profile_admits_and_the_baseline_lacks_is_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admitted: int | None, missing: list[str]
) -> None:
    """Without a profile on the host, as in check mode before its files are written, what the baseline has."""
    monkeypatch.setattr(host_class, "look", lambda: HOST)
    mine = essence(record(data={**data(), "generator": {"name": "guidellm", "version": "1"}}))
    params = {**PARAMS, "state": "foreseen", "profile": "tiny-a", "shapes": SHORT, "baselines": [mine]}
    params |= {"config_dir": str(tmp_path), "targets": ["frontdoor"]}
    if admitted is not None:
        frontdoor = {"max_active_generations": admitted, "queue_timeout_s": 0}
        place = Path(str(layout_of(params).profile_json("tiny-a")))
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"name": "tiny-a", "engine": {}, "frontdoor": frontdoor}))
    found = job.BenchmarkJob(params).answer(check_mode=False)
    names = ", ".join(f"short-128 {count} frontdoor cold" for count in missing)
    assert (found["comparable"], names in found["summary"][0]) == (not missing, True)


def unit(params: dict[str, Any], systemd: Systemd, how: str = "success") -> dict[str, Any]:
    """What the module says when the unit has run and ended."""
    job.main(str(job.BenchmarkJob(params).folder.path))
    systemd.end(how)
    return job.BenchmarkJob({**params, "step": "look"}).answer(check_mode=False)


def test_a_benchmark_that_breaks_off_leaves_its_reason(
    systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.BenchmarkJob(params).start(archive)
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self, told: None)

    def refuse(_wanted: Any, fx: bench.BenchmarkEffects) -> None:
        fx.say("canary before the benchmark")
        raise BenchmarkError("nothing verified is served")

    monkeypatch.setattr(bench, "run", refuse)
    found = unit(params, systemd)
    assert (found["failed"], found["msg"]) == (True, "nothing verified is served")
    assert Path(found["progress"]).read_text() == "canary before the benchmark\n"


def test_a_unit_that_is_told_to_end_leaves_that_to_systemd(
    systemd: Systemd, params: dict[str, Any], archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.BenchmarkJob(params).start(archive)
    heeding: list[Any] = []
    monkeypatch.setattr(SystemClock, "heed_signals", lambda self, told: heeding.append(told))

    def told(_wanted: Any, fx: bench.BenchmarkEffects) -> None:
        fx.heed()
        heeding[0]()
        # Each time: the canary takes the first for its own end.
        for _time in range(2):
            with pytest.raises(ToldToEndFault):
                fx.heed()
        fx.heed()

    monkeypatch.setattr(bench, "run", told)
    assert "broke off: it took longer than its limit" in unit(params, systemd, "timeout")["msg"]


def moved(found: FakeHost, engine: Mapping[str, Any]) -> str:
    return job._moved(found.effects(), LAYOUT, engine)


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
