# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm-up: an engine is sent the shapes that its profile names, so that no client waits for what it compiles at
first use.

It comes before the canary, which so judges an engine in the state in which it will serve. What was verified before, and
comes back, is not given up because its warm-up goes wrong: then the canary alone decides.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..ask import token_prompts
from ..model.profile import Shape, WarmUp
from ..words.types import SlotFault
from .phases import current_engine
from .run import EngineRun, Run


@dataclass(frozen=True)
class Warmed:
    """A shape that was sent, and how long its answers took together."""

    shape: Shape
    seconds: float
    replica: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**self.shape.__dict__, "seconds": round(self.seconds, 3), "replica": self.replica}


def words_of(shape: Shape) -> str:
    return f"{shape.concurrency} x {shape.prompt_tokens} tokens with answers of {shape.output_tokens}"


def warm_up(run: Run) -> None:
    """Warm each engine up, one after the other."""
    wanted = run.profile.warmup
    if wanted is None:
        return
    for engine in run.each():
        current_engine(run)
        try:
            _warm(run, engine, wanted)
        except SlotFault as fault:
            # Where the engine itself is gone, this says so.
            current_engine(run)
            if not run.going_back:
                raise
            run.warn(f"{engine.profile.unit} is verified without its warm-up: {fault.message}")


def _warm(run: Run, engine: EngineRun, wanted: WarmUp) -> None:
    profile, clock = engine.profile, run.fx.clock
    begun, turn = clock.monotonic(), 0
    known = token_prompts.tokens(run.fx, profile, wanted.limit_s)
    for number, shape in enumerate(wanted.shapes, 1):
        which = "" if profile.replica is None else f"replica {profile.replica}: "
        run.progress.say(
            "hint", phase="warm_up", text=f"{which}shape {number} of {len(wanted.shapes)}: {words_of(shape)}"
        )
        asked = clock.monotonic()
        _send(run, engine, shape, turn, known, wanted.limit_s - (asked - begun), wanted.limit_s)
        turn += shape.concurrency
        run.evidence.warmed.append(Warmed(shape, clock.monotonic() - asked, profile.replica))


def _send(
    run: Run, engine: EngineRun, shape: Shape, turn: int, known: list[int], left_s: float, limit_s: float
) -> None:
    """Send the requests of a shape at once; the first failure ends it, and so does the limit.

    left_s: the rest of limit_s, the time for all shapes.
    """
    profile = engine.profile
    bodies = [
        token_prompts.body(profile, known, turn + index, shape.prompt_tokens, shape.output_tokens)
        for index in range(shape.concurrency)
    ]
    late = SlotFault(
        f"the warm-up of {profile.unit} was not done within {limit_s:g} s; give it more time (warmup.limit_s) or fewer "
        "shapes",
        expected=words_of(shape),
        got="no answer",
    )
    if left_s <= 0:
        raise late
    with closing(
        run.fx.http.post_together(f"{profile.engine.backend_url}{token_prompts.PATH}", bodies, left_s)
    ) as replies:
        for come in replies:
            if come is None:
                # Every quiet second: an engine that ended is not waited for.
                current_engine(run)
                continue
            _index, reply, seconds = come
            if reply.status == 0 and seconds >= left_s:
                raise late
            if reply.status != 200:
                raise SlotFault(
                    f"the warm-up of {profile.unit} failed: {words_of(shape)}",
                    expected="200",
                    got=reply.error or f"{reply.status} {reply.text[:200]}".strip(),
                )
