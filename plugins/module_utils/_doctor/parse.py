# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the output of tools. Pure. Text in another format gives an empty result, never an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from .._slot.kinds.kernel import FAULT, LOST
from .._slot.power import B70, MODELS
from .._slot.words.firmware import guc_of

_SYCL = re.compile(r"^\[(\w+):(\w+)\]\s*(?:\[\w+:\d+\])?\s*(.*)$")
_ROW = re.compile(r"^\|\s*([\d/]*)\s*\|(?:[^|]*\|)??\s*(.*?)\s*\|$")
_BOOT = re.compile(
    r"^\s*(-?\d+)\s+([0-9a-f]{32})\s+\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\s*(?:—|\s)\s*"
    r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC"
)
# Folders where packages and stacks install. Other executable mappings are made while a process runs: kernels in a
# cache, in /tmp or in shared memory, and memory that has no file, such as /memfd:, /SYSV00000000, /dev/zero and /i915.
_INSTALLED = re.compile(r"(/(?:usr|opt|lib\w*|s?bin)/.*[^/]) \(deleted\)")
_XE_GUC = re.compile(r"\bxe ([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (.*\bGuC\b.*)")
_LIBRARY = re.compile(r"^\s+(\S+) \(([^)]*)\) => (\S+)$")


@dataclass(frozen=True)
class SyclDevice:
    """One line of sycl-ls: backend (`level_zero`, `opencl`), kind (`gpu`, `cpu`), and the rest of the line."""

    backend: str
    kind: str
    name: str


def sycl_devices(text: str) -> list[SyclDevice]:
    """Return the devices in the output of `sycl-ls`."""
    found = (_SYCL.match(line.strip()) for line in text.splitlines())
    return [SyclDevice(match[1].removeprefix("ext_oneapi_"), match[2], match[3]) for match in found if match]


def opencl_devices(text: str) -> list[tuple[str, str]]:
    """Return the pairs of platform and device in the output of `clinfo -l`."""
    found = []
    platform = ""
    for line in text.splitlines():
        if match := re.match(r"\s*Platform #\d+: (.*\S)", line):
            platform = match[1]
        elif match := re.match(r"\s*[`+|]*-*\s*Device #\d+: (.*\S)", line):
            found.append((platform, match[1]))
    return found


def xpu_smi_devices(text: str) -> list[dict[str, str]]:
    """Return the devices of `xpu-smi discovery`: `id`, and every `Name: value` row with the name in lower case."""
    devices: list[dict[str, str]] = []
    for line in text.splitlines():
        match = _ROW.match(line.strip())
        if not match:
            continue
        if match[1]:
            devices.append({"id": match[1]})
        name, colon, value = match[2].partition(": ")
        if devices and colon:
            devices[-1][name.strip().lower()] = value.strip()
    return devices


def card_model(name: str) -> str:
    """Return the model in the name that a runtime gives a device, such as `Arc Pro B70`; empty for any other device.

    Drivers that do not know the product name it by its PCI id (`[0xe223]`), Mesa adds the chip (`BMG G31`).
    """
    if match := re.search(r"\[(0xe2[0-9a-f]{2})\]", name.lower()):
        return MODELS.get(match[1], "")
    if match := re.search(r"\bB\d{2,3}\b", name):
        return next((model for model in MODELS.values() if model.endswith(f" {match[0]}")), "")
    return B70 if re.search(r"\bBMG[ -]?G31\b", name) else ""


def cards_among(names: Iterable[str]) -> int:
    """Count the devices that are a B70, by the names that a runtime gives them."""
    return sum(card_model(name) == B70 for name in names)


def memory_ecc(text: str) -> tuple[str, str] | None:
    """Return the states (current, pending) of ECC in the output of `xpu-smi config -d N`, `enabled` or `disabled`.

    None without one, and where the driver cannot say (`N/A`). Newer versions print `ECC State` and no pending one.
    """
    section = re.search(r"Memory ECC:?\s*\|(.*?)(?:\n\+|Memory ECC|\Z)", text, re.DOTALL)
    current = _ecc_word("Current", section[1] if section else "") or _ecc_word("ECC State", text)
    pending = _ecc_word("Pending", section[1] if section else "")
    return (current, pending or current) if current else None


def _ecc_word(key: str, text: str) -> str:
    match = re.search(rf"{key}:\s*(enabled|disabled)\b", text, re.IGNORECASE)
    return match[1].lower() if match else ""


def firmware_of_card(text: str) -> str:
    """Return the version of the card's own firmware (IFWI) in `xpu-smi discovery -d N`; empty where it is missing."""
    rows = xpu_smi_devices(text)
    told = rows[0].get("gfx firmware version", "") if rows else ""
    return "" if told.lower() in ("n/a", "unknown") else told


@dataclass(frozen=True)
class Boot:
    """One boot of the journal: offset (0 is the current one), id, and first and last entry in UTC."""

    offset: int
    id: str
    first: datetime
    last: datetime


def boots(text: str) -> list[Boot]:
    """Return the boots in the output of `journalctl --list-boots --utc`, oldest first."""
    found = (_BOOT.match(line) for line in text.splitlines())
    return [Boot(int(match[1]), match[2], _moment(match[3]), _moment(match[4])) for match in found if match]


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def journal_stops(text: str) -> dict[str, datetime]:
    """Return when a boot's journal was last closed properly, by boot id.

    text: of `journalctl -o json MESSAGE_ID=<journal stopped>`.
    """
    stops: dict[str, datetime] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            stops[str(entry["_BOOT_ID"])] = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, UTC)
        except (ValueError, KeyError, TypeError):
            continue
    return stops


