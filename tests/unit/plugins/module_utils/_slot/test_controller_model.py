# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any sequence of faults that ends leads to the wanted profile, served and verified.

At every effect the host in memory checks that no client reaches an engine that was not verified, and that no two
engines share a card; here, that no healthy replica is stopped for another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import Do
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from unit.plugins.module_utils._slot.calls import b70ctl, host, made_once, switch
from unit.plugins.module_utils._slot.controlled import Controlled
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, Killed

SEQUENCES = int(os.environ.get("B70_SEQUENCES", "60"))  # of one engine, and as many of replicas
# What ends by itself, in seconds: the longest pause, and what the tries of three engines take.
HEALS_S = 1500.0
ENGINE_FAULTS = ("exit_at_start", "crash_loop", "never_ready", "wrong_answer", "no_token", "wrong_id", "health_500")
REFUSED = ("show", "list-units", "start", "stop", "enable")
FULL = (LAYOUT.run_dir, LAYOUT.state_dir, LAYOUT.unit_dir)


@dataclass(frozen=True)
class Event:
    """Something that happens to the host, and for how long the controller looks at it afterwards."""

    what: str
    about: Any = None
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"Event({self.what!r}, {self.about!r}, {self.seconds!r})"


def events(replicas: int) -> st.SearchStrategy[list[Event]]:
    which = st.integers(0, replicas - 1) if replicas > 1 else st.none()
    seconds = st.sampled_from([0.0, 5.0, 60.0])
    one = st.one_of(
        st.builds(Event, st.just("fault"), st.tuples(which, st.sampled_from(ENGINE_FAULTS)), seconds),
        st.builds(Event, st.just("heal"), st.tuples(which), seconds),
        st.builds(Event, st.just("crash"), st.tuples(which), seconds),
        st.builds(Event, st.just("refuse"), st.tuples(st.sampled_from(REFUSED), st.integers(1, 30)), seconds),
        st.builds(Event, st.just("full"), st.sampled_from(FULL), seconds),
        st.builds(Event, st.just("room"), st.none(), seconds),
        st.builds(Event, st.just("reboot"), st.none(), seconds),
        st.builds(Event, st.just("kill"), st.integers(1, 200), seconds),
        st.builds(Event, st.just("switch"), st.sampled_from("ab"), seconds),
        st.builds(Event, st.just("killed switch"), st.tuples(st.sampled_from("ab"), st.integers(1, 300)), seconds),
        st.builds(Event, st.just("verify"), st.none(), seconds),
        st.builds(Event, st.just("stop"), st.none(), seconds),
    )
    return st.lists(one, min_size=1, max_size=6)


@made_once
def served(replicas: int) -> FakeHost:
    fake_host = host("ab", load_s=2.0, replicas=replicas)
    switch(fake_host, "a")
    return fake_host


