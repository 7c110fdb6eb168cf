# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the model that a slot serves next, by the requests that wait. Pure: times are passed in, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple


class Wish(NamedTuple):
    """Somebody waits for a profile."""

    profile: str
    since: float
    client: str


class View(NamedTuple):
    """A slot, as the decision sees it."""

    #: the profile that clients are served with, and since when; empty while there is none
    served: str
    since: float
    #: requests that have permits, or wait for them
    running: int
    #: a switch is under way, whoever asked for it
    moving: bool
    #: when somebody last asked for what is served, or had an answer of it
    asked: float = 0.0


class Step(NamedTuple):
    """The next thing to do."""

    #: the profile to ask for
    switch_to: str = ""
    #: the served model takes no more requests, because it is about to be left
    closes: bool = False


def turns(wishes: Iterable[Wish]) -> list[Wish]:
    """Return the first wish for each profile, in the order in which the profiles are loaded.

    The oldest is first, but no client's second profile comes before another one's first. Who waits is passed by those
    alone who came before, so everybody's turn comes.
    """
    asked: dict[str, list[str]] = {}
    ranked = []
    for wish in sorted(wishes, key=lambda one: one.since):
        own = asked.setdefault(wish.client, [])
        if wish.profile not in own:
            own.append(wish.profile)
            ranked.append((own.index(wish.profile), wish))
    first: dict[str, Wish] = {}
    for _rank, wish in sorted(ranked, key=lambda one: (one[0], one[1].since)):
        first.setdefault(wish.profile, wish)
    return list(first.values())


def ahead(view: View, wishes: Iterable[Wish], blocked: Container[str]) -> list[Wish]:
    """Return the wishes whose profile is to be loaded, in their turns."""
    return turns(wish for wish in wishes if wish.profile != view.served and wish.profile not in blocked)


def decide(view: View, wishes: Iterable[Wish], blocked: Container[str], now: float, min_serve_s: float) -> Step:
    """Decide the next step. A model is left when it was served for so long and nothing of it runs.

    The model takes requests until the wish that is next is as old as well. Then its answers are waited for, and new
    requests for it wait for its next turn.
    """
    waiting = [] if view.moving else ahead(view, wishes, blocked)
    if not waiting:
        return Step()
    first = waiting[0]
    free_at = view.since + min_serve_s if view.served else now
    if now < free_at:
        return Step()
    if not view.running:
        return Step(first.profile, closes=True)
    return Step(closes=now >= first.since + min_serve_s)


def is_idle(view: View, waiting: int, now: float, min_serve_s: float, idle_s: float) -> bool:
    """Tell whether what is served is unloaded, because nobody asked for it for so long; 0: it never is."""
    busy = view.moving or view.running or waiting
    return bool(idle_s and view.served and not busy and now >= max(view.asked + idle_s, view.since + min_serve_s))


def eta_s(
    view: View,
    before: Sequence[str],
    profile: str,
    now: float,
    min_serve_s: float,
    load_s: Callable[[str], float],
    moving_to: str = "",
    left_s: float = 0.0,
) -> float:
    """Estimate in how many seconds a profile will be served, behind those that are loaded `before` it.

    How long answers run is not known. Of a switch under way, to `moving_to`, so many seconds are left.
    """
    if view.moving and moving_to == profile:
        return left_s
    wait = left_s + min_serve_s if view.moving else max(0.0, view.since + min_serve_s - now) if view.served else 0.0
    return wait + sum(load_s(one) + min_serve_s for one in before) + load_s(profile)
