# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands on both sides of the frontdoor: knows what clients sent, and judges what reaches the engine of it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Iterator

from bodies import GENERATING, body, spoilt, wrong
from trial import Broken, Trial
from trial_config import SERVED

# isort: split
from kit import Call, Client, Received, Script

OTHERS = ("/v1/embeddings", "/tokenize", "/v1/messages/count_tokens", "/v1/rerank", "/v1/score")
_MOST_FAULTS = 5


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request that a client sent in a proper form."""

    mark: str
    path: str
    body: bytes
    #: whether its key, if one is needed, is right
    may: bool
    #: header lines
    fields: tuple[str, ...]


class Witness:
    """Of one trial; `script` is what the engine does with what passed."""

    def __init__(self, run: Trial, script: Script) -> None:
        self._run = run
        self._script = script
        self._numbers = itertools.count()
        self._sent: dict[str, Sent] = {}
        # by turn of the rules, how many clients wait for answers to what has no mark
        self._unmarked: Counter[int] = Counter()
        self._faults: list[str] = []
        #: requests that were compared with what was sent
        self.judged = 0
        run.engine.script = self._engine

    def check(self) -> None:
        """Complain of what the engine should not have seen."""
        if self._faults:
            raise Broken("; ".join(self._faults))

    def sent(self, rng: random.Random, *, size: int = 0, paths: tuple[str, ...] = GENERATING) -> Sent:
        """Invent a request with a body of JSON, or nearly; remembered until it is answered."""
        run, path = self._run, rng.choice(paths)
        data = body(rng, path)
        if size or rng.random() < 0.5:
            data = b'{"model":"%b","messages":[],"x":"%b"}' % (SERVED.encode(), b"y" * size)
        elif rng.random() < 0.2:
            data = spoilt(rng, data)
        may = rng.random() < 0.95
        # it tells, of those that are forgotten too, which rules are too old for it
        mark = f"{run.applied}-{next(self._numbers)}"
        key = run.key(rng) if may else run.wrong_key(rng)
        fields = tuple(line for line in (f"X-Trial: {mark}", key) if line)
        sent = Sent(mark, path, data, may or not run.config.keys, fields)
        self._sent[mark] = sent
        return sent

    def ask(self, client: Client, rng: random.Random, *, size: int = 0) -> Sent:
        """Send one such request."""
        sent = self.sent(rng, size=size)
        client.request("POST", sent.path, sent.body, *sent.fields)
        return sent

    @contextlib.contextmanager
    def unmarked(self) -> Iterator[None]:
        """While a client sends what has no mark, and until all of it is answered or never will be."""
        turn = self._run.applied
        self._unmarked[turn] += 1
        try:
            yield
        finally:
            self._unmarked[turn] -= 1

    def forget(self, sent: Sent) -> None:
        """Nobody will say how it was answered."""
        self._sent.pop(sent.mark, None)

    def answered(self, sent: Sent, status: int) -> None:
        """Forget a request; its status fits its key."""
        self._sent.pop(sent.mark, None)
        if not sent.may and status not in (401, 413):
            self._fault(f"{sent.path} without a valid key ({sent.fields}) was answered with {status}")
        if sent.may and status in (401, 403):
            self._fault(f"{sent.path} with a valid key ({sent.fields}) was answered with {status}")

    def _fault(self, text: str) -> None:
        if len(self._faults) < _MOST_FAULTS:
            self._faults.append(text)

    async def _engine(self, call: Call) -> None:
        # what is kept of a hundred thousand requests would be the largest thing here
        self._run.engine.requests.clear()
        self._judge(call.request)
        await self._script(call)

    def _judge(self, request: Received) -> None:
        method, target, version = request.line.split(" ")
        if version != "HTTP/1.1" or not target.startswith("/") or not method.isupper():
            self._fault(f"the engine was sent {request.line!r}")
        path = target.partition("?")[0]
        names: dict[str, str] = {name.lower(): value for name, value in request.headers}
        if self._run.config.keys and any(name in names for name in ("authorization", "x-api-key")):
            self._fault(f"the engine was sent a key: {request.headers}")
        if self._run.config.keys and "smuggled" in target:
            self._fault("what nobody sent with a key reached the engine")
        mark = names.get("x-trial")
        since = int(mark.partition("-")[0]) if mark else min(+self._unmarked, default=self._run.applied)
        sent = self._sent.get(mark or "")
        if sent is None:
            # nobody knows what it was, but what comes out of the rules they would not change any more
            if method == "POST" and names.get("content-type", "application/json").startswith("application/json"):
                self._compare(path, request.body, request.body, since)
            return
        self.judged += 1
        if not sent.may:
            self._fault(f"{sent.path} without a valid key ({sent.fields}) reached the engine")
        if path != sent.path:
            self._fault(f"{sent.path} became {path}")
        self._compare(path, sent.body, request.body, since)

    def _compare(self, path: str, sent: bytes, got: bytes, since: int) -> None:
        found = [wrong(path, sent, got, rules) for rules in self._run.rules_since(since)]
        if all(found):
            self._fault(f"{path}: {found[0]}; sent {sent[:600]!r}, the engine got {got[:600]!r}")
