# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts that serve one engine: their services look at each other once a second while time passes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import token_prompts
from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons.node_service import NodeService
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.node_link import read_part, waits_for
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import node_key, nodes
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.nodes import NodeReport, Wish
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import NODES_LIMIT_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.slot_file import read_slot_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeHttp, FakeLocks, FakeProcesses, FakeUnit

BIG = LAYOUT.unit("big")
WARM_UP = {"shapes": [{"prompt_tokens": 32, "output_tokens": 4, "concurrency": 1}], "limit_s": 60}
KEY = "0123456789abcdef" * 4
NAMES = ("alpha", "beta", "gamma")
# Longer than any grace of the services, and how far a jump goes at most: services try again without being asked.
STILL_S, JUMP_S = 32.0, 20.0
HOSTS = [{"name": name, "address": f"10.0.0.{number}"} for number, name in enumerate(NAMES, 1)]


class _NotedLocks(FakeLocks):
    """The note of the holder is in the file, as on a host."""

    @contextmanager
    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> Iterator[None]:
        with super().hold(path, note, timeout_s):
            self._host.put(path, f"{note}\n")
            try:
                yield
            finally:
                self._host.texts.pop(path, None)


class _Http(FakeHttp):
    """An engine that takes the requests of a warm-up too."""

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        if url.endswith(token_prompts.TOKENIZE):
            return Reply(200, json.dumps({"tokens": list(range(64))}))
        if "prompt" not in body:
            return super().post(url, body, timeout_s)
        self._host.step()
        self._host.mono += 0.5
        return Reply(0, error="refused") if self._ready(url) is None else Reply(200, "{}")


class _Processes(FakeProcesses):
    """This process lives as long as it holds the lock: who was killed is gone."""

    def cmdline(self, pid: int) -> tuple[str, ...]:
        if pid == os.getpid():
            return ("b70ctl",) if self._host.lock_holder is not None else ()
        return super().cmdline(pid)


