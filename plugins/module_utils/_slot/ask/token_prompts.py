# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prompts of an exact length: they are tokens, those of plain words as the engine makes them.

Each is turned by another step, so that no prompt begins like another and none is found in the prefix cache. They begin
alike again only after as many requests as there are tokens, 600 at least.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..kinds.table import kind_of
from ..model.profile import Profile
from ..words import needle
from ..words.effects import Effects
from ..words.types import SlotFault

PATH, TOKENIZE = "/v1/completions", "/tokenize"
SENTENCES = 100
_SEED = 20260607
_STEP = 7  # tokens, about a sentence; a prime


def tokens(fx: Effects, profile: Profile, timeout_s: float) -> list[int]:
    """Return tokens of plain words, as the engine makes them; raise SlotFault where it makes none."""
    text = " ".join(needle.sentences(SENTENCES, _SEED))
    asked = kind_of(profile.engine.kind).tokenize(profile.engine.served_model_name, text) or {"prompt": text}
    reply = fx.http.post(f"{profile.engine.backend_url}{TOKENIZE}", asked, timeout_s)
    try:
        found = json.loads(reply.text)["tokens"]
        if reply.status == 200 and found and all(isinstance(token, int) for token in found):
            return list(found)
    except (ValueError, LookupError, TypeError):
        pass
    raise SlotFault(
        f"the engine does not tokenize at {TOKENIZE}, so no prompt of a known length can be sent",
        expected="200 and a list of tokens",
        got=reply.error or f"{reply.status} {reply.text[:200]}",
    )


def body(profile: Profile, known: Sequence[int], turn: int, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return a request with prompt and answer of so many tokens.

    known: see `tokens`. turn: how many requests were made before.
    """
    if len(known) % _STEP == 0:
        known = known[:-1]  # the steps would come back to the same few places
    begins = turn * _STEP % len(known)
    turned = [*known[begins:], *known[:begins]]
    made = {
        "model": profile.engine.served_model_name,
        "prompt": (turned * (prompt_tokens // len(turned) + 1))[:prompt_tokens],
        "max_tokens": output_tokens,
        "temperature": 0,
    }
    return kind_of(profile.engine.kind).full_length(made)
