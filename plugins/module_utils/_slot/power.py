# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power cap of the cards while an engine runs, and the program that sets it.

The unit of a profile with a cap runs this file by itself, as root and with the standard library alone: `set` before
each start of the engine, `restore` after each end of it. systemd runs both whoever starts the engine and however it
ends, so neither a kill nor a crash leaves a cap behind. What a card had before is in a file in /run until it is
restored: a reboot forgets it together with the cap.

Files and units are those of the kernel's Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon: `power1_cap` is the
burst limit (PL2) of the whole card in microwatts, 0 where it is off; `power1_rated_max` is the default limit, where the
driver has it. The driver clamps what it is given, so only what it reads back counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VENDOR = "0x8086"
B70 = "Arc Pro B70"
# The family, Battlemage, by PCI id, as the kernel's include/drm/intel/pciids.h lists it. Level Zero, masks and xpu-smi
# number all of these cards together, in the order of their addresses.
MODELS = {
    "0xe223": B70,
    "0xe211": "Arc Pro B60",
    "0xe212": "Arc Pro B50",
    "0xe20b": "Arc B580",
    **{f"0xe2{end}": f"Battlemage 8086:e2{end}" for end in ("02", "09", "0c", "0d", "10", "16", "20", "21", "22")},
}
DRIVER = "xe"
CAP, RATED = "power1_cap", "power1_rated_max"
# The caps at which owners have run these cards, in watts.
LEAST_W, MOST_W = 160, 290
# The firmware counts in steps of less than this.
TOLERANCE_UW = 1_000_000
W = 1_000_000  # microwatts
SYSFS = Path("/sys")
FOLDER = "power"  # in the runtime directory: what cards had before
NO_CAP = (
    f"its driver offers no power cap (hwmon {CAP}); xe does from Linux 6.15 on. Take a newer kernel, or remove "
    "power_cap_w from the profile and slot_power_cap_w from the host"
)


class PowerError(Exception):
    """A cap can't be set or restored; the text names the card and the reason."""