def unclean(listed: Iterable[Boot], stops: Mapping[str, datetime]) -> list[Boot]:
    """Return the earlier boots that ended with a crash or loss of power: their journal lacks its own stop."""
    near = timedelta(seconds=10)
    return [boot for boot in listed if boot.offset < 0 and not (boot.id in stops and boot.last - stops[boot.id] < near)]


def libraries(text: str) -> list[tuple[str, str]]:
    """Return the name and path of the 64-bit libraries of `ldconfig -p`.

    Of two with the same name the loader uses the first.
    """
    found = (_LIBRARY.match(line) for line in text.splitlines())
    return [(match[1], match[3]) for match in found if match and "x86-64" in match[2]]


def replaced(maps: str) -> list[str]:
    """Return the removed or replaced files that a process still executes, from its /proc/PID/maps."""
    rows = (line.split(maxsplit=5) for line in maps.splitlines())
    found = (_INSTALLED.fullmatch(row[5].rstrip()) for row in rows if len(row) == 6 and "x" in row[1])
    return sorted({match[1] for match in found if match})


def apt_settings(text: str) -> list[tuple[str, str]]:
    """Return the pairs of name and value in `apt-config dump`; the name of a list element ends with `::`."""
    found = (re.fullmatch(r'(\S+) "(.*)";', line.strip()) for line in text.splitlines())
    return [(match[1], match[2]) for match in found if match]


def memory_of_card(text: str) -> int:
    """Return the bytes of a card's memory that the driver manages, from its file `vram_mm`; 0 without a figure."""
    match = re.search(r"^\s*size: (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0


def chosen_of(text: str) -> str:
    """Return the bracketed word of a list of choices such as `[default] performance powersave`; empty without one."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else ""


def failed_units(text: str) -> list[str]:
    """Return the failed units in the output of `systemctl list-units --all --plain --no-legend`."""
    rows = (line.split(None, 4) for line in text.splitlines())
    return [row[0] for row in rows if len(row) >= 4 and row[2] == "failed"]


def bar_sizes(text: str) -> list[int]:
    """Return the bytes of each region in a PCI device's `resource` file; 0 for an empty region."""
    sizes = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3:
            first, last = int(words[0], 16), int(words[1], 16)
            sizes.append(last - first + 1 if last > first else 0)
    return sizes


def bus_errors(text: str) -> dict[str, int]:
    """Return the counters of an `aer_dev_*` file that are not zero, without totals."""
    rows = (line.split() for line in text.splitlines())
    counters = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return {name: value for name, value in counters.items() if value and not name.startswith("TOTAL")}


def memory(text: str) -> dict[str, int]:
    """Return the values of /proc/meminfo in MiB, by name."""
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) // 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _guc_by_card(text: str) -> dict[str, tuple[str, str]]:
    lines: dict[str, list[str]] = {}
    for match in _XE_GUC.finditer(text):
        lines.setdefault(match[1], []).append(match[2])
    return {address: guc_of("\n".join(said)) for address, said in lines.items()}


def guc_versions(text: str) -> dict[str, str]:
    """Return the versions of the loaded GuC firmware by PCI address, from the kernel log."""
    return {address: found for address, (found, _wanted) in _guc_by_card(text).items() if found}


def guc_wanted(text: str) -> dict[str, str]:
    """Return the versions of the GuC firmware that the kernel asks for by PCI address, where its log names them."""
    return {address: wanted for address, (_found, wanted) in _guc_by_card(text).items() if wanted}


@dataclass(frozen=True)
class Trouble:
    """Lines of a kernel log that report trouble, each by its worst matching word."""

    dead: tuple[str, ...] = ()  # a card or the machine does not recover by itself
    faults: tuple[str, ...] = ()  # a card was reset or refused work
    hardware: tuple[str, ...] = ()  # the machine itself reports errors
    small: tuple[str, ...] = ()  # the machine shows only a part of a card's memory

    def __bool__(self) -> bool:
        return bool(self.dead or self.faults or self.hardware or self.small)


# Words that count only in a line of the cards' driver.
_DRIVER = re.compile(r"\bxe\b|\bdrm\b|\[drm\]")
_LOCKUP = re.compile(r"hard LOCKUP|soft lockup")
_SMALL = re.compile(r"Small BAR device|Failed to resize BAR|Resizable BAR not detected", re.IGNORECASE)
_HARDWARE = re.compile(r"Hardware Error|Long readout interval|machine check events logged", re.IGNORECASE)


def trouble(text: str) -> Trouble:
    """Return driver events, lockups and hardware errors in a kernel log (`journalctl -k`, `dmesg`)."""
    dead, faults, hardware, small = [], [], [], []
    for line in text.splitlines():
        driver = _DRIVER.search(line) is not None
        if _SMALL.search(line):
            small.append(line.strip())
        elif _LOCKUP.search(line) or (driver and LOST.search(line)):
            dead.append(line.strip())
        elif driver and FAULT.search(line):
            faults.append(line.strip())
        elif _HARDWARE.search(line):
            hardware.append(line.strip())
    return Trouble(tuple(dead), tuple(faults), tuple(hardware), tuple(small))


def reset_reason(text: str) -> str:
    """Return why the machine was reset, as the kernel of an AMD host reports at boot; empty without such a report."""
    match = re.search(r"Previous system reset reason \[\w+\]: (.*\S)", text)
    return match[1] if match else ""


def gt_per_s(text: str) -> float:
    """Return the figure of a link speed file such as `16.0 GT/s PCIe`; 0 if it is unknown."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match[1]) if match else 0.0
