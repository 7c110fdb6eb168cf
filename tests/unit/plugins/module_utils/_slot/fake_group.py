# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two simulated hosts that serve one engine: their services look at each other once a second while time passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot import nodes
from ansible_collections.arcpro.b70.plugins.module_utils._slot.node_link import read_part
from ansible_collections.arcpro.b70.plugins.module_utils._slot.node_service import NodeService
from ansible_collections.arcpro.b70.plugins.module_utils._slot.nodes import Report
from ansible_collections.arcpro.b70.plugins.module_utils._slot.profile import NODES_LIMIT_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.slot_file import read_slot_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeUnit

BIG = LAYOUT.unit("big")
HOSTS = [{"name": "alpha", "address": "10.0.0.1"}, {"name": "beta", "address": "10.0.0.2"}]


class GroupHost(FakeHost):
    """A node of the group. meanwhile: called as time passes."""

    def __init__(self, rank: int, **of_part: Any) -> None:
        super().__init__()
        self.rank = rank
        self.meanwhile: Callable[[], None] = lambda: None
        self.boot_only |= {LAYOUT.node_file, LAYOUT.part_file, LAYOUT.progress_file}
        for name in ("a", "b"):
            self.render(name)
        self.render("big", node={"rank": rank, "count": 2}, **of_part)
        slot = json.loads(self.texts[LAYOUT.slot_file][0])
        self.put(LAYOUT.slot_file, json.dumps({**slot, "nodes": {"rank": rank, "port": 18200, "hosts": HOSTS}}))

    def launch(self, unit: FakeUnit) -> None:
        super().launch(unit)
        if unit.name == BIG and self.rank == 0:
            # ExecStartPre=, which waits for the other node.
            unit.active, unit.sub, unit.pid, unit.turn_at = "activating", "start-pre", 0, float("inf")

    def tick(self) -> None:
        super().tick()
        self.meanwhile()

    def check(self) -> None:
        """A part is not served by its own host."""
        super().check()
        if self.rank and self.open and BIG in self.running:
            raise AssertionError("the follower is open beside its part")


class FakeGroup:
    """Two hosts, the first leads. parted: no node reaches another."""

    def __init__(self, **of_part: Any) -> None:
        self.alpha, self.beta = GroupHost(0), GroupHost(1, **of_part)
        self.said: list[str] = []
        self.reports: dict[str, Report | None] = {"alpha": None, "beta": None}
        self.beta_is_off = self.parted = False
        self._looked_at, self._busy = -1.0, False
        self._awaits = ("", 0.0)  # the process that waits for the other node, and since when
        self.start_services()
        self.alpha.meanwhile = self.pass_time
        self.pass_time()

    def start_services(self) -> None:
        """Both services begin anew, with what is on disk."""
        self.services = {
            name: NodeService(host.effects(), LAYOUT, self.said.append)
            for name, host in (("alpha", self.alpha), ("beta", self.beta))
        }

    def pass_time(self) -> None:
        """What both nodes do by themselves up to the leader's time."""
        if self._busy or self.alpha.mono < self._looked_at + 1:
            return
        self._busy, self._looked_at = True, self.alpha.mono
        try:
            for name, host, other in (("beta", self.beta, self.alpha), ("alpha", self.alpha, self.beta)):
                if name == "beta" and self.beta_is_off:
                    continue
                host.mono = max(host.mono, self.alpha.mono)
                host.tick()
                self.reports[name] = self.services[name].look()
                self._connect(name, other)
            self._await()
        finally:
            self._busy = False

    def _connect(self, name: str, other: FakeHost) -> None:
        report = self.reports[name]
        silent = report is None or self.parted or (name == "beta" and self.beta_is_off)
        address = HOSTS[name == "beta"]["address"]
        reply = Reply(0, error="timeout") if silent or report is None else Reply(200, report.to_json())
        other.nodes[f"http://{address}:18200/node"] = reply

    def cut(self, *, parted: bool = False, beta_is_off: bool = False) -> None:
        """From now on no node reaches another, or the follower is off; or neither, and all is well again."""
        self.parted, self.beta_is_off = parted, beta_is_off
        self._connect("beta", self.alpha)
        self._connect("alpha", self.beta)

    def _await(self) -> None:
        """What the unit's ExecStartPre= does."""
        unit = self.alpha.units[BIG]
        if unit.active != "activating" or unit.sub != "start-pre":
            self._awaits = ("", 0.0)
            return
        if self._awaits[0] != unit.invocation:
            self._awaits = (unit.invocation, self.alpha.mono)
        group, report = read_slot_file(self.alpha.effects(), LAYOUT).group, self.reports["beta"]
        assert group is not None
        wish = nodes.Wish("big", "sha256:big-1", 2, unit.invocation)
        heard = {} if report is None or self.parted or self.beta_is_off else {"beta": report}
        try:
            if not nodes.awaited(group, wish, heard):
                unit.turn_at = self.alpha.mono
            elif self.alpha.mono >= self._awaits[1] + NODES_LIMIT_S:
                raise SlotFault("its limit")
        except SlotFault:
            self.alpha._loop(unit)

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        end = self.alpha.mono + seconds
        while self.alpha.mono < end:
            self.alpha.mono += 0.5
            self.alpha.tick()

    def assert_invariants(self) -> None:
        """What is open is verified, and every part of it runs for this very process."""
        self.alpha.assert_invariants()
        state = self.alpha.state
        if state is not None and state.open and state.profile_name == "big":
            part = read_part(self.beta.effects(), LAYOUT)
            assert part is not None
            assert (part.epoch, part.state) == (self.alpha.units[BIG].invocation, nodes.RUNS)
            assert self.beta.running == [BIG]
