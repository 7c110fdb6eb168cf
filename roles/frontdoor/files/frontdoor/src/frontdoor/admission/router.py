# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which replica a request goes to, of those with room. Pure code: no clock, no I/O. Sets of replicas are bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from frontdoor.admission.limiter import ANY

# sessions and prompts that are remembered, each
_REMEMBERED = 8192


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """Where a request should go, by its content; a hash that is None says nothing."""

    #: of what names its session
    session: int | None = None
    #: of the beginning of its prompt
    prompt: int | None = None
    #: whether it waits for the replica of its session rather than go elsewhere
    strict: bool = False
    #: the replicas whose context holds it
    fits: int = ANY


ANYWHERE = Wish()


class _Bindings:
    """The replica of each hash, those used lately."""

    def __init__(self) -> None:
        self._replicas: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    def find(self, hashed: int | None) -> int | None:
        """The replica that is bound; it counts as used."""
        if hashed is None:
            return None
        replica = self._replicas.pop(hashed, None)
        if replica is not None:
            self._replicas[hashed] = replica
        return replica

    def bind(self, hashed: int | None, replica: int) -> None:
        if hashed is not None:
            self._replicas.pop(hashed, None)
            self._replicas[hashed] = replica
            if len(self._replicas) > _REMEMBERED:
                del self._replicas[next(iter(self._replicas))]

    def clear(self) -> None:
        self._replicas.clear()


class Router:
    """Remembers where sessions and prompts went, and decides where the next request goes.

    A request goes where its session went, else where a prompt that began alike went, as long as that replica has room
    and not more than half above its share of the requests and two. All else goes to the replica with the fewest
    requests, to each of equals in turn. A strict session goes to its own replica alone.
    """

    def __init__(self) -> None:
        #: the replicas that are used
        self.usable = 1
        self._sessions, self._prompts = _Bindings(), _Bindings()
        self._last = -1

    def forget(self) -> None:
        """Forget everything: other engines run now, with empty caches."""
        self._sessions.clear()
        self._prompts.clear()

    def may_use(self, wish: Wish, loads: Sequence[int]) -> int:
        """The replicas that a request may use or wait for. A strict session without one gets one here."""
        if not wish.strict or wish.session is None:
            return wish.fits
        replica = self._sessions.find(wish.session)
        if replica is None or not wish.fits >> replica & 1:
            replica = self._least((self.usable & wish.fits) or wish.fits, loads)
            self._sessions.bind(wish.session, replica)
        return 1 << replica

    def choose(self, wish: Wish, room: int, loads: Sequence[int]) -> int:
        """The replica for a request, of those in `room`, of which there is one; `loads` are requests under way."""
        session, prompt = self._sessions.find(wish.session), self._prompts.find(wish.prompt)
        share = self._share(loads)
        for bound in (session, prompt):
            if bound is not None and room >> bound & 1 and loads[bound] < share:
                chosen = bound
                break
        else:
            chosen = self._least(room, loads)
        # a session that is elsewhere only because there was no room comes back
        if not self._used(prompt):
            self._prompts.bind(wish.prompt, chosen)
        if not self._used(session):
            self._sessions.bind(wish.session, chosen)
        return chosen

    def _used(self, replica: int | None) -> bool:
        return replica is not None and self.usable >> replica & 1 == 1

    def _share(self, loads: Sequence[int]) -> float:
        """The number of requests from which a replica gets none for the sake of its cache."""
        used = [load for replica, load in enumerate(loads) if self.usable >> replica & 1]
        return 1.5 * sum(used) / max(1, len(used)) + 2

    def _least(self, among: int, loads: Sequence[int]) -> int:
        """The least loaded of some replicas, of which there is one; of equals the one after the last that was taken."""
        count = len(loads)
        order = [(self._last + 1 + step) % count for step in range(count)]
        self._last = min((one for one in order if among >> one & 1), key=loads.__getitem__)
        return self._last
