# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role leaves as it is: profiles in use, a slot that is at work, and what belongs to another slot; and what
keeps a slot's units exclusive."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _slot_deployment
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import encode
from ansible_collections.arcpro.b70.plugins.module_utils._slot_paths import RenderedFile, SlotFilesError, SlotPaths
from unit.plugins.module_utils.test_slot_deployment import UNIT, Systemd, converge, exclusive, files, in_use, slot_file


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def place(tmp_path: Path) -> SlotPaths:
    etc, units, run, state = (tmp_path / name for name in ("etc", "units", "run", "state"))
    found = SlotPaths("main", etc, units, run, state, tmp_path / "lib/b70slot", tmp_path / "bin/b70ctl")
    for path in (found.profiles_dir, found.unit_dir, found.pending("a").parent, found.command.parent):
        path.mkdir(parents=True)
    return found


def live(place: SlotPaths, name: str) -> list[str]:
    return [path.read_text() for path in place.texts_of(name)]


def waits(place: SlotPaths, name: str) -> list[str] | None:
    path = place.pending(name)
    if not path.exists():
        return None
    found = rendering.parse_rendering(path.read_text(), str(path))
    return [found.unit, found.env, found.profile]


def texts(wanted: list[RenderedFile]) -> list[str]:
    """Of one profile, as `SlotPaths.texts_of` orders them."""
    by_end = {item.path.suffix: item.content for item in wanted}
    return [by_end[end] for end in (".service", ".env", ".json")]


