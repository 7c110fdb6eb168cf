# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power caps: what the unit's program does to the files of the driver, and what a switch refuses before it."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import power
from labkit import cards as lab
from unit.plugins.module_utils._slot.calls import check, host, switch

UNIT, OTHER = "b70-slot-main-a.service", "b70-slot-main-b.service"
BOARD = 275_000_000  # what boards come with


@pytest.fixture
def sysfs(tmp_path):
    lab.tree(tmp_path / "sys", 4)
    return tmp_path / "sys"


@pytest.fixture
def keep(tmp_path):
    return tmp_path / "run/power"


def sensors(sysfs: Path, number: int = 0) -> Path:
    (found,) = (sysfs / "bus/pci/devices" / lab.address(number)).glob("hwmon/hwmon*")
    return found


def caps(sysfs: Path) -> list[int]:
    return [int((sensors(sysfs, number) / "power1_cap").read_text()) // power.W for number in range(4)]


def clamped(monkeypatch, most: int) -> None:
    """The driver takes no more than the firmware's default, and says nothing about it."""
    write = power.CappedCard.write
    monkeypatch.setattr(power.CappedCard, "write", lambda self, microwatts: write(self, min(microwatts, most)))


def test_the_cards_of_an_engine_are_capped_and_restored(sysfs, keep):
    said = power.set_caps(sysfs, keep, UNIT, 210, [1, 3])
    assert caps(sysfs) == [275, 210, 275, 210]
    assert said == [f"{lab.address(number)}: capped at 210 W, from 275 W" for number in (1, 3)]
    assert power.restore(sysfs, keep, OTHER) == []
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs) == [275] * 4
    assert list(keep.iterdir()) == []
    assert power.restore(sysfs, keep, UNIT) == []


def test_without_numbers_all_cards_are_meant(sysfs, keep):
    power.set_caps(sysfs, keep, UNIT, 180, None)
    assert caps(sysfs) == [180] * 4


def test_what_a_card_had_first_is_restored_after_a_kill_between_two_starts(sysfs, keep):
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    # Nobody restored it: another unit's start finds the cap of the first.
    power.set_caps(sysfs, keep, OTHER, 180, [0])
    assert caps(sysfs)[0] == 180
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 180, "the cap of a running engine was lifted by another unit"
    power.restore(sysfs, keep, OTHER)
    assert caps(sysfs)[0] == 275


