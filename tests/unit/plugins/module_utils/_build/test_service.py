# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finished wheels, what a build is given, and what building here would take."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build import memory, room, service
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Recipe

Make = Callable[..., Recipe]


@pytest.fixture
def place(tmp_path: Path) -> service.Place:
    return service.Place(tmp_path / "work", tmp_path / "wheels", tmp_path / "ccache", "/uv", "root", "root")


def kept(recipe: Recipe, place: service.Place) -> Path:
    out = place.out(recipe)
    out.mkdir(parents=True)
    wheel = out / "kernels-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernels.py", "x = 1\n")
    return Path(service.keep(recipe, place, [wheel])["path"])


def test_a_finished_wheel_is_known_by_its_record(recipe: Make, place: service.Place) -> None:
    wheel = kept(recipe(), place)
    found = service.finished(recipe(), place)
    assert found is not None
    assert (found["path"], found["commit"]) == (str(wheel), recipe().commit)
    assert service.damage(recipe(), place) == ""
    assert service.finished(recipe(script="other.py"), place) is None


def test_a_damaged_wheel_is_named_and_not_taken(recipe: Make, place: service.Place) -> None:
    wheel = kept(recipe(), place)
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    assert service.finished(recipe(), place) is None
    assert f"{wheel} has sha256" in service.damage(recipe(), place)
    wheel.unlink()
    assert "No such file" in service.damage(recipe(), place)


def test_the_programs_of_the_stack_come_before_those_of_the_compiler(
    recipe: Make, place: service.Place, tmp_path: Path
) -> None:
    file = tmp_path / "oneapi.env"
    file.write_text('PATH="/opt/intel/bin:/usr/bin"\nCMPLR_ROOT="/opt/intel"\n')
    variables = service._variables(service.Place(**{**vars(place), "environment_file": str(file)}))
    wanted = recipe(environment=(("CMPLR_ROOT", "/mine"),))
    task = service.task(wanted, place, memory.Budget(3, swapping=True, adding=True), variables, 60)
    path = task.environment["PATH"].split(":")
    assert path[:2] == ["/opt/b70/stacks/lab/venv/bin", "/opt/intel/bin"]
    assert len(path) == len(set(path))
    assert (task.environment["CMPLR_ROOT"], task.environment["MAX_JOBS"]) == ("/mine", "3")


def test_the_build_can_write_only_where_it_works_and_has_no_network(recipe: Make, place: service.Place) -> None:
    task = service.task(recipe(), place, memory.Budget(4, swapping=False), {}, 60)
    argv = task.run_argv()
    assert argv[0] == "systemd-run"
    assert argv[argv.index("--") + 1] == "/uv"
    writable = f"{place.tree(recipe())} {place.out(recipe())} {place.ccache_dir}"
    for expected in (
        "ProtectSystem=strict", f"ReadWritePaths={writable}", "PrivateNetwork=yes", "User=root", "Group=root",
        "RuntimeMaxSec=60", "OOMScoreAdjust=800", f"StandardOutput=append:{place.log(recipe())}",
    ):  # fmt: skip
        assert f"--property={expected}" in argv
    assert not [word for word in argv if "b70-build-swap" in word]
    assert task.environment["MAX_JOBS"] == "4"


def test_a_build_with_swap_runs_as_long_as_its_swap_is_there(recipe: Make, place: service.Place) -> None:
    argv = service.task(recipe(), place, memory.Budget(4, swapping=True, adding=True), {}, 60).run_argv()
    assert {"--property=Requires=b70-build-swap.service", "--property=After=b70-build-swap.service"} < set(argv)


def test_a_missing_compiler_environment_says_who_makes_it(place: service.Place) -> None:
    with pytest.raises(BuildError, match=r"run the role arcpro\.b70\.oneapi first"):
        service._variables(service.Place(**{**vars(place), "environment_file": "/nowhere/oneapi.env"}))


def test_what_cannot_be_built_here_is_a_problem_and_not_a_failure(recipe: Make, place: service.Place) -> None:
    assert service.estimate(recipe(peak_gib=0.01, job_gib=0.01, disk_gib=0.01), place)["problems"] == []
    (problem,) = service.estimate(recipe(peak_gib=100000.0), place)["problems"]
    assert "one compiler process needs 100000 GiB" in problem


def test_swap_that_can_be_made_is_looked_for_beforehand(tmp_path: Path) -> None:
    assert room.addable_gib("", 0, 0) == (0.0, "")
    size, why_not = room.addable_gib(str(tmp_path / "a/b/swap"), 10**7, 0)
    assert size == 0.0
    assert "GiB free" in why_not or "cannot hold a swap file" in why_not or "in memory itself" in why_not
