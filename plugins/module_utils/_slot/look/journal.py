# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at the journal, and at what stands in the slot by it. It needs little else: it is sent to hosts often."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..model.journal import JOURNALS_KEPT, JournalMemory, begins_with_memory, remember
from ..words.effects import Effects, Files
from ..words.types import Layout, UnitState

JOURNAL_TAIL_BYTES = 4 * 2**20  # several times the size at which the next file is begun


def read_memory(fx: Effects, layout: Layout) -> JournalMemory:
    """Return what the journal remembers: from its last lines and, unless it begins with a memory, from older files."""
    return remembered(fx.files, layout)


def remembered(files: Files, layout: Layout) -> JournalMemory:
    """Return the same as `read_memory`, from files alone.

    A file that can't be read is skipped: a run that has to write to it fails then.
    """
    text = ""
    for path in (layout.journal_file, *(layout.older_journal(number) for number in range(1, JOURNALS_KEPT + 1))):
        older = None
        with suppress(OSError):
            older = files.tail(path, JOURNAL_TAIL_BYTES)
        if older:
            text = f"{older}\n{text}".lstrip("\n")
            if begins_with_memory(text):
                break
    return _memory_in(text)


# The controller asks at each look, and between two of its steps nothing is written.
@lru_cache(maxsize=4)
def _memory_in(text: str) -> JournalMemory:
    # Not `splitlines`: the words of an engine may contain other line ends.
    return remember(text.split("\n"))


def with_sleepers(files: Files, layout: Layout, units: Sequence[UnitState]) -> tuple[UnitState, ...]:
    """Return the slot's units, with the word of its files on which of them sleep. These count even where the slot lets
    none sleep any more."""
    asleep = files.names(layout.standby_dir)
    return tuple(replace(unit, asleep=unit.name in asleep) for unit in units)


def stands(fx: Effects, layout: Layout, units: Sequence[UnitState]) -> str | None:
    """Return the profile of the unit that runs, else the one that was the last to be verified."""
    running = next((unit for unit in units if unit.running), None)
    if running is not None:
        return layout.profile_of(running.name)
    verified = read_memory(fx, layout).verified
    return None if verified is None else verified.profile


def occupied(fx: Effects, layout: Layout) -> dict[str, Any]:
    """Return the profile that stands in the slot and all that run or start at boot, each with its stack."""
    units = with_sleepers(fx.files, layout, fx.units.survey(layout.unit_prefix, ()))
    name = stands(fx, layout, units)
    used = [layout.profile_of(unit.name) for unit in units if unit.at_work or unit.enabled]
    known = dict.fromkeys([*([name] if name else []), *used])
    return {"profile": name, "profiles": [stack_of(fx, layout, item) for item in known]}


def stack_of(fx: Effects, layout: Layout, name: str) -> dict[str, Any]:
    """Return a profile's name with the name and id of its stack, None for what its file does not tell."""
    try:
        stack = json.loads(fx.files.read(layout.profile_json(name)) or "{}").get("stack") or {}
    except (ValueError, AttributeError):
        stack = {}
    return {"name": name, "stack": stack.get("name"), "stack_id": stack.get("id")}
