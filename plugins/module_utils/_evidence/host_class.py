# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of the host that a figure comes from. Figures of two hosts are compared only if their classes are equal."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from .._doctor.parse import memory
from .._host import cards
from .._slot import power
from .._slot.model.recorded import MACHINE_ID, machine_of


def look(
    proc: Path = Path("/proc"),
    sysfs: Path = Path("/sys"),
    *,
    launch_latency_us: float | None = None,
    all_reduce_us: float | None = None,
) -> dict[str, Any]:
    """Return class, machine, cpu, cores, memory_gib, kernel, cards and the two figures; None if nobody measured them.

    `class` is one line. Hosts of the same class have the same cards with the same driver, firmware and power cap, the
    same kernel and processor, and the same memory, rounded.
    """
    cpuinfo = _read(proc / "cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*\S)", cpuinfo, re.MULTILINE)
    cpu = " ".join(model[1].split()) if model else "unknown processor"
    cores = len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE))
    gib = round(memory(_read(proc / "meminfo")).get("MemTotal", 0) / 1024, 1)
    caps = {card.address: card.read() for card in power.cards(sysfs)}
    found = [
        {
            **{key: card[key] for key in ("address", "driver", "guc")},
            "power_cap_w": None if (cap := caps.get(card["address"])) is None else cap / power.W,
        }
        for card in cards(sysfs)
    ]
    kernel = _read(proc / "sys/kernel/osrelease").strip()
    alike = Counter(tuple(words for key, words in card.items() if key != "address") for card in found)
    shown = [
        f"{count} x B70 ({driver}, GuC {guc or '?'}, {'?' if cap is None else f'{cap:g}'} W)"
        for (driver, guc, cap), count in sorted(alike.items(), key=str)
    ]
    return {
        "class": f"{' + '.join(shown) or 'no cards'}, {cpu}, {cores} threads, {gib:.0f} GiB, kernel {kernel or '?'}",
        "machine": machine(),
        "cpu": cpu,
        "cores": cores,
        "memory_gib": gib,
        "kernel": kernel,
        "cards": found,
        "launch_latency_us": launch_latency_us,
        "all_reduce_us": all_reduce_us,
    }


def machine() -> str:
    """Return the mark of this machine, by which records belong to it and not to one with a copy of its disk."""
    return machine_of(_read(Path(MACHINE_ID)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
