# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of generations that a request asks for: each takes a permit, and all other work takes one. Pure.

What counts is what the engine makes of a request (vLLM 0.20.1, 0.21.0 and 0.32.0 alike): of each prompt of a
completion, and of the one of a chat, it runs `n` sequences at a time; with beam search `n` is the number of beams.
`best_of`, which these releases read no more, counts as `n` where it is larger, as other engines mean it. A list of
numbers is one prompt, in tokens; any other list is a list of prompts, and embedded prompts come on top. Numbers may
come as texts. A scoring takes one permit whatever it compares: each of its items is read, and then one token is all.
"""

from __future__ import annotations

from typing import Any, Final

from frontdoor.config import NUMBERS
from frontdoor.errors import Refusal, too_many_generations
from frontdoor.policy.document import BROKEN, ENCODING, NOT_AN_OBJECT, Document
from frontdoor.policy.outline import MARK
from frontdoor.policy.routes import BATCH, CHAT, COMPLETION, COMPLETIONS, GENERATE, GENERATION_PATHS, INFILL, PARAMETERS

# the members of a request that are its prompts
_PROMPTS = {
    **dict.fromkeys((COMPLETIONS, COMPLETION, INFILL), ("prompt", "prompt_embeds")),
    **dict.fromkeys((CHAT, GENERATE), ()),
    BATCH: ("messages",),
}
# llama.cpp's own word for it
_NUMBERS: Final = (*NUMBERS, "n_cmpl")
# more than any limit
_ANY = 2**31


ONE: Final = 1, 1


def asked(path: str, document: Document) -> tuple[int, int] | Refusal:
    """Return how many prompts a request asks for, and of each how many generations; or why that is unknown."""
    if path not in _PROMPTS:
        return ONE
    content = document.content
    if isinstance(content, Refusal):
        # the engine refuses what is no object
        return ONE if content is NOT_AN_OBJECT or content is BROKEN else content
    holder = content.get(PARAMETERS) if path == GENERATE else content
    each = max([_number(holder.get(name)) for name in _NUMBERS]) if isinstance(holder, dict) else 1
    prompts = sum([_prompts(content.get(name)) for name in _PROMPTS[path]])
    return max(1, prompts), each


def _number(value: Any) -> int:
    """Return a number as generous readers take it; 1 for what none does."""
    if value is None:
        # most requests name none, and to raise for each takes a tenth of all that a request does
        return 1
    try:
        if isinstance(value, str):
            # one that was cut may be a number to a generous reader
            value = _ANY if MARK in value else float(value)
        return max(1, int(value)) if not isinstance(value, bool) and value == int(value) else 1
    except (TypeError, ValueError, OverflowError):
        return 1


def _prompts(value: Any) -> int:
    """Return how many prompts a value is."""
    if not isinstance(value, list):
        return int(value is not None)
    return 1 if value and isinstance(value[0], int | float) and not isinstance(value[0], bool) else len(value)


def permits_of(path: str, document: Document, limit: int) -> int | Refusal:
    """Return how many permits the work takes, or why it can never have them.

    An engine takes the prompts of one request in turn, so more of them than there are permits take all. The generations
    of one prompt run at once.
    """
    if path not in GENERATION_PATHS:
        # one pass over each text, of which the engine takes as many at a time as it has room for
        return 1
    if document.foreign:
        return ENCODING
    wanted = asked(path, document)
    if isinstance(wanted, Refusal):
        return wanted
    prompts, each = wanted
    return too_many_generations(each, limit) if each > limit else min(prompts * each, limit)