def test_a_kill_before_the_cap_was_written_restores_what_was_there(sysfs, keep, monkeypatch):
    monkeypatch.setattr(power.CappedCard, "write", lambda _self, _microwatts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        power.set_caps(sysfs, keep, UNIT, 210, [0])
    monkeypatch.undo()
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 275
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 275


def test_a_cap_that_a_person_set_meanwhile_stays(sysfs, keep):
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    (sensors(sysfs) / "power1_cap").write_text("190000000\n")
    (said,) = power.restore(sysfs, keep, UNIT)
    assert said.endswith("its cap was set to 190 W meanwhile, and stays")
    assert caps(sysfs)[0] == 190
    # and is what the next engine leaves behind
    power.set_caps(sysfs, keep, UNIT, 170, [0])
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 190


def test_a_limit_that_was_off_is_off_again(sysfs, keep):
    (sensors(sysfs) / "power1_cap").write_text("0\n")
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 0


def test_what_the_driver_reads_back_counts(sysfs, keep, monkeypatch):
    clamped(monkeypatch, 250_000_000)
    with pytest.raises(power.PowerError, match=r"shows 250 W after 270 W was set; it takes up to 250 W"):
        power.set_caps(sysfs, keep, UNIT, 270, [0])
    monkeypatch.undo()
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 275


def test_a_step_of_the_firmware_is_no_difference(sysfs, keep, monkeypatch):
    clamped(monkeypatch, 209_875_000)
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    assert caps(sysfs)[0] == 209
    monkeypatch.undo()
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 275, "what was set was not taken for ours"


@pytest.mark.parametrize(
    ("watts", "rated", "said"),
    [
        (159, None, "160 to 290 W"),
        (291, None, "160 to 290 W"),
        (240, 230_000_000, "160 to 230 W"),
        (160, None, ""),
        (290, None, ""),
        (230, 230_000_000, ""),
    ],
)
def test_a_cap_out_of_range_is_refused_with_the_range_and_nothing_is_set(sysfs, keep, watts, rated, said):
    if rated:
        (sensors(sysfs, 3) / "power1_rated_max").write_text(f"{rated}\n")
    if not said:
        power.set_caps(sysfs, keep, UNIT, watts, None)
        return
    with pytest.raises(power.PowerError, match=f"a power cap of {watts} W is out of its range, {said}"):
        power.set_caps(sysfs, keep, UNIT, watts, None)
    assert caps(sysfs) == [275] * 4
    assert not keep.exists()


@pytest.fixture
def mixed(tmp_path):
    """A B60 at the lowest address, and B70 cards above it."""
    lab.tree(tmp_path / "sys", 4, others={0: "0xe211"})
    return tmp_path / "sys"


def test_a_number_means_the_card_that_masks_mean_by_it(mixed, keep):
    power.set_caps(mixed, keep, UNIT, 210, [1])
    assert caps(mixed) == [275, 210, 275, 275]
    power.restore(mixed, keep, UNIT)
    power.set_caps(mixed, keep, UNIT, 210, [3])
    assert caps(mixed) == [275, 275, 275, 210]


def test_a_card_of_another_model_is_refused_by_name_and_nothing_is_set(mixed, keep):
    said = rf"card 0 \({lab.address(0)}\) is an Arc Pro B60, .* the B70 cards are 1 at {lab.address(1)}, 2 at"
    with pytest.raises(power.PowerError, match=said):
        power.set_caps(mixed, keep, UNIT, 210, [0, 1])
    assert caps(mixed) == [275] * 4
    assert not keep.exists()
    with pytest.raises(power.PowerError, match="card 4 is not there: this host shows 4"):
        power.set_caps(mixed, keep, UNIT, 210, [4])


def test_only_a_b70_is_capped(mixed, keep, tmp_path):
    power.set_caps(mixed, keep, UNIT, 210, None)
    assert caps(mixed) == [275, 210, 210, 210]
    lab.tree(tmp_path / "alone", 1, others={0: "0xe20b"})
    with pytest.raises(power.PowerError, match=f"no card to cap; {lab.address(0)} is an Arc B580"):
        power.set_caps(tmp_path / "alone", keep, UNIT, 210, None)


def test_a_driver_without_caps_is_told_from_one_that_is_not_bound(sysfs, keep):
    (sensors(sysfs, 2) / "power1_cap").unlink()
    with pytest.raises(power.PowerError, match=rf"{lab.address(2)}: its driver offers no power cap .* Linux 6\.15"):
        power.set_caps(sysfs, keep, UNIT, 210, None)
    assert not keep.exists()


def test_a_card_that_left_the_bus_holds_up_no_other(sysfs, keep):
    power.set_caps(sysfs, keep, UNIT, 210, [0, 1])
    (sysfs / "bus/pci/devices" / lab.address(0)).unlink()
    gone, restored = power.restore(sysfs, keep, UNIT)
    assert gone.endswith("is gone, and its cap with it")
    assert restored == f"{lab.address(1)}: its cap is 275 W again"
    assert list(keep.iterdir()) == []


def test_what_could_not_be_restored_is_said_and_kept(sysfs, keep, monkeypatch):
    power.set_caps(sysfs, keep, UNIT, 210, [0, 1])
    clamped(monkeypatch, 220_000_000)
    with pytest.raises(power.PowerError, match=r"shows 220 W after 275 W was set.*; .*shows 220 W"):
        power.restore(sysfs, keep, UNIT)
    assert len(list(keep.iterdir())) == 2


def test_a_torn_record_is_none(sysfs, keep):
    keep.mkdir(parents=True)
    (keep / lab.address(0)).write_text('{"unit": ')
    power.set_caps(sysfs, keep, UNIT, 210, [0])
    power.restore(sysfs, keep, UNIT)
    assert caps(sysfs)[0] == 275


def test_the_program_says_what_it_did_and_fails_with_the_reason(sysfs, keep, capsys):
    words = ["--unit", UNIT, "--keep", str(keep)]
    assert power.main(["set", *words, "--watts", "210", "--cards", "0,2"], sysfs) == 0
    assert caps(sysfs) == [210, 275, 210, 275]
    assert capsys.readouterr().err.splitlines()[0] == f"power cap: {lab.address(0)}: capped at 210 W, from 275 W"
    assert power.main(["restore", *words], sysfs) == 0
    assert caps(sysfs) == [275] * 4
    assert power.main(["set", *words, "--watts", "400"], sysfs) == 1
    assert "out of its range, 160 to 290 W" in capsys.readouterr().err
    assert json.loads(json.dumps(power.CapRecord(UNIT, BOARD, BOARD).__dict__))["before"] == BOARD


def capped_host(**files: str):
    """Profile b wants a cap, on a host with two cards whose driver shows these files."""
    found = host("ab", load_s=1.0, cards=1)
    found.cards = 2
    found.render("b", cards=1, power_cap_w=210)
    for number in (128, 129):
        for name, text in files.items():
            found.put(PurePosixPath(f"/sys/class/drm/renderD{number}/device/hwmon/hwmon4/{name}"), f"{text}\n")
    return found


def test_a_switch_to_a_profile_with_a_cap_looks_at_the_cards_first():
    found = capped_host(power1_cap=str(BOARD))
    switch(found, "a")
    assert not check(found, "b")["failed"]
    assert not switch(found, "b")["failed"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "/dev/dri/renderD128 can't be capped at 210 W: its driver offers no power cap"),
        ({"power1_cap": "x"}, "its driver offers no power cap"),
        ({"power1_cap": str(BOARD), "power1_rated_max": "200000000"}, "out of its range, 160 to 200 W"),
    ],
)
def test_a_cap_that_can_not_be_set_ends_the_switch_before_anything_is_touched(files, said):
    found = capped_host(**files)
    switch(found, "a")
    engine = found.engine().invocation
    result = switch(found, "b")
    assert (result["outcome"], result["failure"]["phase"]) == ("untouched", "guard")
    assert said in result["msg"]
    assert (found.engine().invocation, found.open) == (engine, True)
