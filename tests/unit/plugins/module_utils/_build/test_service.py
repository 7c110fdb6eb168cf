# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finished wheels, what a build is given, and what building here would take."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build import memory, room, service, source
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Recipe
from unit.plugins.module_utils._work.units import Systemd, program

Make = Callable[..., Recipe]


@pytest.fixture
def place(tmp_path: Path) -> service.BuildPaths:
    return service.BuildPaths(tmp_path / "work", tmp_path / "wheels", tmp_path / "ccache", "/uv", "root", "root")


def made(recipe: Recipe, place: service.BuildPaths) -> Path:
    out = place.work(recipe).out
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / "kernels-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernels.py", "x = 1\n")
    return wheel


def kept(recipe: Recipe, place: service.BuildPaths) -> Path:
    return Path(service.keep(recipe, place, [made(recipe, place)])["path"])


@pytest.fixture
def build(
    recipe: Make, place: service.BuildPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., service.SourceBuild]:
    """A build whose checkout costs nothing, and which is begun anew with a token of its own."""

    def prepare(_recipe: Recipe, tree: Path, *_given: Any) -> bool:
        tree.mkdir(parents=True, exist_ok=True)
        return True

    monkeypatch.setattr(source, "prepare", prepare)
    monkeypatch.setattr(service.SourceBuild, "systemd", Systemd())

    def begun(token: str) -> service.SourceBuild:
        params = {"token": token, "step": "look", "source_timeout": 1, "build_timeout": 60, "mirrors": {}}
        job = service.SourceBuild(params, recipe(peak_gib=0.01, job_gib=0.01, disk_gib=0.01), place)
        job.start(program(tmp_path))
        return job

    return begun


def test_a_build_leaves_its_wheel_to_every_play(build: Callable[..., service.SourceBuild]) -> None:
    job = build("1")
    assert job.answer(check_mode=False)["resumed"] is False
    made(job.recipe, job.place)
    job.systemd.end()  # type: ignore[attr-defined]
    assert (job.answer(check_mode=True)["state"], job.answer(check_mode=False)["state"]) == ("absent", "built")
    assert job.answer(check_mode=True)["wheel"]["commit"] == job.recipe.commit
    Path(job.answer(check_mode=True)["wheel"]["path"]).unlink()
    assert build("2").answer(check_mode=False)["state"] == "running"


def test_a_build_that_made_no_whole_wheel_says_why_and_is_begun_again(
    build: Callable[..., service.SourceBuild],
) -> None:
    job = build("1")
    job.place.log(job.recipe).write_text("ninja: build stopped\n")
    job.systemd.end("signal")  # type: ignore[attr-defined]
    found = job.answer(check_mode=False)
    assert (found["state"], found["log_tail"]) == ("failed", ["ninja: build stopped"])
    assert "the build of vllm-xpu-kernels failed (signal, exit status 0)" in found["message"]
    made(build("2").recipe, job.place).write_bytes(b"no wheel")
    job.systemd.end()  # type: ignore[attr-defined]
    assert "is damaged" in job.answer(check_mode=False)["message"]
    assert build("3").answer(check_mode=False)["state"] == "running"


def test_a_finished_wheel_is_known_by_its_record(recipe: Make, place: service.BuildPaths) -> None:
    wheel = kept(recipe(), place)
    found = service.finished(recipe(), place)
    assert found is not None
    assert (found["path"], found["commit"]) == (str(wheel), recipe().commit)
    assert service.damage(recipe(), place) == ""
    assert service.finished(recipe(script="other.py"), place) is None


def test_a_damaged_wheel_is_named_and_not_taken(recipe: Make, place: service.BuildPaths) -> None:
    wheel = kept(recipe(), place)
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    assert service.finished(recipe(), place) is None
    assert f"{wheel} has sha256" in service.damage(recipe(), place)
    wheel.unlink()
    assert "No such file" in service.damage(recipe(), place)


def test_the_programs_of_the_stack_come_before_those_of_the_compiler(
    recipe: Make, place: service.BuildPaths, tmp_path: Path
) -> None:
    file = tmp_path / "oneapi.env"
    file.write_text('PATH="/opt/intel/bin:/usr/bin"\nCMPLR_ROOT="/opt/intel"\n')
    variables = service._variables(service.BuildPaths(**{**vars(place), "environment_file": str(file)}))
    wanted = recipe(environment=(("CMPLR_ROOT", "/mine"),))
    task = service.task(wanted, place, memory.Budget(3, swapping=True, adding=True), variables, 60)
    path = task.environment["PATH"].split(":")
    assert path[:2] == ["/opt/b70/stacks/lab/venv/bin", "/opt/intel/bin"]
    assert len(path) == len(set(path))
    assert (task.environment["CMPLR_ROOT"], task.environment["MAX_JOBS"]) == ("/mine", "3")


def test_the_build_can_write_only_where_it_works_and_has_no_network(recipe: Make, place: service.BuildPaths) -> None:
    task = service.task(recipe(), place, memory.Budget(4, swapping=False), {}, 60)
    argv = task.run_argv()
    assert argv[0] == "systemd-run"
    assert argv[argv.index("--") + 1] == "/uv"
    writable = f"{place.tree(recipe())} {place.work(recipe()).out} {place.ccache_dir}"
    for expected in (
        "ProtectSystem=strict", f"ReadWritePaths={writable}", "PrivateNetwork=yes", "User=root", "Group=root",
        "RuntimeMaxSec=60", "OOMScoreAdjust=800", f"StandardOutput=append:{place.log(recipe())}",
    ):  # fmt: skip
        assert f"--property={expected}" in argv
    assert not [word for word in argv if "b70-build-swap" in word]
    assert task.environment["MAX_JOBS"] == "4"


def test_a_build_with_swap_runs_as_long_as_its_swap_is_there(recipe: Make, place: service.BuildPaths) -> None:
    argv = service.task(recipe(), place, memory.Budget(4, swapping=True, adding=True), {}, 60).run_argv()
    assert {"--property=Requires=b70-build-swap.service", "--property=After=b70-build-swap.service"} < set(argv)


def test_a_missing_compiler_environment_says_who_makes_it(place: service.BuildPaths) -> None:
    with pytest.raises(BuildError, match=r"run the role arcpro\.b70\.oneapi first"):
        service._variables(service.BuildPaths(**{**vars(place), "environment_file": "/nowhere/oneapi.env"}))


def test_what_cannot_be_built_here_is_a_problem_and_not_a_failure(recipe: Make, place: service.BuildPaths) -> None:
    assert service.estimate(recipe(peak_gib=0.01, job_gib=0.01, disk_gib=0.01), place)["problems"] == []
    (problem,) = service.estimate(recipe(peak_gib=100000.0), place)["problems"]
    assert "one compiler process needs 100000 GiB" in problem


def test_swap_that_can_be_made_is_looked_for_beforehand(tmp_path: Path) -> None:
    assert room.addable_gib("", 0, 0) == (0.0, "")
    size, why_not = room.addable_gib(str(tmp_path / "a/b/swap"), 10**7, 0)
    assert size == 0.0
    assert "GiB free" in why_not or "cannot hold a swap file" in why_not or "in memory itself" in why_not
