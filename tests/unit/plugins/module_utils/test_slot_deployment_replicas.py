# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a profile with several engines on a host, as they come, wait, shrink and go."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.files import HostFiles
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.rendering import in_place, parse_rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import EXCLUSIVE
from ansible_collections.arcpro.b70.plugins.module_utils._slot_paths import RenderedFile, SlotPaths, written_profiles
from ansible_collections.arcpro.b70.plugins.plugin_utils._render import rendering
from unit.plugins.module_utils.test_slot_deployment import Systemd, converge
from unit.plugins.plugin_utils._render.test_rendering import SETTINGS
from unit.plugins.plugin_utils._render.test_replicas import profile


@pytest.fixture
def systemd(place: SlotPaths) -> Systemd:
    made = Systemd()
    made.active[place.controller.name] = "active"
    return made


@pytest.fixture
def place(tmp_path: Path) -> SlotPaths:
    names = ("etc", "units", "run", "state", "lib/b70slot", "bin/b70ctl")
    found = SlotPaths("main", *(tmp_path / name for name in names))
    for path in (found.profiles_dir, found.unit_dir, found.pending("a").parent, tmp_path / "tmpfiles.d"):
        path.mkdir(parents=True)
    return found


def wanted(place: SlotPaths, cards: int | None = None, **replicas: int) -> list[RenderedFile]:
    """What the role renders of profiles with so many engines, on a host with so many cards."""
    profiles = {name: {**profile(replicas=count), "name": name} for name, count in replicas.items()}
    where = {"config_dir": place.config_dir, "unit_dir": place.unit_dir, "run_dir": place.run_dir}
    tmpfiles, stacks = (place.unit_dir.parent / name for name in ("tmpfiles.d", "stacks"))
    settings = {
        **SETTINGS,
        "cards": cards,
        "stacks_dir": str(stacks),
        **{key: str(path) for key, path in where.items()},
        "tmpfiles_dir": str(tmpfiles),
    }
    files = rendering.render_slot(profiles, {**settings, "state_dir": str(place.state_dir), "legacy_units": []})
    for name in {name for item in files for name in re.findall(rf"^ExecStart=({stacks}\S+)", item["content"], re.M)}:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return [
        RenderedFile(Path(item["path"]), item["content"], item["mode"])
        for item in files
        if "/opt/b70" not in item["path"]
    ]


def units(place: SlotPaths) -> list[str]:
    return sorted(path.name for path in place.unit_dir.glob("b70-slot-*.service"))


def named(name: str, *numbers: int) -> list[str]:
    return [f"b70-slot-main-{name}@{number}.service" for number in numbers]


def conflicts(place: SlotPaths, unit: str) -> list[str]:
    path = place.drop_in(place.unit_dir / unit)
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition("=")[2] for line in lines if line.startswith("Conflicts=")]


def test_replicas_run_beside_each_other_and_beside_nothing_else(place, systemd):
    converge(place, systemd, wanted(place, a=1, b=3, c=2))
    every = units(place)
    assert every == ["b70-slot-main-a.service", *named("b", 0, 1, 2), *named("c", 0, 1)]
    apart = {frozenset((unit, other)) for unit in every for other in conflicts(place, unit)}
    for unit in every:
        for other in every:
            together = unit == other or ("@" in unit and unit.partition("@")[0] == other.partition("@")[0])
            assert (frozenset((unit, other)) in apart) is not together, (unit, other)
    assert written_profiles(place) == {"a", "b", "c"}
    assert not converge(place, systemd, wanted(place, a=1, b=3, c=2)).changed


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1), (1, 3)])
def test_another_number_replaces_what_is_not_in_use(place, systemd, before, after):
    converge(place, systemd, wanted(place, a=before))
    converge(place, systemd, wanted(place, a=after))
    fresh = units(place)
    assert fresh == (named("a", *range(after)) if after > 1 else ["b70-slot-main-a.service"])
    environments = {path.stem for path in place.profiles_dir.glob("*.env")}
    assert environments == ({f"a@{number}" for number in range(after)} if after > 1 else {"a"})
    folders = {path.name.removesuffix(".d") for path in place.unit_dir.glob("*.service.d")}
    assert folders <= set(fresh)
    assert not converge(place, systemd, wanted(place, a=after)).changed


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1), (1, 3)])
def test_another_number_waits_while_the_profile_is_in_use(place, systemd, before, after):
    converge(place, systemd, wanted(place, a=before))
    old = in_place(HostFiles(), place.layout, "a")
    systemd.active[units(place)[-1]] = "active"  # one of them is enough
    plan = converge(place, systemd, wanted(place, a=after))
    assert [held.name for held in plan.held] == ["a"]
    assert in_place(HostFiles(), place.layout, "a") == old, "what runs stays as it is"
    path = place.pending("a")
    waits = parse_rendering(path.read_text(), str(path))
    assert len(waits.engines) == after
    assert len(json.loads(waits.profile)["engine"].get("replicas", [None])) == after
    # A switch finds the units that it will start, each exclusive with those that are no replicas of the same.
    new = named("a", *range(after)) if after > 1 else ["b70-slot-main-a.service"]
    assert set(new) <= set(units(place))
    if 1 in (before, after):
        single = "b70-slot-main-a.service"
        assert conflicts(place, single) or all(conflicts(place, unit) == [single] for unit in named("a", 0))
    assert not converge(place, systemd, wanted(place, a=after)).changed


