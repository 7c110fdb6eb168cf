# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to an engine that reports room. The room is only computed; these requests use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from .._evidence.streams import figures
from .._slot.ask import token_prompts
from .._slot.ask.stream import STREAMED
from .._slot.model.profile import Profile
from .._slot.words.effects import Effects


@dataclass(frozen=True)
class LoadProbe:
    """Requests of one size, all at once. warm_ups: the number of requests before them, one by one, that don't count."""

    name: str
    words: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    warm_ups: int = 0


def probes(length: int, sequences: int) -> tuple[LoadProbe, ...]:
    """Return the lab's shapes, as far as the length has room, and as many full-length sequences as are searched for."""
    prompt, end = min(100, length // 2), min(16, length // 2)
    return (
        LoadProbe("ttft", "to the first token", 1, prompt, 1, warm_ups=1),
        LoadProbe("decode", "to decode", sequences, prompt, min(128, length - prompt)),
        LoadProbe("near_limit", "near the limit", sequences, length - end, end),
    )


def bodies(profile: Profile, probe: LoadProbe, known: Sequence[int], turn: int) -> list[dict[str, Any]]:
    """Return the warm-ups of a probe, and its requests. turn: how many requests were made before."""
    return [
        {**token_prompts.body(profile, known, index, probe.prompt_tokens, probe.output_tokens), **STREAMED}
        for index in range(turn, turn + probe.warm_ups + probe.requests)
    ]


def send(
    fx: Effects,
    profile: Profile,
    probe: LoadProbe,
    sent: Sequence[Mapping[str, Any]],
    timeout_s: float,
    look: Callable[[], object],
) -> dict[str, Any]:
    """Return the figures of a probe. look: is called in each quiet second; an exception from it ends the wait."""
    url, replies = f"{profile.engine.backend_url}{token_prompts.PATH}", []
    for body in sent[: probe.warm_ups]:
        fx.http.post(url, body, timeout_s)
    begun = fx.clock.monotonic()
    with closing(fx.http.post_together(url, sent[probe.warm_ups :], timeout_s)) as coming:
        for come in coming:
            if come is None:
                look()
            else:
                replies.append(come[1:])
    return figures(replies, fx.clock.monotonic() - begun)
