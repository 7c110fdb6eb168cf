# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GuC firmware of a card, in the words of the kernel and its debug files. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_V = r"\(?([1-9]\d*(?:\.\d+){1,3})\b\)?"
# The words of the kernel, its debug files and tools for the firmware that was found, and that was wanted.
_GUC_FOUND = re.compile(
    rf"\bfound (?:release version )?{_V}|but only {_V} was found|unexpected version: {_V}|(?<!wanted release )"
    rf"(?<!compatibility )\bversion:? {_V}"
)
_GUC_WANTED = re.compile(rf"\bwanted:? (?:release version )?{_V}|{_V} is recommended|unexpected version: \S+ != {_V}")


def guc_of(text: str) -> tuple[str, str]:
    """Return the found and wanted GuC firmware in a debug file or in lines about one card; empty where they lack it.

    xe writes `found release version 70.65.0`, i915 `version: wanted 70.5.1, found 70.5.1`.
    """
    found, wanted = (
        ["", *(group for match in pattern.finditer(text) for group in match.groups() if group)][-1]
        for pattern in (_GUC_FOUND, _GUC_WANTED)
    )
    return found, wanted


def guc_version(read: Callable[[str], str | None], names: Iterable[str]) -> tuple[str, str]:
    """Return the found and wanted GuC firmware of one card, from the kernel's debug files; empty where they lack it.

    `names` are the card's address and nodes; kernels name a card's folder by its address or by a node's number. `read`
    takes a path below the folder of all cards, /sys/kernel/debug/dri.
    """
    for name in names:
        folder = re.sub(r"^(card|renderD)", "", name)
        for place in ("gt0", "tile0/gt0"):
            found, wanted = guc_of(read(f"{folder}/{place}/uc/guc_info") or "")
            if found:
                return found, wanted
    return "", ""
