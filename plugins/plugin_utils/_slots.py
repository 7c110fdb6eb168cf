# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several slots on a host: which cards and ports each has, from the variable b70_slots. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ._catalogue.problems import did_you_mean
from ._nodes import port_of

_KEYS = ("cards", "port", "profile")


@dataclass(frozen=True)
class SlotPlace:
    """The ports of a slot's engines. port: the first one. ports: how many there are before those of the next slot.

    cards: by their numbers on the host; None if the slot has all of them.
    """

    port: int
    ports: int
    cards: tuple[int, ...] | None = None
    profile: str = ""


def slot_places(slots: Mapping[str, Any], default_port: int, slot: str = "main") -> dict[str, SlotPlace]:
    """Return the place of each slot by its name.

    :param slots: the variable b70_slots: ``{name: {cards: [number, ...], port: N, profile: NAME}}``. If it is empty,
        there is only `slot`, which has all cards.
    :param default_port: of the slot main, which need not name one.
    :raises ValueError: naming the slot and the key that is wrong.
    """
    if not slots:
        return {slot: SlotPlace(default_port, 65536 - default_port)}
    if not isinstance(slots, Mapping):
        raise ValueError(f"b70_slots is a mapping of names to slots, not {slots!r}")
    for needed in ("main", slot):
        if needed not in slots:
            raise ValueError(f"b70_slots has no slot {needed}{did_you_mean(needed, slots)}")
    ports: dict[str, int] = {}
    cards: dict[str, tuple[int, ...]] = {}
    for name, given in slots.items():
        if not re.fullmatch(r"[a-z0-9]+", str(name)):
            raise ValueError(f"b70_slots: a slot name is lower-case letters and digits, not {name!r}")
        where = f"b70_slots.{name}"
        if not isinstance(given, Mapping):
            raise ValueError(f"{where} is a mapping of {', '.join(_KEYS)}, not {given!r}")
        for key in given:
            if key not in _KEYS:
                raise ValueError(f'{where}: unknown key "{key}"{did_you_mean(str(key), _KEYS)}')
        port = given.get("port", default_port if name == "main" else None)
        ports[name] = port_of(f"{where}.port is the first port of its engines", port, 65535)
        cards[name] = _cards(where, given.get("cards"))
        if not isinstance(given.get("profile", ""), str):
            raise ValueError(f"{where}.profile is the name of a profile, not {given['profile']!r}")
    for one, other in itertools.combinations(slots, 2):
        if ports[one] == ports[other]:
            raise ValueError(f"b70_slots: port {ports[one]} belongs to {one} and to {other}; a port has one slot")
    edges = [*sorted(ports.values()), 65536]
    return {
        name: SlotPlace(port, edges[edges.index(port) + 1] - port, cards[name], str(slots[name].get("profile") or ""))
        for name, port in ports.items()
    }


def other_config_dirs(config_dir: str, slot: str, slots: Collection[str]) -> dict[str, str]:
    """Return the configuration folder of each other slot by its name. config_dir: that of this slot."""
    main = config_dir if slot == "main" else config_dir.removesuffix(f"-{slot}")
    return {name: main if name == "main" else f"{main}-{name}" for name in slots if name != slot}


def _cards(where: str, value: Any) -> tuple[int, ...]:
    numbers = value if isinstance(value, (list, tuple)) else [None]
    right = all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
    if not right or len({*numbers}) != len(numbers):
        raise ValueError(f"{where}.cards is a list of different card numbers, such as [0, 1], or [], not {value!r}")
    return tuple(numbers)
