# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arc Pro B70 cards of a host, as everything that reads sysfs sees them.

A tree of files with the names and contents that the kernel's xe driver gives them. `cards_init.sh` lays it over the
host's /sys before its systemd starts, and makes the device files. No card answers behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from .common import LabError, remove_tree
from .layout import Host

INIT = Path(__file__).with_name("cards_init.sh")
INSIDE = "/run/b70-lab"
# Where the four cards of the lab are that the catalogue quotes; bus of the card, which has a switch of its own.
BUSES = (0x03, 0x83, 0xA3, 0xE3)
GUC = "70.54.0"
ROOTS = "/sys/devices"

_RESOURCE = (
    "0x00000000f6000000 0x00000000f6ffffff 0x0000000000140204\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000380000000000 0x00003807ffffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
)
# The endpoint tells of its inner link only; what the slot gives stands at the switch's port and the root port.
_INNER = {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "1"}
_SLOT = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}


def address(number: int) -> str:
    """The PCI address of card `number`, counted from 0 in the order of the addresses."""
    return f"0000:{BUSES[number]:02x}:00.0"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content.rstrip("\n") + "\n", encoding="ascii")


def _link(at: Path, to: str) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)


def _links(now: dict[str, str]) -> dict[str, str]:
    return now | {name.replace("current", "max"): value for name, value in now.items()}


def _bridge(device: str, now: dict[str, str]) -> dict[str, str]:
    return {
        "vendor": "0x8086",
        "device": device,
        "class": "0x060400",
        "revision": "0x01",
        "numa_node": "0",
        **{f"link/{name}": "0" for name in ("l1_aspm", "l1_1_aspm", "l1_2_aspm", "l1_1_pcipm", "l1_2_pcipm")},
        **_links(now),
    }


def _card(number: int, driver: str, device: str) -> dict[str, str]:
    bound = f"DRIVER={driver}\n" if driver else ""
    return {
        "vendor": "0x8086",
        "device": device,
        "class": "0x030000",
        "revision": "0x00",
        "modalias": f"pci:v00008086d0000{device[2:].upper()}sv00008086sd00001701bc03sc00i00",
        "uevent": f"{bound}PCI_CLASS=30000\nPCI_ID=8086:{device[2:].upper()}\nPCI_SLOT_NAME={address(number)}",
        "enable": "1" if driver else "0",
        "numa_node": "0",
        "resource": _RESOURCE,
        "power/control": "on",
        "power/runtime_status": "active",
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nTOTAL_ERR_COR 0",
        "aer_dev_nonfatal": "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 0",
        "aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
        **_links(_INNER),
    }


# What boards come with, and what the driver manages of 32 GiB with ECC off.
_HWMON = {"name": "xe", "power1_label": "card", "power1_cap": "275000000", "energy1_label": "card"}
_VRAM = "  use_type: 1\n  use_tt: 0\n  size: 34242297856\n  usage: 32079872\ndefault_page_size: 4KiB\n"


def _guc_info(version: str) -> str:
    return (
        "GuC firmware: xe/bmg_guc_70.bin\n\tstatus: RUNNING\n\twanted release version 70.54.0\n"
        f"\tfound release version {version}\n\tfound compatibility version 1.23.0\n\tuCode: 405504 bytes\n"
    )


def tree(
    root: Path,
    count: int,
    driver: str = "xe",
    guc: str = GUC,
    complex_name: str = "pci0000:00",
    others: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Make `root` anew as /sys of a host with `count` cards, as far as cards are concerned.

    `others` has the PCI device ids of cards that are no B70, by number. `driver` is what is bound to them (empty:
    nothing, so there are no device files either); `complex_name` is a PCI root that this machine has below
    /sys/devices.
    """
    if not 0 <= count <= len(BUSES):
        raise LabError(f"a host has room for {len(BUSES)} cards, not for {count}")
    remove_tree(root)
    pci = root / "bus/pci"
    for folder in (root / "class/drm", pci / "devices", pci / "drivers", root / "devices" / complex_name):
        folder.mkdir(parents=True)
    for number in range(count):
        way = ["0000:00:1b." + str(number), f"0000:{BUSES[number] - 2:02x}:00.0", f"0000:{BUSES[number] - 1:02x}:01.0"]
        at = root / "devices" / complex_name
        card = _card(number, driver, others.get(number, "0xe223"))
        kinds = (_bridge("0xa74d", _SLOT), _bridge("0xe2ff", _SLOT), _bridge("0xe2f0", _INNER), card)
        for name, files in zip([*way, address(number)], kinds, strict=True):
            at = at / name
            _write(at, files)
            _link(pci / "devices" / name, f"../../../{at.relative_to(root)}")
        if not driver:
            continue
        _link(at / "driver", f"{'../' * len(at.relative_to(root).parts)}bus/pci/drivers/{driver}")
        _link(pci / "drivers" / driver / address(number), f"../../../../{at.relative_to(root)}")
        for kind, minor in (("card", number), ("renderD", 128 + number)):
            node = at / "drm" / f"{kind}{minor}"
            _write(node, {"dev": f"226:{minor}", "uevent": f"MAJOR=226\nMINOR={minor}\nDEVNAME=dri/{kind}{minor}"})
            _link(node / "device", f"../../../{address(number)}")
            _link(root / "class/drm" / node.name, f"../../{node.relative_to(root)}")
        debug = root / "kernel/debug/dri"
        _write(debug / address(number) / "tile0", {"gt0/uc/guc_info": _guc_info(guc), "vram_mm": _VRAM})
        _write(at / "hwmon" / f"hwmon{7 + number}", _HWMON)
        _link(debug / address(number) / "gt0", "tile0/gt0")
        for minor in (number, 128 + number):
            _link(debug / str(minor), address(number))


def plug(host: Host, count: int, driver: str = "xe") -> None:
    """Give a host that many cards from its next boot on; they stay when it is made anew."""
    roots = sorted(path.name for path in Path(ROOTS).glob("pci????:??"))
    if count and not roots:
        raise LabError("this machine shows no PCI bus, so its lab hosts can show no cards", "use another machine", 2)
    if count:
        tree(host.hardware, count, driver, complex_name=roots[0])
    else:
        remove_tree(host.hardware)


def nspawn_words(host: Host) -> list[str]:
    """What makes systemd-nspawn boot the host: with its cards, or just so."""
    if not host.hardware.is_dir():
        return ["--boot"]
    binds = [f"--bind-ro={host.hardware}:{INSIDE}/sys", f"--bind-ro={INIT}:{INSIDE}/init"]
    # As --boot does, but with our program in the place of systemd, which starts systemd.
    return [*binds, "--kill-signal=SIGRTMIN+3", "--", f"{INSIDE}/init"]
