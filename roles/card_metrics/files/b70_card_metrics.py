# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of the Arc Pro B70 cards for the textfile collector of node_exporter, from what sysfs tells everybody.

Which files there are follows the kernel's documentation: Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon, the
"Xe GT Throttle" and "Xe GT Frequency Management" sections of the xe driver, and sysfs-bus-pci for the link and its
errors. A driver or a kernel that lacks a file yields no sample for it: an absent sample is never written as 0.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

VENDOR = "0x8086"
B70 = "Arc Pro B70"
# The family, as plugins/module_utils/_slot/power.py has it: this program runs without it.
MODELS = {
    "0xe223": B70,
    "0xe211": "Arc Pro B60",
    "0xe212": "Arc Pro B50",
    "0xe20b": "Arc B580",
    **{f"0xe2{end}": f"Battlemage 8086:e2{end}" for end in ("02", "09", "0c", "0d", "10", "16", "20", "21", "22")},
}
# The upstream port of the switch on a card: the card itself only tells of its link to that switch.
SLOT_PORT = ("0x8086", "0xe2ff")
DRIVER = "xe"
FILE_NAME = "b70_cards.prom"

# The quantity that a channel of the driver measures where it has no label.
_CHANNELS = {
    "power": {"1": "card", "2": "pkg"},
    "energy": {"1": "card", "2": "pkg"},
    "temp": {"2": "pkg", "3": "vram"},
    "in": {"1": "pkg"},
}
# Files of hwmon: pattern, metric, labels of its own, the divisor to the base unit, and the group it belongs to.
_HWMON: tuple[tuple[re.Pattern[str], str, dict[str, str], float, str], ...] = (
    (re.compile(r"energy(\d+)_input"), "b70_card_energy_joules_total", {}, 1e6, "energy"),
    (re.compile(r"power(\d+)_input"), "b70_card_power_watts", {}, 1e6, "power"),
    (re.compile(r"power(\d+)_max"), "b70_card_power_limit_watts", {"limit": "sustained"}, 1e6, "power"),
    (re.compile(r"power(\d+)_cap"), "b70_card_power_limit_watts", {"limit": "burst"}, 1e6, "power"),
    (re.compile(r"power(\d+)_crit"), "b70_card_power_limit_watts", {"limit": "critical"}, 1e6, "power"),
    (re.compile(r"power(\d+)_rated_max"), "b70_card_power_limit_watts", {"limit": "rated"}, 1e6, "power"),
    (re.compile(r"temp(\d+)_input"), "b70_card_temperature_celsius", {}, 1e3, "temperature"),
    (re.compile(r"in(\d+)_input"), "b70_card_voltage_volts", {}, 1e3, "voltage"),
    (re.compile(r"fan(\d+)_input"), "b70_card_fan_rpm", {}, 1, "fan"),
)
_FREQUENCIES = {"act_freq": "actual", "cur_freq": "requested", "min_freq": "least", "max_freq": "most"}
_ERRORS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
GROUPS = ("energy", "power", "temperature", "voltage", "fan", "frequency", "throttle", "link", "pcie_errors")

# name: (type, help)
METRICS = {
    "b70_cards": ("gauge", "Arc Pro B70 cards on the PCI bus."),
    "b70_card_info": ("gauge", "1 for each card of the family, with its model; all of them are numbered together."),
    "b70_card_driver_bound": ("gauge", "1 where the kernel driver xe is bound to the card."),
    "b70_card_suspended": ("gauge", "1 where the card sleeps; it is not woken, so its sensors give no samples."),
    "b70_card_reports": ("gauge", "1 where the card gave at least one sample of this group, 0 where it gave none."),
    "b70_card_unreadable_files": ("gauge", "Files of the card that exist and could not be read, or have no number."),
    "b70_card_energy_joules_total": ("counter", "Energy used since the driver was loaded; its rate is the power."),
    "b70_card_power_watts": ("gauge", "Power, where the driver tells it."),
    "b70_card_power_limit_watts": ("gauge", "Power limits; a limit that is switched off has no sample."),
    "b70_card_temperature_celsius": ("gauge", "Temperature."),
    "b70_card_voltage_volts": ("gauge", "Voltage."),
    "b70_card_fan_rpm": ("gauge", "Speed of a fan."),
    "b70_card_frequency_hertz": ("gauge", "Frequency of a GT: actual, requested, and the limits of both."),
    "b70_card_throttled": ("gauge", "1 while the frequency of a GT is held down for any reason."),
    "b70_card_throttle_reason": ("gauge", "1 while the frequency of a GT is held down for this reason."),
    "b70_card_link_transfers_per_second": ("gauge", "Speed of the link of the slot, per lane."),
    "b70_card_link_max_transfers_per_second": ("gauge", "Highest speed that the card manages in the slot, per lane."),
    "b70_card_link_lanes": ("gauge", "Lanes of the link of the slot."),
    "b70_card_link_max_lanes": ("gauge", "Most lanes that the card manages."),
    "b70_card_pcie_errors_total": ("counter", "PCIe errors (AER) counted at the card and at its port to the slot."),
}


@dataclass(frozen=True)
class MetricSample:
    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class CardMetrics:
    """The readings of one card: samples, the groups that gave any, and files that should have."""

    labels: Mapping[str, str]
    samples: list[MetricSample] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    unreadable: int = 0

    def add(self, name: str, value: float | None, of: str = "", **labels: str) -> None:
        if value is None:
            return
        self.samples.append(MetricSample(name, {**self.labels, **labels}, value))
        if of:
            self.groups.add(of)

    def number(self, path: Path) -> float | None:
        """Return the number in a file.

        None where there is no such file, or where it can't be read, which is counted.
        """
        try:
            return float(path.read_text(encoding="ascii").strip())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError):
            self.unreadable += 1
            return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _id(device: Path) -> tuple[str, str]:
    return _text(device / "vendor"), _text(device / "device")


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _model(device: Path) -> str:
    """Return the model of a card that Level Zero counts; empty for anything else, and for another model given away."""
    vendor, number = _id(device)
    model = MODELS.get(number.lower(), "") if vendor.lower() == VENDOR else ""
    driver = device / "driver"
    return "" if model != B70 and driver.exists() and driver.resolve().name != DRIVER else model