def verified(place: SlotPaths, name: str, *more: str) -> None:
    """The journal tells that the profile was verified last, and then these lines."""
    path = Path(place.layout.journal_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    end = encode("end", id="1", outcome="committed", profile=name, fingerprint="f", verified=True, at="then")
    path.write_text(encode("begin", id="1", to=name) + end + "".join(more))


@pytest.mark.parametrize("how", ["it is running", "it starts at boot", "it was verified last"])
def test_a_new_rendering_of_a_profile_in_use_waits(place, systemd, how):
    converge(place, systemd, files(place, "a", "b"))
    before = live(place, "b")
    if how == "it was verified last":
        verified(place, "b")
    else:
        in_use(how, place, systemd)
    wanted = [*files(place, "a", text="new"), *files(place, "b", text="new")]
    plan = converge(place, systemd, wanted)
    assert [held.name for held in plan.held] == ["b"]
    assert live(place, "a") == texts(files(place, "a", text="new"))
    assert (live(place, "b"), waits(place, "b")) == (before, texts(files(place, "b", text="new")))
    assert not plan.reload_needed
    shown = {entry["after_header"]: entry for entry in _slot_deployment.diff(plan)}
    entry = shown[f"{place.profiles_dir}/b.json, at the next switch"]
    assert (entry["before"], entry["after"]) == (before[2], texts(files(place, "b", text="new"))[2])
    again = converge(place, systemd, wanted)
    assert (again.changed, [held.name for held in again.held], _slot_deployment.diff(again)) == (False, ["b"], [])


def test_a_profile_that_failed_last_is_written(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    in_use("the slot's state names it", place, systemd)
    assert converge(place, systemd, files(place, "a", "b", text="new")).held == []


def test_a_rendering_that_is_in_place_waits_no_longer(place, systemd):
    converge(place, systemd, files(place, "a"))
    systemd.active[place.unit("a").name] = "active"
    converge(place, systemd, files(place, "a", text="new"))
    back = converge(place, systemd, files(place, "a"))
    assert (back.removals, waits(place, "a")) == ([place.pending("a")], None)
    told = _slot_deployment.planned_files(back, place)
    assert told == [{"path": str(place.pending("a")), "content": ""}]
    converge(place, systemd, files(place, "a", text="new"))
    systemd.active.clear()
    converge(place, systemd, files(place, "a", text="new"))
    assert (live(place, "a"), waits(place, "a")) == (texts(files(place, "a", text="new")), None)


def test_what_waits_of_a_profile_that_left_is_removed(place, systemd):
    converge(place, systemd, files(place, "a", "b"))
    systemd.active[place.unit("b").name] = "active"
    converge(place, systemd, files(place, "a", "b", text="new"))
    assert converge(place, systemd, files(place, "a", text="new")).kept == ["b"]
    assert waits(place, "b") is None


def test_a_unit_that_waits_is_validated(place, systemd):
    converge(place, systemd, files(place, "a"))
    systemd.active[place.unit("a").name] = "active"
    systemd.verify = (1, "", f"{place.unit('a').name}: Unit is broken")
    wanted = files(place, "a")[:2]
    with pytest.raises(SlotFilesError, match="Unit is broken"):
        converge(place, systemd, [*wanted, RenderedFile(place.unit("a"), f"{UNIT}Typ=x\n")])
    assert waits(place, "a") is None


def commit(place: SlotPaths, wanted: list[RenderedFile]) -> None:
    path = Path(place.layout.committed_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rendering.rendering_of("a", texts(wanted)).to_json())


def test_what_was_verified_last_comes_back_as_it_was_committed(place, systemd):
    converge(place, systemd, files(place, "a"))
    verified(place, "a")
    commit(place, files(place, "a"))
    place.unit("a").write_text("by hand")
    (place.profiles_dir / "a.env").unlink()
    plan = converge(place, systemd, files(place, "a", text="new"))
    assert live(place, "a") == texts(files(place, "a"))
    assert waits(place, "a") == texts(files(place, "a", text="new"))
    assert plan.reload_needed
    assert not converge(place, systemd, files(place, "a", text="new")).changed


def test_an_interrupted_switch_is_left_to_the_slot(place, systemd):
    converge(place, systemd, files(place, "a"))
    verified(place, "a", encode("begin", id="2", to="a"))
    commit(place, files(place, "a", text="old"))
    converge(place, systemd, files(place, "a", text="new"))
    assert live(place, "a") == texts(files(place, "a"))


def test_a_copy_that_the_journal_does_not_name_holds_nothing(place, systemd):
    converge(place, systemd, files(place, "a"))
    commit(place, files(place, "a"))
    converge(place, systemd, files(place, "a", text="new"))
    assert (live(place, "a"), waits(place, "a")) == (texts(files(place, "a", text="new")), None)


def test_a_profile_in_use_of_which_a_part_is_missing_is_written(place, systemd):
    converge(place, systemd, files(place, "a"))
    systemd.active[place.unit("a").name] = "active"
    (place.profiles_dir / "a.env").unlink()
    converge(place, systemd, files(place, "a", text="new"))
    assert live(place, "a") == texts(files(place, "a", text="new"))


def test_each_pair_of_units_is_named_on_one_side(place, systemd):
    # By the names of the units: ".service" comes after "-b.service".
    converge(place, systemd, [*files(place, "a", "a-b", "c"), slot_file(place, legacy_units=["minimax-vllm.service"])])
    assert exclusive(place) == {
        "a-b": ["minimax-vllm"],
        "a": ["minimax-vllm", "a-b"],
        "c": ["minimax-vllm", "a-b", "a"],
    }
    assert "b70-slot-main-c.service.d/10-b70-exclusive.conf" in systemd.verified


def test_a_profile_that_comes_changes_no_unit_but_whom_it_excludes(place, systemd):
    converge(place, systemd, files(place, "a", "c"))
    plan = converge(place, systemd, files(place, "a", "b", "c"))
    assert [item.path.parent.name for item in plan.writes if item.path in plan.before] == ["b70-slot-main-c.service.d"]
    assert plan.reload_needed


def test_a_switch_at_work_is_not_written_below(place):
    lock = Path(place.layout.lock_file)
    lock.parent.mkdir(parents=True)
    lock.write_text("pid 7 (somebody) since then: a\n")
    with lock.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with (
            pytest.raises(
                SlotFilesError, match=r"nothing was written: the slot's lock .* is held .*pid 7 \(somebody\)"
            ),
            _slot_deployment.locked(place, 0.0),
        ):
            pass
    with _slot_deployment.locked(place, 0.0):
        note = lock.read_text()
        assert (note.startswith(f"pid {os.getpid()} "), note.endswith(": writing the slot's files\n")) == (True, True)
    assert lock.read_text() == ""


@pytest.mark.parametrize("what", ["settings", "command"])
def test_the_directories_of_another_slot_are_refused(place, systemd, what):
    if what == "settings":
        place.slot_file.write_text(json.dumps({"slot": "other"}))
    else:
        place.command.write_text('SETTINGS = {\n    "slot": "other",\n}\n')
    with pytest.raises(SlotFilesError, match="belongs to slot other, not main: give slot main a slot_config_dir and a"):
        converge(place, systemd, [*files(place, "a"), slot_file(place)])
    assert not place.unit("a").exists()
