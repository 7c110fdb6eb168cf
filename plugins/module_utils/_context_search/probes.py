# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to an engine that says it has room: the room is only computed, and these use it.

Prompts are tokens, so they are exactly as long as they should be. They are those of plain words, turned by another
step in each request, so that no prompt begins like another and none is found in the prefix cache. They begin alike
again only after as many requests as there are tokens, 600 at least.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from .._evidence.streams import STREAMED, figures
from .._slot import needle
from .._slot.effects import Effects
from .._slot.kinds.table import kind_of
from .._slot.profile import Profile
from .._slot.types import SlotFault

PATH, TOKENIZE = "/v1/completions", "/tokenize"
SENTENCES = 100
_SEED = 20260607
_STEP = 7  # tokens, about a sentence; a prime


@dataclass(frozen=True)
class Probe:
    """Requests of one size, all at once. warm_ups: as many before them, one by one, which count for nothing."""

    name: str
    words: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    warm_ups: int = 0


def probes(length: int, sequences: int) -> tuple[Probe, ...]:
    """The lab's shapes, as far as the length has room for them, and as many sequences of full length as there is room
    for."""
    prompt, end = min(100, length // 2), min(16, length // 2)
    return (
        Probe("ttft", "to the first token", 1, prompt, 1, warm_ups=1),
        Probe("decode", "to decode", sequences, prompt, min(128, length - prompt)),
        Probe("near_limit", "near the limit", sequences, length - end, end),
    )


def tokens(fx: Effects, profile: Profile, timeout_s: float) -> list[int]:
    """Tokens of plain words, as the engine makes them. Raises SlotFault where it makes none."""
    text = " ".join(needle.sentences(SENTENCES, _SEED))
    asked = {"model": profile.engine.served_model_name, "prompt": text, "add_special_tokens": False}
    reply = fx.http.post(f"{profile.engine.backend_url}{TOKENIZE}", asked, timeout_s)
    try:
        found = json.loads(reply.text)["tokens"]
        if reply.status == 200 and found and all(isinstance(token, int) for token in found):
            return list(found)
    except (ValueError, LookupError, TypeError):
        pass
    raise SlotFault(
        f"the engine makes no tokens at {TOKENIZE}, so no prompt can fill its context; probe_timeout 0 sends none",
        got=reply.error or f"{reply.status} {reply.text[:200]}",
    )


def bodies(profile: Profile, probe: Probe, known: Sequence[int], turn: int) -> list[dict[str, Any]]:
    """The warm-ups of a probe, and its requests. turn: how many requests were made before."""
    made = []
    if len(known) % _STEP == 0:
        known = known[:-1]  # the steps would come back to the same few places
    for index in range(turn, turn + probe.warm_ups + probe.requests):
        begins = index * _STEP % len(known)
        turned = [*known[begins:], *known[:begins]]
        body = {
            "model": profile.engine.served_model_name,
            "prompt": (turned * (probe.prompt_tokens // len(turned) + 1))[: probe.prompt_tokens],
            "max_tokens": probe.output_tokens,
            "temperature": 0,
            **STREAMED,
        }
        made.append(kind_of(profile.engine.kind).full_length(body))
    return made


def send(
    fx: Effects,
    profile: Profile,
    probe: Probe,
    sent: Sequence[Mapping[str, Any]],
    timeout_s: float,
    look: Callable[[], object],
) -> dict[str, Any]:
    """The figures of a probe. look: is called in each quiet second, and raises what ends the wait."""
    url, replies = f"{profile.engine.backend_url}{PATH}", []
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
