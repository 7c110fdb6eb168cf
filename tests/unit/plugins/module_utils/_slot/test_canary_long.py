# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long prompts: the same every time, never longer than the context, the note at its depth."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words import needle
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.needle import Long

NOTE, QUESTION = "Remember the key word orbit.", "Which key word were you to remember?"


def made(tokens=6000, depth=0.25, length=32768, answer=8, seed=1):
    return needle.prompt(Long(NOTE, tokens, depth), QUESTION, max_model_len=length, max_tokens=answer, seed=seed)


def test_the_same_seed_makes_the_same_prompt_on_every_host_and_python():
    assert hashlib.sha256(made(tokens=1000).encode()).hexdigest() == (
        "1f06250947dfd253f2ba5ae8186d715b4b2a435a33b8109bd0e93647a60ea24d"
    )
    assert made(seed=1) != made(seed=2)


def test_a_prompt_of_six_thousand_tokens_is_about_that_long():
    words = len(made().split())
    # Six words and a full stop are seven tokens in most tokenizers.
    assert 1.2 * words > 4096
    assert 1.3 * words < 6000


def test_the_note_stands_at_its_depth_and_the_question_at_the_end():
    for depth in (0, 0.25, 0.5, 1):
        text = made(depth=depth)
        assert text.count(NOTE) == 1
        assert text.endswith(QUESTION)
        assert abs(text.index(NOTE) / (len(text) - len(NOTE) - len(QUESTION)) - depth) < 0.01


@given(st.integers(0, 100_000), st.integers(16, 200_000), st.integers(1, 64), st.floats(0, 1))
def test_a_prompt_fits_into_any_context(tokens, length, answer, depth):
    count = needle.sentences_for(Long(NOTE, tokens, depth), length, answer)
    # Eight tokens a sentence are more than they have.
    needed = count * needle.TOKENS_PER_SENTENCE + needle.ASIDE + answer
    assert count == 0 or needed <= length * needle.SHARE
    assert count * needle.TOKENS_PER_SENTENCE <= tokens


def test_a_context_that_is_not_known_does_not_limit():
    assert needle.sentences_for(Long(NOTE, 6000), None, 8) == (6000 - needle.ASIDE) // needle.TOKENS_PER_SENTENCE


def test_a_context_with_no_room_leaves_the_note_and_the_question():
    assert made(length=64) == f"{NOTE} {QUESTION}"
