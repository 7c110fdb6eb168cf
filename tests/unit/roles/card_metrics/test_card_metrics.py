# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of the cards, read from the lab's tree of sysfs and the files that the kernel documents."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import power
from labkit import cards

PROGRAM = Path(__file__).parents[4] / "roles/card_metrics/files/b70_card_metrics.py"
_SPEC = importlib.util.spec_from_file_location("b70_card_metrics", PROGRAM)
assert _SPEC is not None
assert _SPEC.loader is not None
metrics = importlib.util.module_from_spec(_SPEC)
sys.modules["b70_card_metrics"] = metrics
_SPEC.loader.exec_module(metrics)

FIRST = 'card="0",pci="0000:03:00.0"'


@pytest.fixture
def tree(tmp_path):
    cards.tree(tmp_path / "sys", 2)
    return tmp_path / "sys"


def folder(tree: Path, number: int = 0) -> Path:
    return (tree / "bus/pci/devices" / cards.address(number)).resolve()


def put(at: Path, **files: str) -> None:
    at.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (at / name).write_text(text + "\n", encoding="ascii")


def lines(tree: Path) -> list[str]:
    text: str = metrics.exposition(metrics.collect(tree))
    return text.splitlines()


def test_what_the_driver_tells_is_in_base_units(tree):
    put(
        folder(tree) / "hwmon/hwmon7",
        energy1_input="123456789", energy2_input="100000000", energy2_label="pkg",
        power1_max="230000000", power1_rated_max="275000000", power2_cap="0",
        temp2_input="61000", temp3_input="72000", temp3_label="vram", in1_input="812", fan1_input="1500",
    )  # fmt: skip
    said = lines(tree)
    for line in (
        f'b70_card_energy_joules_total{{{FIRST},sensor="card"}} 123.456789',
        f'b70_card_energy_joules_total{{{FIRST},sensor="pkg"}} 100',
        f'b70_card_power_limit_watts{{{FIRST},sensor="card",limit="burst"}} 275',
        f'b70_card_power_limit_watts{{{FIRST},sensor="card",limit="sustained"}} 230',
        f'b70_card_power_limit_watts{{{FIRST},sensor="card",limit="rated"}} 275',
        f'b70_card_temperature_celsius{{{FIRST},sensor="pkg"}} 61',
        f'b70_card_temperature_celsius{{{FIRST},sensor="vram"}} 72',
        f'b70_card_voltage_volts{{{FIRST},sensor="pkg"}} 0.812',
        f'b70_card_fan_rpm{{{FIRST},sensor="1"}} 1500',
    ):
        assert line in said
    # The kernel's 0 is a limit that is switched off, not one of 0 W.
    assert not [line for line in said if 'limit="burst"' in line and 'sensor="pkg"' in line]


def test_frequency_and_throttling_of_each_gt(tree):
    put(folder(tree) / "tile0/gt0/freq0", act_freq="2400", cur_freq="2800", min_freq="400", max_freq="2800")
    put(folder(tree) / "tile0/gt0/freq0/throttle", status="1", reason_pl1="1", reason_thermal="0")
    put(folder(tree) / "tile0/gt1/freq0", act_freq="0")
    said = lines(tree)
    assert f'b70_card_frequency_hertz{{{FIRST},which="actual",gt="tile0/gt0"}} 2400000000' in said
    assert f'b70_card_frequency_hertz{{{FIRST},which="actual",gt="tile0/gt1"}} 0' in said
    assert f'b70_card_throttled{{{FIRST},gt="tile0/gt0"}} 1' in said
    assert f'b70_card_throttle_reason{{{FIRST},reason="pl1",gt="tile0/gt0"}} 1' in said
    assert f'b70_card_throttle_reason{{{FIRST},reason="thermal",gt="tile0/gt0"}} 0' in said


