# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that the tests make, and what they ask of the slot engine there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Mode
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import World, request


def host(profiles: Iterable[str], load_s: float | None = None, **changes: Any) -> World:
    """A host with these profiles. load_s: how long their engines load; changes: as for `World.render`."""
    world = World()
    for name in profiles:
        world.render(name, **changes)
        if load_s is not None:
            world.unit(name).load_s = load_s
    return world


def switch(world: World, profile: str | None = "a", **changes: Any) -> dict[str, Any]:
    """The result of a switch; changes: fields of the request."""
    return api.switch(world.effects(), LAYOUT, request(profile, **changes))


def check(world: World, profile: str | None = "a", **changes: Any) -> dict[str, Any]:
    """The same, predicted."""
    return api.check(world.effects(), LAYOUT, request(profile, **changes))


def recover(world: World, mode: Mode = Mode.BOOT) -> dict[str, Any]:
    """What the slot does by itself."""
    return api.switch(world.effects(), LAYOUT, request("ignored", mode=mode, switch_id="settle"))


def names(result: dict[str, Any], direction: str = "forward") -> list[str]:
    """The phases that were run in this direction."""
    return [phase["name"] for phase in result["phases"] if phase["direction"] == direction]


def b70ctl(world: World, *words: str) -> tuple[int, str]:
    """(exit code, what was printed)."""
    printed: list[str] = []
    code = command.execute(command.parser().parse_args(words), world.effects(), LAYOUT, printed.append)
    return code, "".join(printed)
