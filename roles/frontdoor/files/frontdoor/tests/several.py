# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor before several engines of one slot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

from kit import Bench, Engine, bench

ROUTING = {"sticky": "prefer", "prefix_affinity": False, "headers": None, "json_fields": None}
INVOCATIONS = [f"{number:032x}" for number in range(1, 9)]


class Address(Protocol):
    """Where an engine listens."""

    @property
    def url(self) -> str:
        """Such as http://127.0.0.1:18080."""


def unit(index: int) -> str:
    return f"b70-slot-main-tiny-a@{index}.service"


def start_replica(units_dir: Path, index: int, invocation_id: str = "") -> None:
    """Note the running engine of a replica as systemd does; another start has another id."""
    link = units_dir / f"invocation:{unit(index)}"
    link.unlink(missing_ok=True)
    os.symlink(invocation_id or INVOCATIONS[index], link)


def rows(engines: Iterable[Address], permits: int, *, closed: tuple[int, ...] = (), lengths: Any = None) -> list[Any]:
    """What the state file says of the replicas; those that are closed are being started."""
    return [
        {
            "index": index,
            "backend_url": engine.url,
            "cards": [index],
            "open": index not in closed,
            "verified": index not in closed,
            "reason": "it is being started" if index in closed else "",
            "limits": {"max_active_generations": permits, "max_model_len": (lengths or {}).get(index, 512)},
            "engine": {
                "unit": unit(index),
                "invocation_id": INVOCATIONS[index],
                "started_at": "2026-06-07T09:08:44Z",
                "directives": [],
                "kind": "vllm",
                "metrics": {"tokens": "vllm:generation_tokens_total", "cache": "vllm:kv_cache_usage_perc"},
            },
        }
        for index, engine in enumerate(engines)
    ]


class Slot:
    """The engines, and the frontdoor before them."""

    def __init__(self, run: Bench, engines: list[Engine], **settings: Any) -> None:
        """`settings` are those of `state`."""
        self.run = run
        self.engines = engines
        self._settings = settings

    def tell(self, *, closed: tuple[int, ...] = (), **changes: Any) -> None:
        """Write the state file anew."""
        told = state(self.engines, closed=closed, **self._settings)
        self.run.write_state(**{**told, **changes})

    @property
    def active(self) -> list[int]:
        """Requests in each engine."""
        return [engine.active for engine in self.engines]

    @property
    def asked(self) -> list[int]:
        """Requests that each engine has had."""
        return [len(engine.requests) for engine in self.engines]


def state(
    engines: list[Engine],
    permits: int,
    queue_s: float,
    *,
    closed: tuple[int, ...] = (),
    lengths: Any = None,
    routing: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The state of a slot with these engines."""
    told = rows(engines, permits, closed=closed, lengths=lengths)
    first = next((row for row in told if row["open"]), told[0])
    limits = {"max_active_generations": permits * len(engines), "queue_timeout_s": queue_s, "backend_timeout_s": 60}
    return {
        "replicas": told,
        "routing": {**ROUTING, **(routing or {})},
        "backend_url": first["backend_url"],
        "engine": first["engine"],
        "limits": limits,
        "open": any(row["open"] for row in told),
    }


@contextlib.asynccontextmanager
async def several(
    tmp_path: Path,
    count: int = 3,
    permits: int = 2,
    queue_s: float = 60,
    *,
    routing: dict[str, Any] | None = None,
    lengths: Any = None,
    closed: tuple[int, ...] = (),
    **sections: Any,
) -> AsyncIterator[Slot]:
    """Start so many engines, and a frontdoor before them."""
    engines = [Engine() for _ in range(count)]
    for index, engine in enumerate(engines):
        await engine.start()
        start_replica(tmp_path, index)
    settings = {"permits": permits, "queue_s": queue_s, "lengths": lengths, "routing": routing}
    async with bench(tmp_path, state=state(engines, closed=closed, **settings), **sections) as run:
        yield Slot(run, engines, **settings)
        for engine in engines:
            await engine.kill()
