# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in memory with its slot's controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons.daemon import Controller
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import LOOK_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault
from unit.plugins.module_utils._slot.fake_host import FakeHost


class Controlled:
    """Let a controller look at a host for as long as a test says."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.said: list[str] = []
        self.started()

    def started(self) -> None:
        """Start the controller, or another one after it was killed."""
        self.controller = Controller(self.host.effects(), self.host.layout, self.said.append)

    def look(self) -> None:
        try:
            self.controller.look()
        except (SlotFault, OSError) as error:
            self.said.append(str(error))
        due = self.controller.step.at
        self.host.mono += LOOK_S if due is None else min(LOOK_S, max(0.1, due - self.host.mono))

    def run(self, seconds: float) -> None:
        end = self.host.mono + seconds
        while self.host.mono < end:
            self.look()

    def until(self, done: Callable[[], bool], limit_s: float = 1000.0) -> float:
        """Return how many seconds it took."""
        begun = self.host.mono
        while not done():
            if self.host.mono - begun > limit_s:
                raise AssertionError(f"it did not happen within {limit_s:g} s: {self.said}")
            self.look()
        return self.host.mono - begun

    def reboot(self) -> None:
        self.host.mono += 60
        self.host.reboot()
        self.started()

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.host.texts[self.host.layout.liveness_file][0])["next"]
        return found
