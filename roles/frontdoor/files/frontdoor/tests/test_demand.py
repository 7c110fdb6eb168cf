# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which model is served next: everybody's turn comes, and nothing that runs is cut."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from frontdoor.admission.demand import Step, View, Wish, decide, eta_s, is_idle, turns

SERVE_S = 120.0


def view(served: str = "a", since: float = 0.0, running: int = 0, *, moving: bool = False) -> View:
    return View(served, since, running, moving)


def test_the_oldest_wish_is_first_and_no_second_one_before_anothers_first() -> None:
    wishes = [Wish("b", 1, "x"), Wish("c", 2, "x"), Wish("b", 3, "y"), Wish("d", 4, "y"), Wish("e", 5, "z")]
    assert [wish.profile for wish in turns(wishes)] == ["b", "e", "c", "d"]
    assert [wish.profile for wish in turns(reversed(wishes))] == ["b", "e", "c", "d"]


@pytest.mark.parametrize(
    ("slot", "wishes", "now", "step"),
    [
        # nothing is wanted, or it is served already, or it may not be asked for
        (view(), [], 500, Step()),
        (view(), [Wish("a", 1, "x")], 500, Step()),
        (view(), [Wish("bad", 1, "x")], 500, Step()),
        (view("", moving=True), [Wish("b", 1, "x")], 500, Step()),
        # nothing is served: at once
        (view(""), [Wish("b", 1, "x")], 1, Step("b", closes=True)),
        # what is served stays for a while, however idle
        (view(since=100), [Wish("b", 101, "x")], 219, Step()),
        (view(since=100), [Wish("b", 101, "x")], 220, Step("b", closes=True)),
        # what runs is waited for, and the served model takes more until the wish is old
        (view(running=1), [Wish("b", 300, "x")], 301, Step()),
        (view(running=1), [Wish("b", 300, "x")], 420, Step(closes=True)),
        (view(running=0), [Wish("b", 300, "x"), Wish("a", 421, "y")], 430, Step("b", closes=True)),
    ],
)
def test_steps(slot: View, wishes: list[Wish], now: float, step: Step) -> None:
    assert decide(slot, wishes, {"bad"}, now, SERVE_S) == step


@pytest.mark.parametrize(
    ("changes", "waiting", "now", "idle"),
    [
        ({}, 0, 599, False),
        ({}, 0, 600, True),
        ({}, 1, 900, False),
        ({"running": 1}, 0, 900, False),
        ({"moving": True}, 0, 900, False),
        ({"served": ""}, 0, 900, False),
        ({"asked": 400}, 0, 900, False),
        # served for less than the least time
        ({"since": 800}, 0, 900, False),
        ({"since": 780}, 0, 900, True),
    ],
)
def test_what_is_idle(changes: dict[str, Any], waiting: int, now: float, idle: bool) -> None:
    slot = View("a", 0, 0, moving=False)._replace(**changes)
    assert is_idle(slot, waiting, now, SERVE_S, 600) is idle
    assert not is_idle(slot, waiting, now, SERVE_S, 0)


def test_an_estimate_counts_what_is_served_and_loaded_before() -> None:
    loads = {"b": 60.0, "c": 30.0}
    assert eta_s(view(""), [], "b", 0, SERVE_S, loads.__getitem__) == 60
    assert eta_s(view(since=100), [], "b", 150, SERVE_S, loads.__getitem__) == 70 + 60
    assert eta_s(view(since=100), ["c"], "b", 500, SERVE_S, loads.__getitem__) == 30 + 120 + 60
    moving = view("", moving=True)
    assert eta_s(moving, [], "b", 0, SERVE_S, loads.__getitem__, "b", 20) == 20
    assert eta_s(moving, [], "b", 0, SERVE_S, loads.__getitem__, "c", 20) == 20 + 120 + 60


