# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that the tests make, and what they ask of the slot engine there."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any, Protocol, Self, TypeVar

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, request
from unit.plugins.module_utils._slot.two_slots import TwoSlots


class Killable(Protocol):
    """A host of one slot or of two."""

    at_effect: Callable[[], None] | None

    def left(self) -> object: ...

    def as_killed(self) -> Self: ...


Host = TypeVar("Host", bound=Killable)


def made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function make its host once for each of its arguments, and hand out copies: a test that kills a switch
    at each of its moments needs hundreds of them."""
    known: dict[str, Any] = {}

    @functools.wraps(make)
    def copied(*arguments: Any) -> Any:
        key = repr(arguments)
        if key not in known:
            known[key] = make(*arguments)
        return copy.deepcopy(known[key])

    return copied


def killed_anywhere(
    fake_host: Host, act: Callable[[Host], object], first: int = 1, step: int = 1
) -> list[tuple[int, Host]]:
    """What `act` leaves of the host when it is killed at its moments `first`, `first + step` and so on: the number of
    each, and a host of its own. `act` runs once, to its end. A new moment is an effect at which the host is another
    than at the one before: more than half of all only look, and a kill there leaves the same."""
    found: list[tuple[int, Host]] = []
    before: object = None
    number = 0

    def keep() -> None:
        nonlocal before, number
        now = fake_host.left()
        if now == before:
            return
        before, number = now, number + 1
        if number >= first and (number - first) % step == 0:
            found.append((number, fake_host.as_killed()))

    fake_host.at_effect = keep
    act(fake_host)
    fake_host.at_effect = None
    assert found, "there is no such moment"
    return found


def noting(fake_host: FakeHost, note: Callable[[Any], object], file: PurePosixPath = LAYOUT.state_file) -> Effects:
    """Effects that hand `note` each content of the file, just when it is written."""
    effects = fake_host.effects()
    write = effects.files.write

    def written(path: PurePosixPath, text: str) -> None:
        write(path, text)
        if path == file:
            note(json.loads(text))

    # In the place of the host's own write alone, so that all else of its files stays as it is, its faults too.
    effects.files.write = written  # type: ignore[method-assign]
    return effects


def host(profiles: Iterable[str], load_s: float | None = None, **changes: Any) -> FakeHost:
    """A host with these profiles. load_s: how long their engines load; changes: as for `FakeHost.render`."""
    fake_host = FakeHost()
    for name in profiles:
        fake_host.render(name, **changes)
        if load_s is not None:
            for unit in fake_host.units.values():
                unit.load_s = load_s
    return fake_host


def switch(fake_host: FakeHost, profile: str | None = "a", **changes: Any) -> dict[str, Any]:
    """The result of a switch; changes: fields of the request."""
    return api.switch(fake_host.effects(), LAYOUT, request(profile, **changes))


def check(fake_host: FakeHost, profile: str | None = "a", **changes: Any) -> dict[str, Any]:
    """The same, predicted."""
    return api.check(fake_host.effects(), LAYOUT, request(profile, **changes))


def recover(fake_host: FakeHost, mode: Mode = Mode.BOOT) -> dict[str, Any]:
    """What the slot does by itself."""
    return api.switch(fake_host.effects(), LAYOUT, request("ignored", mode=mode, switch_id="settle"))


def names(result: dict[str, Any], direction: str = "forward") -> list[str]:
    """The phases that were run in this direction."""
    return [phase["name"] for phase in result["phases"] if phase["direction"] == direction]


def b70ctl(fake_host: FakeHost | TwoSlots, *words: str) -> tuple[int, str]:
    """(exit code, what was printed)."""
    printed: list[str] = []
    code = command.execute(command.parser().parse_args(words), fake_host.effects(), LAYOUT, printed.append)
    return code, "".join(printed)
