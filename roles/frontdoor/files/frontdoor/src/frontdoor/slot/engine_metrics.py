# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines' own metrics, of all replicas of all slots in one answer, in Prometheus' text format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

from frontdoor.errors import Refusal
from frontdoor.http.fetch import Fetched, fetch
from frontdoor.slot.replicas import Replica

# shorter than the ten seconds that Prometheus waits: one engine that is silent does not hide the others
_TIMEOUT_S = 5.0
# a name, labels, and what follows
_SAMPLE = re.compile(rb"([^{ #]+)(?:\{(.*)\})?( .+)")
#: the slot and the index of an engine, and what it says
Told = tuple[str, int, bytes]


def joined(answers: Iterable[Told]) -> bytes:
    """Return the metrics of several engines as those of one.

    Each sample gets the labels `slot` and `replica`. The samples of one metric follow each other, as the format has it,
    below the comments of the engine that told it first.
    """
    comments: dict[bytes, dict[bytes, bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for slot, replica, text in answers:
        own = b'slot="%b",replica="%d"' % (slot.encode(), replica)
        metric = b""
        for line in text.splitlines():
            if line.startswith((b"# HELP ", b"# TYPE ")):
                metric = line.split(b" ", 3)[2]
                comments.setdefault(metric, {}).setdefault(line[2:6], line)
            elif found := _SAMPLE.fullmatch(line):
                name, labels, rest = found.groups()
                if not (metric and name.startswith(metric)):
                    metric = name
                inside = own + b"," + labels if labels else own
                samples.setdefault(metric, []).append(b"%b{%b}%b" % (name, inside.rstrip(b","), rest))
    return b"".join(
        b"%b\n" % line for metric, rows in samples.items() for line in (*comments.get(metric, {}).values(), *rows)
    )


class EngineMetrics:
    """Asks all engines. Requests that arrive meanwhile get the same answer, so an engine is asked once at a time."""

    def __init__(self, replicas: Callable[[], Iterable[tuple[str, Replica]]]) -> None:
        """Take `replicas`, which lists the present engines with the names of their slots."""
        self._replicas = replicas
        self._task: asyncio.Task[bytes | Refusal] | None = None

    async def answer(self) -> bytes | Refusal:
        """Return the metrics of the engines that answer; a refusal if none does."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(self._task)

    async def _ask(self) -> bytes | Refusal:
        asked = list(self._replicas())
        got: list[Fetched] = await asyncio.gather(*(fetch(one.pool, "/metrics", _TIMEOUT_S) for _slot, one in asked))
        told = [
            (slot, one.index, answer.body)
            for (slot, one), answer in zip(asked, got, strict=True)
            if answer.status == 200
        ]
        if not told:
            why = "; ".join(dict.fromkeys(answer.error or f"/metrics answered {answer.status}" for answer in got))
            return Refusal(502, "engine_unreachable", f"no engine tells its metrics: {why}")
        return joined(told)