class GroupHost(FakeHost):
    """A node of the group. meanwhile: called as time passes."""

    def __init__(self, rank: int, count: int, over: int, **of_part: Any) -> None:
        super().__init__()
        self.rank = rank
        self.meanwhile: Callable[[], None] = lambda: None
        self.boot_only |= {LAYOUT.node_file, LAYOUT.part_file, LAYOUT.progress_file}
        self.slot_settings = {
            "nodes": {"rank": rank, "port": 18200, "hosts": HOSTS[:count], "interface": "ens2"},
        }
        self.interfaces = {"ens2": (HOSTS[rank]["address"],)}
        self.put(LAYOUT.node_key_file, KEY)
        for name in ("a", "b"):
            self.render(name)
        for name in ("big", "big2"):
            if rank < over:
                self.render(name, node={"rank": rank, "count": over}, warmup=WARM_UP, **of_part)
        self.serve_node()

    def effects(self) -> Effects:
        return replace(super().effects(), http=_Http(self), locks=_NotedLocks(self), processes=_Processes(self))

    def serve_node(self) -> None:
        """The service of the node runs."""
        self.units[LAYOUT.node_unit] = FakeUnit(
            LAYOUT.node_unit, active="active", sub="running", invocation="n", pid=999
        )

    @property
    def node_runs(self) -> bool:
        return self.units[LAYOUT.node_unit].up

    @property
    def running(self) -> list[str]:
        return [name for name in super().running if name != LAYOUT.node_unit]

    def reboot(self) -> None:
        super().reboot()
        self.serve_node()

    def leads(self, unit: FakeUnit) -> bool:
        return unit.name.startswith(LAYOUT.unit("big").removesuffix(".service")) and self.rank == 0

    def launch(self, unit: FakeUnit) -> None:
        if unit.name == LAYOUT.node_unit:
            self.serve_node()
            return
        super().launch(unit)
        if self.leads(unit):
            # ExecStartPre=, which waits for the other nodes.
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
    """Hosts of which the first leads. off: nodes whose host is off. parted: pairs that don't hear each other."""

    def __init__(self, count: int = 2, over: int | None = None, **of_part: Any) -> None:
        self.hosts = {
            name: GroupHost(rank, count, over or count, **(of_part if rank else {}))
            for rank, name in enumerate(NAMES[:count])
        }
        self.alpha, self.beta = self.hosts["alpha"], self.hosts["beta"]
        self.said: list[str] = []
        self.off: set[str] = set()
        self.frozen: set[str] = set()  # nodes whose service runs and does not look any more
        self.parted: set[frozenset[str]] = set()
        self.asked: list[tuple[str, str]] = []  # who asked whom
        self._looked_at, self._busy = -1.0, False
        self._awaits = ("", 0.0)  # the process that waits for the other nodes, and since when
        for name, host in self.hosts.items():
            for other in self.hosts:
                if other != name:
                    host.nodes[f"http://{self._address(other)}:18200"] = self._way(name, other)
            host.nodes[f"http://{self._address(name)}:18200"] = self._way(name, name)
        self.start_services()
        self.alpha.meanwhile = self.pass_time
        self.pass_time()

    @staticmethod
    def _address(name: str) -> str:
        return str(HOSTS[NAMES.index(name)]["address"])

    def _way(self, name: str, other: str) -> Callable[[str], Reply]:
        """What `other` answers this node."""

        def answer(path: str) -> Reply:
            self.asked.append((name, other))
            host, said = self.hosts[other], self.reports.get(other)
            cut = frozenset((name, other)) in self.parted or other in self.off or name in self.off
            key = host.texts.get(LAYOUT.node_key_file)
            if cut or not host.node_runs or key is None:
                return Reply(0, error="timeout")
            text = None
            if said is not None:
                report, looked_at = said
                age = 0.0 if self._busy and other not in self.frozen else self.alpha.mono - looked_at
                text = replace(report, age=age, busy=self.services[other].busy).to_json()
            return Reply(*node_key.respond(key[0], other, path, text))

        return answer

    def start_services(self, *names: str) -> None:
        """The services of these nodes begin anew, with what is on disk; of all, where none is named."""
        if not names:
            self.reports: dict[str, tuple[NodeReport, float] | None] = dict.fromkeys(self.hosts)
            self.services: dict[str, NodeService] = {}
        for name in names or self.hosts:
            self.services[name] = NodeService(self.hosts[name].effects(), LAYOUT, self.said.append)

    def pass_time(self) -> None:
        """What all nodes do by themselves up to the leader's time."""
        if self._busy or self.alpha.mono < self._looked_at + 1:
            return
        self._busy, self._looked_at = True, self.alpha.mono
        try:
            for name in reversed(self.hosts):
                host = self.hosts[name]
                if name in self.off:
                    continue
                host.mono = max(host.mono, self.alpha.mono)
                host.tick()
                if host.node_runs and name not in self.frozen:
                    report = self.services[name].look()
                    self.reports[name] = None if report is None else (report, self.alpha.mono)
            self._await()
        finally:
            self._busy = False

    def cut(self, *, parted: bool = False, off: Collection[str] = ()) -> None:
        """From now on no node reaches another, or some are off; or neither, and all is well again."""
        self.off = set(off)
        self.parted = {frozenset((one, other)) for one in self.hosts for other in self.hosts if one != other and parted}

    def come_back(self, name: str) -> None:
        """A host that was off has booted."""
        self.hosts[name].mono = max(self.hosts[name].mono, self.alpha.mono)
        self.hosts[name].reboot()
        self.start_services(name)
        self.off.discard(name)

    def _await(self) -> None:
        """What the unit's ExecStartPre= does."""
        unit = next(
            (unit for unit in self.alpha.units.values() if self.alpha.leads(unit) and unit.sub == "start-pre"), None
        )
        if unit is None:
            self._awaits = ("", 0.0)
            return
        if self._awaits[0] != unit.invocation:
            self._awaits = (unit.invocation, self.alpha.mono)
        fx = self.alpha.effects()
        group = read_slot_file(fx, LAYOUT).nodes
        assert group is not None
        name = LAYOUT.profile_of(unit.name)
        count = json.loads(self.alpha.texts[LAYOUT.profile_json(name)][0])["node"]["count"]
        wish = Wish(name, f"sha256:{name}-1", count, unit.invocation)
        try:
            if not waits_for(fx, LAYOUT, group, wish, self._switching):
                unit.turn_at = self.alpha.mono
            elif self.alpha.mono >= self._awaits[1] + NODES_LIMIT_S:
                raise SlotFault("its limit")
        except SlotFault:
            self.alpha._loop(unit)

    def _switching(self) -> bool:
        return api.switches(self.alpha.effects(), LAYOUT)

    def wait(self, seconds: float) -> None:
        """Lets time pass: by half seconds, and where nothing has changed for a while, to what comes next by itself."""
        end, still, since = self.alpha.mono + seconds, self._seen(), self.alpha.mono
        while self.alpha.mono < end:
            now = self.alpha.mono
            step = 0.5 if now < since + STILL_S else max(0.5, min(JUMP_S, self._next() - now, end - now))
            self.alpha.mono += step
            self.alpha.tick()
            seen = self._seen()
            if seen != still:
                still, since = seen, self.alpha.mono

    def _seen(self) -> list[Any]:
        """What looks and time may change, without the times."""
        return [
            [(unit.active, unit.sub, unit.invocation) for unit in host.units.values()]
            + [text for text, _written in host.texts.values()]
            for host in self.hosts.values()
        ]

    def _next(self) -> float:
        """When a unit does by itself what comes next."""
        units = [unit for host in self.hosts.values() for unit in host.units.values()]
        times = [at for unit in units for at in (unit.turn_at, unit.stop_until, unit.restart_at) if at is not None]
        return min((*times, self._awaits[1] + NODES_LIMIT_S) if self._awaits[0] else times, default=float("inf"))

    def parts(self, unit: str = BIG) -> list[str]:
        """The nodes that run a part."""
        return [name for name, host in self.hosts.items() if unit in host.running]

    def assert_invariants(self) -> None:
        """What is open is verified, and every part of it runs for this very process."""
        self.alpha.assert_invariants()
        state = self.alpha.state
        if state is not None and state.open and state.profile_name in ("big", "big2"):
            unit = LAYOUT.unit(state.profile_name)
            for host in self.hosts.values():
                if host.rank and unit in host.units:
                    part = read_part(host.effects(), LAYOUT)
                    assert part is not None
                    assert (part.epoch, part.state) == (self.alpha.units[unit].invocation, nodes.RUNS)
                    assert host.running == [unit]