class Model(Controlled):
    """A controller, and what happens to its host."""

    def __init__(self, replicas: int) -> None:
        super().__init__(served(replicas))
        self.replicas = replicas
        self.asked = False  # somebody asks for what happens now
        self.settled: list[float] = []  # when the controller settled the slot

    def each(self, profile: str = "a") -> list[Any]:
        numbers = range(self.replicas) if self.replicas > 1 else [None]
        return [self.host.unit(profile, number) for number in numbers]

    def happens(self, event: Event) -> None:
        do: Callable[[Any], None] = getattr(self, f"on_{event.what.replace(' ', '_')}")
        self.asked = event.what in ("switch", "killed switch", "verify", "stop")
        do(event.about)
        self.asked = False
        self.run(event.seconds)

    def look(self) -> None:
        super().look()
        if self.controller.step.do is Do.SETTLE:
            now = self.host.mono
            self.settled = [moment for moment in (*self.settled, now) if now - moment < 60.0]
            # Of each engine three tries, and what an event or a new controller begins anew.
            assert len(self.settled) <= 4 + 4 * self.replicas, f"tried again without pauses: {self.said[-3:]}"

    def unit(self, which: int | None) -> Any:
        return self.host.unit("a", which)

    def on_fault(self, about: tuple[int | None, str]) -> None:
        self.unit(about[0]).fault = about[1]

    def on_heal(self, about: tuple[int | None]) -> None:
        self.unit(about[0]).fault = ""

    def on_crash(self, about: tuple[int | None]) -> None:
        if self.unit(about[0]).up:
            self.host.crash("a", about[0])

    def on_refuse(self, about: tuple[str, int]) -> None:
        left = [about[1]]

        def refuses(what: str) -> bool:
            if not what.startswith(about[0]) or left[0] <= 0:
                return False
            left[0] -= 1
            return True

        self.host.refuses = refuses

    def on_full(self, about: Any) -> None:
        self.host.full.add(about)

    def on_room(self, _about: None) -> None:
        self.host.full.clear()

    def on_reboot(self, _about: None) -> None:
        self.reboot()

    def on_kill(self, about: int) -> None:
        """Kill the controller within its next looks, and start another one."""
        self.host.kill_at = self.host.effects_done + about
        try:
            self.run(20.0)
        except Killed:
            self.host.lock_holder = None
        self.host.kill_at = None
        self.started()

    def on_switch(self, about: str) -> None:
        switch(self.host, about, switch_id=f"by hand {self.host.effects_done}")

    def on_killed_switch(self, about: tuple[str, int]) -> None:
        self.host.kill_at = self.host.effects_done + about[1]
        try:
            self.on_switch(about[0])
        except Killed:
            self.host.lock_holder = None
        self.host.kill_at = None

    def on_verify(self, _about: None) -> None:
        b70ctl(self.host, "verify")

    def on_stop(self, _about: None) -> None:
        b70ctl(self.host, "stop")

    def ends(self) -> None:
        """All faults end."""
        for unit in (*self.each("a"), *self.each("b")):
            unit.fault = ""
        self.host.full.clear()
        self.host.refuses = lambda _what: False

    @property
    def wanted(self) -> str | None:
        """The profile that the journal says is to be served, or will say of an interrupted switch whose target is.

        A full disk delays that record.
        """
        state, lost = self.host.state, read_memory(self.host.effects(), self.host.layout).interrupted
        done = lost is not None and state is not None and state.open and state.profile_name == lost.target
        return lost.target if lost is not None and done else self.host.wanted

    def at_rest(self, wanted: str | None) -> bool:
        state = self.host.state
        if wanted is None or state is None:
            return state is not None and not self.host.running
        served = state.open and state.verified and state.profile_name == wanted and len(state.passed) == self.replicas
        return served and self.host.enabled == sorted(unit.name for unit in self.each(wanted))

    def spare_the_healthy(self) -> None:
        """Have every effect check that no healthy replica is stopped which nobody asked to stop."""
        known = len(self.host.mutations)

        def check() -> None:
            nonlocal known
            for done in self.host.mutations[known:]:
                word, _space, name = done.partition(" ")
                if word in ("stop", "kill") and not self.asked:
                    unit = self.host.units[name]
                    served = self.host.served()
                    others = any(one.invocation in served for one in self.each() if one is not unit)
                    healthy = unit.live_fault == "" and unit.invocation in served
                    assert not (healthy and others), f"{name} was stopped, and it serves"
            known = len(self.host.mutations)

        self.host.at_effect = check


def assert_heals(replicas: int, happened: list[Event]) -> None:
    model = Model(replicas)
    model.spare_the_healthy()
    for event in happened:
        model.happens(event)
    model.ends()
    model.look()
    wanted = model.wanted
    model.until(lambda: model.at_rest(wanted), HEALS_S)
    model.run(30.0)
    assert model.host.wanted == wanted, "trouble changed what is wanted"
    state = model.host.state
    if wanted is None:
        assert model.host.running == []
        assert state is not None
        assert state.reason
        return
    assert state is not None
    assert (state.open, state.verified, state.profile_name) == (True, True, wanted), state
    assert len(state.passed) == replicas, state
    model.host.assert_invariants()


# A sequence is short, and shrinking it takes minutes.
_LIMITS = settings(
    max_examples=SEQUENCES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


# A full disk delays the record of a switch that was killed as good as done.
@example(
    [
        *(Event("stop", seconds=5.0), Event("switch", "a"), Event("verify"), Event("killed switch", ("b", 232))),
        *(Event("full", LAYOUT.state_dir, 5.0), Event("refuse", ("stop", 22), 60.0)),
    ]
)
# What settles a killed switch finds no room, and touches nothing.
@example([Event("killed switch", ("b", 137)), Event("full", LAYOUT.run_dir, 5.0)])
@_LIMITS
@given(events(1))
def test_one_engine_heals(happened: list[Event]) -> None:
    assert_heals(1, happened)


@example([Event("stop", seconds=60.0), Event("killed switch", ("b", 130)), Event("full", LAYOUT.run_dir, 60.0)])
@_LIMITS
@given(events(3))
def test_replicas_heal(happened: list[Event]) -> None:
    assert_heals(3, happened)
