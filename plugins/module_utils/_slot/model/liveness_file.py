# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of the slot's controller, which the frontdoor and b70ctl read. Clients may see its text.

The contract is `roles/slot/files/schema/liveness.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..words.decode import decode_written, plain
from ..words.effects import Effects, text_of
from ..words.moment import Moment
from ..words.types import Layout
from .standby import Sleeper
from .state_file import stamp

SCHEMA = 1
ACTIONS = ("report", "close", "restart", "rebind", "reboot", "quarantine")
FRESH_S = 120.0  # one that is older was left by a controller that does not run any more


@dataclass(frozen=True)
class Row:
    """One engine. index: of several; None of the only one. since: when its verdict was first this one."""

    index: int | None
    unit: str
    invocation_id: str
    verdict: str
    since: str
    flat_s: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Verification:
    """The last canary that ran while the engine was idle. passed None: it did not run to its end."""

    at: str
    passed: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Action:
    """The last action of the watchdog, one of ACTIONS; and what came of it."""

    at: str
    what: str
    reason: str
    outcome: str = ""


@dataclass(frozen=True)
class CardReading:
    """One card of the slot. used, total: bytes of its memory, None where the driver does not tell. ecc: derived from
    the total. faults: lines of the kernel's log since the watchdog started."""

    pci: str
    used: int | None = None
    total: int | None = None
    ecc: bool | None = None
    faults: int = 0


@dataclass(frozen=True)
class Next:
    """The next step of the controller. wanted: what is to be served, and why. do, why: its step. at: when it is due,
    None if only an event leads to another one. book: the tries that failed, a `controller.Book`. looked: when the look
    began that led to it, in monotonic seconds."""

    wanted: str
    do: str
    why: str
    at: str | None
    book: Any
    looked: float = 0.0


@dataclass(frozen=True)
class Told:
    """standby: the engines that sleep, and run."""

    at: str
    slot: str
    profile: str | None
    policy: str | None
    engines: tuple[Row, ...] = ()
    verification: Verification | None = None
    action: Action | None = None
    counts: Mapping[str, int] = field(default_factory=dict)  # of ACTIONS, since the watchdog started
    cards: tuple[CardReading, ...] = ()
    next: Next | None = None
    standby: tuple[Sleeper, ...] = ()


def next_of(told: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the controller does next, and when (ISO 8601, UTC; None if only an event leads to another step).

    told: as `read_liveness` gives it.
    """
    if told is None or not told["fresh"] or not told.get("next"):
        since = "" if told is None else f" since {told['at']}"
        return {"do": "", "why": f"the slot's controller does not run{since}", "at": None, "tries": 0}
    said = told["next"]
    tries = max((one["count"] for one in said["book"]["tries"].values()), default=0)
    return {"do": said["do"], "why": said["why"], "at": said["at"], "tries": tries}


def read_liveness(fx: Effects, layout: Layout) -> Mapping[str, Any] | None:
    """Return the last report of the slot's controller, with `fresh`: whether it still runs. None if none ever ran."""
    told = decode_written(Told, text_of(fx, layout.liveness_file), SCHEMA)
    if told is None:
        return None
    return {**plain(told), "fresh": Moment(told.at).age_s(Moment(stamp(fx.clock.now()))) <= FRESH_S}