class Slot:
    """One slot in a time of its own: arrivals come, answers and loads end, and each step is done as decided."""

    PROFILES = ("a", "b", "c", "d")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.min_s = rng.choice([5.0, 60.0, 120.0])
        self.load_s, self.answer_s = rng.choice([1.0, 90.0, 300.0]), rng.choice([0.5, 20.0, 100.0])
        self.idle_s, self.asked, self.unloads = rng.choice([0.0, 2.0, 300.0]), 0.0, 0
        self.served, self.since, self.running, self.target = "", 0.0, 0, ""
        self.waiting: dict[int, Wish] = {}
        self.switches: list[float] = []
        self.longest = 0.0
        self.done = 0

    def arrivals(self, count: int) -> Iterator[tuple[float, str, str]]:
        """Floods and pauses; clients that alternate, and some that want one model."""
        at, pause = 0.0, self._rng.choice([0.1, 3.0, 40.0])
        for number in range(count):
            if number % 97 == 0:
                at += self._rng.choice([0, 0, 10 * self.min_s])
            at += self._rng.expovariate(1 / pause)
            client = self._rng.choice("xyz")
            alike = client == "x" and number % 5
            yield at, "a" if alike else self._rng.choice(self.PROFILES), client

    def run(self, count: int) -> None:
        numbers = itertools.count()
        events: list[tuple[float, int, str, str, str]] = []
        for at, profile, client in self.arrivals(count):
            heapq.heappush(events, (at, next(numbers), "asks", profile, client))

        def after(at: float, what: str, profile: str = "") -> None:
            heapq.heappush(events, (at, next(numbers), what, profile, ""))

        while events:
            now, number, what, profile, client = heapq.heappop(events)
            if what == "asks":
                self.waiting[number], self.asked = Wish(profile, now, client), now
                after(now + self.min_s, "looks")
            elif what == "answered":
                self.running, self.asked = self.running - 1, now
                after(now + max(self.min_s, self.idle_s), "looks")
                assert self.served == profile, "a model was left while an answer of it ran"
            elif what == "loaded":
                self.served, self.since, self.target, self.asked = profile, now, "", now
                after(now + self.min_s, "looks")
            if not self.target and not decide(self._view(), self.waiting.values(), (), now, self.min_s).closes:
                for one, wish in list(self.waiting.items()):
                    if wish.profile == self.served:
                        del self.waiting[one]
                        self.longest, self.done = max(self.longest, now - wish.since), self.done + 1
                        self.running += 1
                        after(now + self._rng.uniform(0, self.answer_s), "answered", self.served)
            step = decide(self._view(), self.waiting.values(), (), now, self.min_s)
            if step.switch_to:
                assert not self.running
                assert not self.target, "one switch at a time"
                self.switches.append(now)
                self.target, self.served = step.switch_to, ""
                after(now + self._rng.uniform(0.5, 1) * self.load_s, "loaded", step.switch_to)
            elif is_idle(self._view(), len(self.waiting), now, self.min_s, self.idle_s):
                assert [self.running, self.waiting, self.target] == [0, {}, ""]
                assert now >= self.since + self.min_s
                self.served, self.unloads = "", self.unloads + 1

    def _view(self) -> View:
        return View(self.served, self.since, self.running, bool(self.target), self.asked)


@pytest.mark.parametrize("count", [500, pytest.param(2500, marks=pytest.mark.endurance)])
@pytest.mark.parametrize("seed", range(40))
def test_many_arrivals(seed: int, count: int) -> None:
    """In each of 40 slots: no starvation, no thrash, no switch while an answer runs."""
    slot = Slot(random.Random(seed))
    slot.run(count)
    assert slot.done == count
    assert not slot.waiting
    # in the worst case all others are loaded before, and it has to wait for its own model to be left and come back
    one = slot.load_s + 2 * slot.min_s + slot.answer_s
    assert slot.longest <= (len(Slot.PROFILES) + 1) * one
    spans = [later - earlier for earlier, later in itertools.pairwise(slot.switches)]
    assert all(span >= slot.min_s for span in spans), "more switches than the time allows"
    assert bool(slot.unloads) is bool(slot.idle_s), "it rests at its end at the latest"


@pytest.mark.parametrize("pause", [1.0, 30.0, 119.0])
def test_two_clients_that_alternate_change_little(pause: float) -> None:
    slot = Slot(random.Random(1))
    slot.min_s, slot.load_s, slot.answer_s, slot.idle_s = SERVE_S, 10.0, 1.0, 0.0
    asks = [(number * pause, "ab"[number % 2], "xy"[number % 2]) for number in range(400)]
    slot.arrivals = lambda count: iter(asks[:count])  # type: ignore[method-assign]
    slot.run(400)
    assert slot.done == 400
    assert len(slot.switches) <= 1 + (400 * pause + 2 * SERVE_S) / SERVE_S
