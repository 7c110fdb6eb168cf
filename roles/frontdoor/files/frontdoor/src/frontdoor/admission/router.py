# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of a replica with room for a request. Pure code: no clock, no I/O. Sets of replicas are bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from frontdoor.admission.limiter import ANY

# sessions that are remembered, and blocks of prompts: those of a few hundred long conversations
_SESSIONS = 8192
_BLOCKS = 32768
# Requests that a replica may have, beyond half again as many as elsewhere, for what it knows. To compute 100 kB of
# an agent's prompt anew takes longer than to share a card with a few others.
_MORE = 4
# conversations that one may be ahead by for what many have in common, and how many are made up for
_AHEAD = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """The replica that a request should go to, by its content."""

    #: the hash of what names its session; None says nothing
    session: int | None = None
    #: the hashes of the blocks of its prompt, each of which stands for all before it as well
    blocks: tuple[int, ...] = ()
    #: the first of them that is of this conversation alone; those before it are of many
    own: int = 0
    #: whether it waits for the replica of its session rather than go elsewhere
    strict: bool = False
    #: the replicas whose context holds it
    fits: int = ANY


ANYWHERE = Wish()


class _Places:
    """The replicas of each hash, those noted lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._replicas: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    def find(self, hashed: int) -> int:
        """Return the replicas as bits, 0 for none."""
        return self._replicas.get(hashed, 0)

    def note(self, hashed: int, replicas: int) -> None:
        self._replicas.pop(hashed, None)
        self._replicas[hashed] = replicas
        if len(self._replicas) > self._most:
            del self._replicas[next(iter(self._replicas))]

    def clear(self) -> None:
        self._replicas.clear()


class Router:
    """Remembers where sessions and prompts went, and decides where the next request goes.

    A request goes where the most of its own conversation went, else where its session went, as long as that replica has
    room and no more than half again as many requests as the one with the fewest, and four. All else goes to a replica
    with the fewest requests, of equals to one that knows the most of what the prompt has in common with others and was
    not given more conversations than the others, in turn. A session does not follow the latter: soon all replicas know
    it, and its own conversation is on one. A strict session goes to its own replica alone.
    """

    def __init__(self) -> None:
        #: the replicas that are used
        self.usable = 1
        self._sessions, self._blocks = _Places(_SESSIONS), _Places(_BLOCKS)
        # by replica: conversations that were given to it, as far as that differs
        self._given: list[int] = []
        self._last = -1

    def forget(self) -> None:
        """Forget everything: other engines run now, with empty caches."""
        self._sessions.clear()
        self._blocks.clear()

    def may_use(self, wish: Wish, loads: Sequence[int]) -> int:
        """Return the replicas that a request may use or wait for; bind a strict session that has none."""
        if not wish.strict or wish.session is None:
            return wish.fits
        replicas = self._sessions.find(wish.session) & wish.fits
        if not replicas:
            replicas = 1 << self._least((self.usable & wish.fits) or wish.fits, loads)
        self._sessions.note(wish.session, replicas)
        return replicas

    def choose(self, wish: Wish, room: int, loads: Sequence[int]) -> int:
        """Return the replica for a request among those in `room`, at least one; `loads` are requests under way."""
        session = 0 if wish.session is None else self._sessions.find(wish.session)
        near = self._near(room, loads) if session or wish.blocks else 0
        if home := self._deepest(wish.blocks[wish.own :], near) or session & near:
            # of one conversation, or one session, there is one
            chosen = home.bit_length() - 1
        else:
            fewest = min(load for replica, load in enumerate(loads) if room >> replica & 1)
            idle = sum(1 << replica for replica, load in enumerate(loads) if room >> replica & 1 and load == fewest)
            chosen = self._begin(wish, idle, loads) if wish.blocks else self._least(idle, loads)
        # The blocks that conversations share are noted last, so that they are forgotten last. A conversation goes on
        # where it was last; a session that is elsewhere only because there was no room comes back.
        for number in range(len(wish.blocks) - 1, -1, -1):
            block = wish.blocks[number]
            known = self._blocks.find(block) if number < wish.own else 0
            self._blocks.note(block, known | 1 << chosen)
        if wish.session is not None:
            self._sessions.note(wish.session, session if session & self.usable else 1 << chosen)
        return chosen

    def _begin(self, wish: Wish, idle: int, loads: Sequence[int]) -> int:
        """Return one of the replicas with the fewest requests, for a conversation that none knows."""
        given = self._given
        given += [0] * (len(loads) - len(given))
        most = min(number for replica, number in enumerate(given) if idle >> replica & 1) + _AHEAD
        behind = sum(1 << replica for replica, number in enumerate(given) if number < most) & idle
        chosen = self._least(self._deepest(wish.blocks[: wish.own], behind) or behind, loads)
        given[chosen] += 1
        # one that was away does not get all that begins
        least = max(given) - 2 * _AHEAD
        self._given = [max(number, least) for number in given]
        return chosen

    def _near(self, room: int, loads: Sequence[int]) -> int:
        """Return the replicas with room that may get a request for the sake of what they know."""
        fewest = min((load for replica, load in enumerate(loads) if self.usable >> replica & 1), default=0)
        most = fewest * 1.5 + _MORE
        return sum(1 << replica for replica, load in enumerate(loads) if room >> replica & 1 and load <= most)

    def _deepest(self, blocks: Sequence[int], among: int) -> int:
        """Return those among some replicas that know the most of these blocks; 0 where none knows any."""
        for block in reversed(blocks):
            if found := self._blocks.find(block) & among:
                return found
        return 0

    def _least(self, among: int, loads: Sequence[int]) -> int:
        """Return the least loaded of some replicas, at least one.

        Among equals, the one after the last that was taken.
        """
        count = len(loads)
        order = [(self._last + 1 + step) % count for step in range(count)]
        self._last = min((one for one in order if among >> one & 1), key=loads.__getitem__)
        return self._last