def test_a_profile_that_leaves_the_catalogue_takes_all_its_files_along(place, systemd):
    converge(place, systemd, wanted(place, a=1, b=3))
    converge(place, systemd, wanted(place, a=1))
    assert units(place) == ["b70-slot-main-a.service"]
    left = [path.name for folder in (place.profiles_dir, place.unit_dir) for path in folder.rglob("*")]
    assert [name for name in left if "main-b" in name or "@" in name or name == "b.json"] == []


def test_one_that_runs_keeps_all_its_files(place, systemd):
    converge(place, systemd, wanted(place, a=1, b=3))
    systemd.active[named("b", 1)[0]] = "active"
    before = in_place(HostFiles(), place.layout, "b")
    plan = converge(place, systemd, wanted(place, a=1))
    assert plan.kept == ["b"]
    assert in_place(HostFiles(), place.layout, "b") == before
    assert all(conflicts(place, unit) == ["b70-slot-main-a.service"] for unit in named("b", 0, 1, 2))
    assert (place.unit_dir / f"{named('b', 0)[0]}.d" / EXCLUSIVE).exists()


def sided(*names: str) -> list[str]:
    return sorted(f"b70-slot-main-{name}{side}.service" for name in names for side in ("", "@beside"))


def test_only_a_first_and_a_second_side_run_beside_each_other(place, systemd):
    converge(place, systemd, wanted(place, cards=2, a=1, b=1, c=2))
    every = units(place)
    assert every == sorted([*sided("a", "b"), *named("c", 0, 1)])
    apart = {frozenset((unit, other)) for unit in every for other in conflicts(place, unit)}
    for one in sided("a", "b"):
        for other in every:
            together = one == other or (other in sided("a", "b") and ("@" in one) != ("@" in other))
            assert (frozenset((one, other)) in apart) is not together, (one, other)
    assert written_profiles(place) == {"a", "b", "c"}
    assert not converge(place, systemd, wanted(place, cards=2, a=1, b=1, c=2)).changed


def test_a_second_side_goes_with_its_cards_and_with_its_profile(place, systemd):
    converge(place, systemd, wanted(place, cards=2, a=1, b=1))
    converge(place, systemd, wanted(place, cards=1, a=1))
    assert units(place) == ["b70-slot-main-a.service"]
    left = [path.name for folder in (place.profiles_dir, place.unit_dir) for path in folder.rglob("*")]
    assert [name for name in left if "@" in name or "main-b" in name] == []


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_second_side_waits_while_the_profile_is_in_use(place, systemd, before, after):
    converge(place, systemd, wanted(place, cards=before, a=1, b=1))
    old = in_place(HostFiles(), place.layout, "a")
    systemd.active["b70-slot-main-a.service"] = "active"
    plan = converge(place, systemd, wanted(place, cards=after, a=1, b=1))
    assert [held.name for held in plan.held] == ["a"]
    assert in_place(HostFiles(), place.layout, "a") == old
    assert len(parse_rendering(place.pending("a").read_text(), "a").engines) == after
    # Until it is in place, nothing runs beside it.
    assert "b70-slot-main-a.service" in [
        *conflicts(place, "b70-slot-main-b@beside.service"),
        *conflicts(place, "b70-slot-main-b.service"),
    ]
    assert not converge(place, systemd, wanted(place, cards=after, a=1, b=1)).changed
