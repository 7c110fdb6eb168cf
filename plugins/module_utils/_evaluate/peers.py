# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the cards of this host open each other's memory, which the guard of a switch reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._evidence import host_class
from .._slot.caches import DPKG_STATUS, runtime
from .._slot.model.peer_access import GROUP, PeerAccessScope, Proof, proof_text
from .host import save
from .plan import Bench

Rows = list[dict[str, Any]]


def place(proc: Path = Path("/proc"), sysfs: Path = Path("/sys"), dpkg_status: Path = DPKG_STATUS) -> PeerAccessScope:
    """Return the cards, driver and firmware of this host."""
    seen = host_class.look(proc, sysfs)
    status = dpkg_status.read_text(encoding="utf-8", errors="replace") if dpkg_status.exists() else None
    return PeerAccessScope({card["address"]: card["guc"] for card in seen["cards"]}, seen["kernel"], runtime(status))


def prove(
    bench: Bench,
    measure: Callable[[], Rows],
    faults: Callable[[], Sequence[str]],
    file: Path,
    here: PeerAccessScope,
    at: str,
) -> Rows:
    """Return the rows of the benchmark, and save its verdict, which is against it until it has ended well.

    :param faults: what the kernel reported of the cards meanwhile.
    """
    verdict = Proof(here, "the benchmark did not end", at)
    save(file, proof_text(verdict))
    rows = measure()
    rows += [_row(bench, fault) for fault in list(faults())[:1]]
    failed = [row for row in rows if row["level"] == "FAIL"]
    measured = [row for row in rows if row["value"] is not None]
    why = str(failed[0]["note"]) if failed else "" if measured else "nothing was measured"
    save(file, proof_text(replace(verdict, fault=why)))
    return rows


def _row(bench: Bench, fault: str) -> dict[str, Any]:
    return {"id": f"{GROUP}.kernel", "value": None, "unit": "", "tool": bench.tool, "level": "FAIL", "note": fault}
