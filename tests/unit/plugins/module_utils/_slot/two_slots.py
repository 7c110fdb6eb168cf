# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in memory with the slots main and aux: two fake hosts with the same clock, files, cards and frontdoor."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder, Layout, Reply, UnitState
from unit.plugins.module_utils._slot.fake_host import (
    LAYOUT,
    FakeHost,
    FakeHttp,
    FakeLocks,
    FakeProcesses,
    FakeUnits,
)

AUX = Layout(slot="aux", config_dir=PurePosixPath("/etc/b70-vllm-slot-aux"))
AUX_PORT = 18180


def _of_main(name: str) -> Any:
    return property(lambda self: getattr(self.main, name), lambda self, value: setattr(self.main, name, value))


class _Aux(FakeHost):
    """What both slots share is main's."""

    mono, texts, starts, cards = map(_of_main, ("mono", "texts", "starts", "cards"))
    effects_done, kill_at, told_at, told = map(_of_main, ("effects_done", "kill_at", "told_at", "told"))
    at_effect = _of_main("at_effect")
    boots, going_down = map(_of_main, ("boots", "going_down"))

    def __init__(self, main: FakeHost) -> None:
        self.main = main
        super().__init__(AUX, AUX_PORT)


class _Main(FakeHost):
    """Time and invariants are those of both."""

    aux: FakeHost | None = None

    def tick(self) -> None:
        super().tick()
        if self.aux is not None:
            self.aux.tick()

    def check(self) -> None:
        super().check()
        if self.aux is not None:
            self.aux.check()


class TwoSlots:
    """main has the cards 0 and 1, aux has card 1."""

    effects_done, at_effect = map(_of_main, ("effects_done", "at_effect"))

    def __init__(self) -> None:
        self.main = _Main()
        self.aux = _Aux(self.main)
        self.main.aux = self.aux
        self.main.cards = 2
        self.main.slot_settings = {"cards": [0, 1], "others": {"aux": str(AUX.config_dir)}}
        self.aux.slot_settings = {"cards": [1], "others": {"main": str(LAYOUT.config_dir)}}

    @property
    def slots(self) -> tuple[FakeHost, FakeHost]:
        return self.main, self.aux

    def served(self) -> tuple[str | None, str | None]:
        """What clients are served by main and by aux."""
        return tuple(slot.state.profile_name if slot.open else None for slot in self.slots)  # type: ignore[return-value]

    def reboot(self) -> None:
        self.main.reboot()
        self.aux.reboot()
        self.main.boots -= 1

    def left(self) -> tuple[dict[str, Any], ...]:
        """What a kill -9 of a switch leaves, to compare two moments."""
        return tuple(slot.left() for slot in self.slots)

    def as_killed(self) -> Self:
        """A copy of this host as a kill -9 of its switch leaves it now."""
        copied = copy.deepcopy(self)
        copied.at_effect = None
        for slot in copied.slots:
            slot.lock_holder = None
            slot.card_locks = {}
        return copied

    def assert_invariants(self) -> None:
        for slot in self.slots:
            slot.assert_invariants()
        self.assert_cards()

    def assert_cards(self) -> None:
        held = [holder.what for holder in _Processes(self).holders()]
        if len({*held}) != len(held):
            raise AssertionError(f"a card has two engines: {held}")

    def effects(self) -> Effects:
        return replace(
            self.main.effects(), units=_Units(self), http=_Http(self), locks=_Locks(self), processes=_Processes(self)
        )


class _Units(FakeUnits):
    """The units of both slots: what is about one of them is asked of its slot, and all else of main."""

    def __init__(self, host: TwoSlots) -> None:
        super().__init__(host.main)
        self._slots = FakeUnits(host.main), FakeUnits(host.aux)

    def _of(self, name: str) -> FakeUnits:
        return self._slots["-aux" in name]

    def show(self, names: Sequence[str]) -> tuple[UnitState, ...]:
        return tuple(self._of(name).show([name])[0] for name in names)

    def reload(self) -> None:
        for units in self._slots:
            units.reload()

    def log(self, unit: UnitState, lines: int) -> tuple[str, ...]:
        return self._of(unit.name).log(unit, lines)


def _by_slot(word: str) -> Callable[..., Any]:
    return lambda self, name, *more: getattr(self._of(name), word)(name, *more)


for _word in ("survey", "running", "start", "stop", "kill", "forget_failure", "enable", "disable"):
    setattr(_Units, _word, _by_slot(_word))


class _Http:
    def __init__(self, host: TwoSlots) -> None:
        self._main, self._aux = FakeHttp(host.main), FakeHttp(host.aux)

    def _of(self, url: str) -> FakeHttp:
        return self._aux if (urlsplit(url).port or 0) >= AUX_PORT else self._main

    def get(self, url: str, timeout_s: float) -> Reply:
        if not url.endswith("/status"):
            return self._of(url).get(url, timeout_s)
        told = [json.loads(http.get(url, timeout_s).text)["slots"] for http in (self._main, self._aux)]
        return Reply(200, json.dumps({"ok": True, "slots": told[0] | told[1]}))

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        return [self.get(url, timeout_s) for url in urls]

    def post(self, url: str, *more: Any) -> Reply:
        return self._of(url).post(url, *more)

    def upload(self, url: str, *more: Any) -> Reply:
        return self._of(url).upload(url, *more)

    def post_together(self, url: str, *more: Any) -> Any:
        return self._of(url).post_together(url, *more)


class _Locks:
    def __init__(self, host: TwoSlots) -> None:
        self._locks = {slot.layout.lock_file: FakeLocks(slot) for slot in host.slots}

    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> AbstractContextManager[None]:
        return self._locks.get(path, self._locks[LAYOUT.lock_file]).hold(path, note, timeout_s)


class _Processes(FakeProcesses):
    """An engine holds the cards of its mask."""

    def __init__(self, host: TwoSlots) -> None:
        super().__init__(host.main)
        self._both, self._aux = host, FakeProcesses(host.aux)

    def holders(self) -> Iterator[Holder]:
        nodes = self.render_nodes()
        for slot in self._both.slots:
            for unit in slot.units.values():
                mask = unit.environ.get("ZE_AFFINITY_MASK", "") if unit.up else ""
                for number in filter(None, mask.split(",")):
                    yield Holder(unit.pid, "vllm", "b70", unit.name, nodes[int(number)])

    def device_holders(self, paths: Sequence[str]) -> tuple[Holder, ...]:
        return tuple(holder for holder in self.holders() if holder.what in paths)

    def port_holders(self, port: int) -> tuple[Holder, ...]:
        return self._aux.port_holders(port) if port >= AUX_PORT else super().port_holders(port)

    def cmdline(self, pid: int) -> tuple[str, ...]:
        return super().cmdline(pid) or self._aux.cmdline(pid)

    def environ(self, pid: int) -> Any:
        return super().environ(pid) or self._aux.environ(pid)
