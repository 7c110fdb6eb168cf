# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A long prompt out of few words: plain sentences with a note among them, and the question at the end. Pure.

A short question never fills more than one batch of a prefill. What goes wrong only in a long one (chunks, the cache of
keys and values, attention far back) shows when the answer stands thousands of tokens before its question.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .decode import ShapeError

ADJECTIVES = ("old", "small", "quiet", "heavy", "bright", "long", "cold", "early", "open", "simple")
NOUNS = ("house", "train", "garden", "letter", "table", "city", "road", "story", "machine", "water", "morning")
VERBS = ("finds", "carries", "follows", "watches", "paints", "keeps", "moves", "turns", "reads", "leaves")
TOKENS_PER_SENTENCE = 8  # "The old house follows the road." is 7 in most tokenizers, with a little to spare
SHARE = 0.75  # of the context at most, whatever a tokenizer makes of the sentences
ASIDE = 64  # tokens for the note, the question and the chat template


@dataclass(frozen=True)
class Long:
    """The properties of a long prompt. tokens: about so many, less where the context is shorter. depth: where the note
    stands, 0 at the beginning, 1 right before the question."""

    note: str
    tokens: int = 6000
    depth: float = 0.25

    def check(self) -> None:
        if not 0 <= self.depth <= 1:
            raise ShapeError("depth", f"is {self.depth:g}, wanted 0 to 1")


def sentences_for(long: Long, max_model_len: int | None, max_tokens: int) -> int:
    """Return how many sentences a prompt gets; max_tokens: what the answer needs of the context."""
    room = long.tokens
    if max_model_len is not None:
        room = min(room, int(max_model_len * SHARE) - max_tokens)
    return max(0, room - ASIDE) // TOKENS_PER_SENTENCE


def sentences(count: int, seed: int) -> list[str]:
    """Return the same sentences for the same seed, wherever and whenever."""
    rng = random.Random(seed)

    def pick(words: tuple[str, ...]) -> str:
        return words[int(rng.random() * len(words))]  # choice() may change with the version of Python

    return [f"The {pick(ADJECTIVES)} {pick(NOUNS)} {pick(VERBS)} the {pick(NOUNS)}." for _number in range(count)]


def prompt(long: Long, question: str, *, max_model_len: int | None, max_tokens: int, seed: int) -> str:
    """Return sentences, the note at its depth, more sentences, and the question."""
    told = sentences(sentences_for(long, max_model_len, max_tokens), seed)
    place = round(len(told) * long.depth)
    return " ".join([*told[:place], long.note, *told[place:], question])