def most_w(rated_uw: int | None) -> int:
    """Return the highest cap for a card, in watts. rated_uw: its default limit, None where the driver has none."""
    return min(MOST_W, rated_uw // W) if rated_uw else MOST_W


def check(where: str, watts: int, rated_uw: int | None) -> None:
    """Raise PowerError for a cap that is out of the range of a card."""
    most = most_w(rated_uw)
    if not LEAST_W <= watts <= most:
        raise PowerError(f"{where}: a power cap of {watts} W is out of its range, {LEAST_W} to {most} W")


def number(text: str | None) -> int | None:
    """Return the number in the text of a file of hwmon, or None."""
    word = (text or "").strip()
    return int(word) if word.isdigit() else None


def shown(microwatts: int) -> str:
    return f"{microwatts / W:g} W" if microwatts else "off"


@dataclass(frozen=True)
class CappedCard:
    """A card on the bus. folder: that of its sensors, None while the driver does not run."""

    address: str
    folder: Path | None
    model: str = B70

    def read(self, name: str = CAP) -> int | None:
        """Return microwatts, or None where there is no such number; raise PowerError where it can't be read."""
        try:
            return None if self.folder is None else number((self.folder / name).read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PowerError(f"{self.address}: {name} can't be read: {error.strerror}") from error

    def cap(self) -> int:
        found = self.read()
        if found is None:
            raise PowerError(f"{self.address}: {NO_CAP}")
        return found

    def write(self, microwatts: int) -> int:
        """Set the cap, and return the one that the card then shows."""
        if self.folder is None:
            raise PowerError(f"{self.address}: {NO_CAP}")
        try:
            # In place and in one piece, as sysfs takes it.
            handle = os.open(self.folder / CAP, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(handle, str(microwatts).encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise PowerError(f"{self.address}: {shown(microwatts)} can't be set: {error.strerror}") from error
        return self.cap()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def devices(sysfs: Path) -> list[tuple[Path, str]]:
    """Return folder and model of the family's cards on the bus, by address: masks number them in this order.

    The numbering of masks.

    A card of another model that another driver holds (vfio-pci) is given away, and Level Zero does not count it.
    """
    found = []
    # A longer domain is a higher one.
    for device in sorted((sysfs / "bus/pci/devices").glob("*"), key=lambda path: (len(path.name), path.name)):
        model = MODELS.get(_text(device / "device").lower()) if _text(device / "vendor").lower() == VENDOR else None
        driver = (device / "driver").resolve().name if (device / "driver").exists() else DRIVER
        if model == B70 or (model and driver == DRIVER):
            found.append((device, model))
    return found


def cards(sysfs: Path) -> list[CappedCard]:
    """Return the family's cards in the order of their addresses, in which masks count them."""
    found = []
    for device, model in devices(sysfs):
        folders = [path for path in sorted(device.glob("hwmon/hwmon*")) if _text(path / "name") == DRIVER]
        found.append(CappedCard(device.name, folders[0] if folders else None, model))
    return found


def chosen(known: Sequence[CappedCard], numbers: Sequence[int] | None) -> list[CappedCard]:
    """Return the B70 cards with these numbers, all of them for None; raise PowerError for a number of anything else."""
    ours = [card for card in known if card.model == B70]
    if not ours:
        others = "".join(f"; {card.address} is an {card.model}" for card in known)
        raise PowerError(f"this host shows no B70 (8086:e223), so there is no card to cap{others}")
    for number in numbers or ():
        if number >= len(known):
            raise PowerError(f"card {number} is not there: this host shows {len(known)}, counted from 0")
        if known[number] not in ours:
            there = ", ".join(f"{known.index(card)} at {card.address}" for card in ours)
            raise PowerError(
                f"card {number} ({known[number].address}) is an {known[number].model}, whose range of power is another "
                f"one; the B70 cards are {there}"
            )
    return ours if numbers is None else [known[number] for number in numbers]


@dataclass(frozen=True)
class CapRecord:
    """The cap that a card had before, the one that was set, and by whose unit; in microwatts."""

    unit: str
    before: int
    cap: int

    @classmethod
    def of(cls, file: Path) -> CapRecord | None:
        """Return the content of the file; None if it can't be read."""
        try:
            data: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return cls(str(data["unit"]), int(data["before"]), int(data["cap"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def put(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}")
        temporary.write_text(json.dumps(self.__dict__) + "\n", encoding="utf-8")
        os.replace(temporary, file)


def _alike(one: int, other: int) -> bool:
    return abs(one - other) < TOLERANCE_UW


def set_caps(sysfs: Path, keep: Path, unit: str, watts: int, numbers: Sequence[int] | None) -> list[str]:
    """Cap the cards and return what was done.

    All cards are read before the first is changed, and the old cap is written down before a card gets another. Raise
    PowerError where it fails; the caps set so far are left to `restore`.
    """
    wanted = watts * W
    todo = []
    for card in chosen(cards(sysfs), numbers):
        now = card.cap()
        check(card.address, watts, card.read(RATED))
        kept = CapRecord.of(keep / card.address)
        # A cap of ours that nobody restored is not what the card had before.
        todo.append((card, kept.before if kept is not None and _alike(kept.cap, now) else now))
    said = []
    for card, before in todo:
        CapRecord(unit, before, wanted).put(keep / card.address)
        got = card.write(wanted)
        if not _alike(got, wanted):
            # It is this that `restore` finds.
            CapRecord(unit, before, got).put(keep / card.address)
            raise PowerError(f"{card.address}: shows {shown(got)} after {watts} W was set; it takes up to {shown(got)}")
        said.append(f"{card.address}: capped at {shown(got)}, from {shown(before)}")
    return said


def restore(sysfs: Path, keep: Path, unit: str) -> list[str]:
    """Restore the previous caps of the cards that the unit has capped; return what was done.

    A cap that somebody else has set meanwhile stays. Raise PowerError after all cards were tried.
    """
    known = {card.address: card for card in cards(sysfs)}
    said, wrong = [], []
    for file in sorted(keep.glob("[!.]*")):
        kept = CapRecord.of(file)
        if kept is None or kept.unit != unit:
            continue
        card = known.get(file.name)
        try:
            if card is None or card.folder is None:
                said.append(f"{file.name}: is gone, and its cap with it")
            elif not _alike(card.cap(), kept.cap):
                said.append(f"{file.name}: its cap was set to {shown(card.cap())} meanwhile, and stays")
            else:
                got = card.write(kept.before)
                if not _alike(got, kept.before):
                    raise PowerError(f"{file.name}: shows {shown(got)} after {shown(kept.before)} was set")
                said.append(f"{file.name}: its cap is {shown(got)} again")
        except PowerError as error:
            wrong.append(str(error))
            continue
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    if wrong:
        raise PowerError("; ".join([*said, *wrong]))
    return said


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="power", description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    words = whole.add_subparsers(dest="word", required=True)
    for word in ("set", "restore"):
        form = words.add_parser(word, allow_abbrev=False)
        form.add_argument("--unit", required=True)
        form.add_argument("--keep", type=Path, required=True, help="the folder for what cards had before")
        if word == "set":
            form.add_argument("--watts", type=int, required=True)
            form.add_argument("--cards", help="their numbers, with commas between them; all of them without it")
    return whole


def main(argv: Sequence[str], sysfs: Path = SYSFS) -> int:
    """Run the command line and return the exit status; actions and errors go to the unit's log."""
    asked = _parser().parse_args(argv)
    try:
        if asked.word == "restore":
            said = restore(sysfs, asked.keep, asked.unit)
        else:
            numbers = None if asked.cards is None else [int(word) for word in asked.cards.split(",")]
            said = set_caps(sysfs, asked.keep, asked.unit, asked.watts, numbers)
    except (PowerError, OSError) as error:
        sys.stderr.write(f"power cap: {error}\n")
        return 1
    sys.stderr.write("".join(f"power cap: {line}\n" for line in said))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