def test_the_link_is_that_of_the_slot_not_the_one_inside_of_the_card(tree):
    put(folder(tree), aer_dev_correctable="RxErr 3\nTOTAL_ERR_COR 3")
    said = lines(tree)
    assert f"b70_card_link_transfers_per_second{{{FIRST}}} 32000000000" in said
    assert f"b70_card_link_lanes{{{FIRST}}} 16" in said
    assert f'b70_card_pcie_errors_total{{{FIRST},port="card",severity="correctable"}} 3' in said
    assert f'b70_card_pcie_errors_total{{{FIRST},port="card",severity="fatal"}} 0' in said
    # The lab's port has no counters: that is no sample, not 0.
    assert not [line for line in said if 'port="slot"' in line]


def test_a_card_that_reports_nothing_is_told_from_one_without_a_problem(tmp_path):
    cards.tree(tmp_path / "sys", 1, driver="")
    said = lines(tmp_path / "sys")
    assert "b70_cards 1" in said
    assert f"b70_card_driver_bound{{{FIRST}}} 0" in said
    assert f'b70_card_reports{{{FIRST},group="throttle"}} 0' in said
    assert f'b70_card_reports{{{FIRST},group="link"}} 1' in said
    assert not [line for line in said if line.startswith(("b70_card_throttled", "b70_card_power_limit_watts"))]


def test_a_sleeping_card_is_not_woken(tree):
    put(folder(tree) / "power", runtime_status="suspended")
    said = lines(tree)
    assert f"b70_card_suspended{{{FIRST}}} 1" in said
    assert not [line for line in said if FIRST in line and line.startswith("b70_card_power_limit_watts")]
    assert [line for line in said if 'card="1"' in line and line.startswith("b70_card_power_limit_watts")]


def test_a_file_without_a_number_is_counted(tree):
    put(folder(tree) / "hwmon/hwmon7", temp2_input="")
    assert f"b70_card_unreadable_files{{{FIRST}}} 1" in lines(tree)


def test_all_cards_of_the_family_are_numbered_as_masks_and_caps_number_them(tmp_path):
    cards.tree(tmp_path / "sys", 3, others={0: "0xe211"})
    said = lines(tmp_path / "sys")
    assert "b70_cards 2" in said
    assert f'b70_card_info{{{FIRST},model="Arc Pro B60"}} 1' in said
    assert 'b70_card_info{card="1",pci="0000:83:00.0",model="Arc Pro B70"} 1' in said
    known = power.cards(tmp_path / "sys")
    told = [line for line in said if line.startswith("b70_card_info")]
    assert told == [
        f'b70_card_info{{card="{number}",pci="{card.address}",model="{card.model}"}} 1'
        for number, card in enumerate(known)
    ]


def test_a_card_of_another_model_that_a_virtual_machine_has_has_no_number(tmp_path):
    cards.tree(tmp_path / "sys", 2, driver="vfio-pci", others={0: "0xe211"})
    assert [card.address for card in power.cards(tmp_path / "sys")] == [cards.address(1)]
    assert f'b70_card_driver_bound{{card="0",pci="{cards.address(1)}"}} 0' in lines(tmp_path / "sys")


def test_the_models_are_those_of_the_rest_of_the_collection():
    assert (metrics.MODELS, metrics.VENDOR, metrics.DRIVER) == (power.MODELS, power.VENDOR, power.DRIVER)


def test_a_host_without_cards(tmp_path):
    assert lines(tmp_path)[-1] == "b70_cards 0"


def test_every_family_has_one_header_and_no_sample_comes_twice(tree):
    said = lines(tree)
    headers = [line.split()[2] for line in said if line.startswith("# TYPE")]
    assert len(headers) == len(set(headers))
    series = [line.rpartition(" ")[0] for line in said if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_the_file_is_replaced_and_nothing_else_is_left(tree, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert metrics.main(["--sys", str(tree), str(out)]) == 0
    assert metrics.main(["--sys", str(tree), str(out)]) == 0
    assert os.listdir(out) == ["b70_cards.prom"]
    assert (out / "b70_cards.prom").stat().st_mode & 0o777 == 0o644
    assert "b70_cards 2\n" in (out / "b70_cards.prom").read_text()


def test_a_directory_that_is_missing_is_named(tree, tmp_path, capsys):
    assert metrics.main(["--sys", str(tree), str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none/b70_cards.prom") in capsys.readouterr().err