def collect(sys_root: Path) -> list[MetricSample]:
    """Return the samples of all cards below `sys_root`, which is /sys or a tree like it."""
    devices = sys_root / "bus/pci/devices"
    # A longer domain is a higher one.
    names = sorted(_listed(devices), key=lambda name: (len(name), name))
    found = [(name, model) for name in names if (model := _model(devices / name))]
    samples = [MetricSample("b70_cards", {}, sum(model == B70 for _name, model in found))]
    for number, (address, model) in enumerate(found):
        labels = {"card": str(number), "pci": address}
        samples.append(MetricSample("b70_card_info", {**labels, "model": model}, 1))
        samples += _card(devices / address, labels).samples
    return samples


def _card(device: Path, labels: Mapping[str, str]) -> CardMetrics:
    card = CardMetrics(labels)
    bound = (device / "driver").resolve().name == DRIVER
    suspended = _text(device / "power/runtime_status") == "suspended"
    card.add("b70_card_driver_bound", int(bound))
    card.add("b70_card_suspended", int(suspended))
    # A read of a sensor would wake the card, and so would one of its configuration space.
    if not suspended:
        if bound:
            _hwmon(card, device)
            _gts(card, device)
        _link(card, device)
    for group in GROUPS:
        card.add("b70_card_reports", int(group in card.groups), group=group)
    card.add("b70_card_unreadable_files", card.unreadable)
    return card


def _hwmon(card: CardMetrics, device: Path) -> None:
    for folder in (device / "hwmon" / name for name in _listed(device / "hwmon") if name.startswith("hwmon")):
        for name in _listed(folder):
            for pattern, metric, labels, divisor, group in _HWMON:
                match = pattern.fullmatch(name)
                value = card.number(folder / name) if match else None
                # The kernel says 0 for a limit that is switched off.
                if match is None or value is None or (labels and not value):
                    continue
                kind = re.sub(r"\d.*", "", name)
                label = _text(folder / f"{kind}{match[1]}_label") or _CHANNELS.get(kind, {}).get(match[1], match[1])
                card.add(metric, value / divisor, group, sensor=label, **labels)


def _gts(card: CardMetrics, device: Path) -> None:
    for gt in sorted(device.glob("tile*/gt*")):
        where = {"gt": f"{gt.parent.name}/{gt.name}"}
        for name, which in _FREQUENCIES.items():
            value = card.number(gt / "freq0" / name)
            card.add(
                "b70_card_frequency_hertz", None if value is None else value * 1e6, "frequency", which=which, **where
            )
        throttle = gt / "freq0/throttle"
        card.add("b70_card_throttled", card.number(throttle / "status"), "throttle", **where)
        for name in _listed(throttle):
            if name.startswith("reason_"):
                reason = name[len("reason_") :]
                card.add("b70_card_throttle_reason", card.number(throttle / name), "throttle", reason=reason, **where)


def _link(card: CardMetrics, device: Path) -> None:
    above = [path for path in device.resolve().parents if _id(path) == SLOT_PORT]
    slot = above[0] if above else device
    for kind, infix in (("current", ""), ("max", "max_")):
        speed = re.match(r"([\d.]+) GT/s", _text(slot / f"{kind}_link_speed"))
        card.add(f"b70_card_link_{infix}transfers_per_second", float(speed[1]) * 1e9 if speed else None, "link")
        width = _text(slot / f"{kind}_link_width")
        card.add(f"b70_card_link_{infix}lanes", float(width) if width.isdigit() else None, "link")
    for port, folder in (("card", device), *((("slot", slot),) if above else ())):
        for severity, short in _ERRORS.items():
            total = re.search(rf"^TOTAL_ERR_{short} (\d+)$", _text(folder / f"aer_dev_{severity}"), re.M)
            count = float(total[1]) if total else None
            card.add("b70_card_pcie_errors_total", count, "pcie_errors", port=port, severity=severity)


def exposition(samples: Iterable[MetricSample]) -> str:
    """Return the samples in Prometheus' text format, one family after the other."""
    found = list(samples)
    return "".join(line for name in METRICS for line in _family(name, [s for s in found if s.name == name]))


def _family(name: str, samples: Sequence[MetricSample]) -> Iterator[str]:
    if not samples:
        return
    kind, about = METRICS[name]
    yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
    for sample in samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
        yield f"{name}{{{labels}}} {sample.value:.15g}\n" if labels else f"{name} {sample.value:.15g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write(folder: Path, text: str) -> None:
    """Replace the file in one step; node_exporter reads only names that end in .prom, so it never sees half of one."""
    new = folder / f".{FILE_NAME}.new"
    new.write_text(text, encoding="ascii", errors="replace")
    new.chmod(0o644)
    new.replace(folder / FILE_NAME)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Write metrics of the Arc Pro B70 cards for node_exporter.")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="the tree of sysfs")
    parser.add_argument("directory", type=Path, help="the directory of node_exporter's textfile collector")
    given = parser.parse_args(argv)
    text = exposition(collect(given.sys))
    try:
        write(given.directory, text)
    except OSError as error:
        sys.stderr.write(
            f"{given.directory / FILE_NAME} cannot be written: {error}. Run the role card_metrics again.\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
