# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of a cycle: requests of one size, all at once, and their figures. Only `send` is not pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from .._evidence.streams import figures
from .._slot.ask import canary
from .._slot.ask.stream import STREAMED
from .._slot.kinds.table import kind_of
from .._slot.model.profile import Profile
from .._slot.words.effects import Effects
from .judging import SoakPlan

_WORDS = ("satin", "cobalt", "orbit", "maple", "ember", "lagoon", "quartz", "thistle", "harbour", "violet")


def bodies(profile: Profile, plan: SoakPlan, number: int, salt: str) -> list[dict[str, Any]]:
    """Return the requests of cycle `number`; none if the model writes no text. No prompt is in the prefix cache."""
    if profile.engine.task != "generate":
        return []
    words, room = plan.prompt_words, plan.output_tokens
    if profile.engine.max_model_len is not None:
        words = min(words, profile.engine.max_model_len // 8)
        room = min(room, profile.engine.max_model_len - 3 * words)  # a word takes up to three tokens
    made = []
    for index in range(plan.concurrency):
        begins = number * 7 + index * 3
        text = " ".join(_WORDS[(begins + step * (1 + index % 3)) % len(_WORDS)] for step in range(max(1, words - 8)))
        body: dict[str, Any] = {
            "model": profile.engine.served_model_name,
            "messages": [{"role": "user", "content": f"Tell a long story with all of these words: {text}"}],
            "max_tokens": max(1, room),
            "temperature": 0,
            "seed": profile.canary.seed + number * 1000 + index,
            **STREAMED,
        }
        whole = kind_of(profile.engine.kind).full_length(body)
        made.append(canary.salted(profile, whole, f"{salt}-{index}"))
    return made


def send(fx: Effects, profile: Profile, plan: SoakPlan, number: int) -> Mapping[str, Any] | None:
    """Send the load of a cycle to the engine, wait for all answers and return the figures; None if there is no load."""
    sent = bodies(profile, plan, number, f"soak-{fx.clock.monotonic():.6f}")
    if not sent:
        return None
    begun = fx.clock.monotonic()
    url, replies = f"{profile.engine.backend_url}{canary.PATH}", []
    with closing(fx.http.post_together(url, sent, plan.request_timeout_s)) as coming:
        for come in coming:
            if come is not None:
                replies.append(come[1:])
    return figures(replies, fx.clock.monotonic() - begun)
