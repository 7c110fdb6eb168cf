# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Degenerate text: what an engine in trouble writes is found, what a sound one writes passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.degenerate import LONGEST, degenerate

ROOT = Path(__file__).parents[5]
HONEST = (
    "OK",
    "7",
    "Red",
    "satin cobalt orbit",
    "I am tiny-a.",
    "No, no, no.",
    "1000000000000",
    "The number is 1,000,000,000,000,000.",
    "11111111 in binary is 255.",
    "Ha ha ha ha ha!",
    "hahahaha, good one",
    "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream.",
    "We all live in a yellow submarine, yellow submarine, yellow submarine.",
    "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen.",
    "| a | b |\n|---------------------|---------------------|\n| the first of all words | the last of all words |",
    "Chapter 1 ........................................ 3, which is the first chapter of this book, and the next is 4",
    "def f():\n                        return 1  # indented deeply, as in a nested block of some length or other",
    "A red house. A blue house. A green house. A white house. A black house.",
    "今日は天気がいいですね。散歩に行きましょう。",
    "👩‍👩‍👧‍👦 is a family",
    "a\tb\nc\r\nd",
    "Это красный цвет.",
)
# What engines in trouble wrote, or what the upstream lab and its peers report of theirs.
GARBAGE = (
    ("", "empty"),
    (" \n\t ", "empty"),
    ("!!!!!!!!", "nothing but '!', 8 times"),
    ("!" * 40, "nothing but '!'"),
    ("The answer is" + "!" * 16, "repeats '!' 16 times"),
    ("0" * 64, "nothing but '0'"),
    ("<unk><unk><unk><unk>", "nothing but '<unk>', 4 times"),
    ("的是" * 4, "nothing but '的是'"),
    ("Sure. " + "ab" * 16, "repeats 'ab' 16 times"),
    ("the the the the the the the the", "'the '"),
    ("It is the the the the the the the the end", "word 'the' 8 times"),
    ("So it goes on and on and on and on and on and on and on and on and on", "words 'on and' 8 times"),
    (
        "The cat sat on it. The cat sat on it. The cat sat on it. The cat sat on it.",
        "words 'The cat sat on it.' 4 times",
    ),
    ("a\ufffdb", "replacement characters (U+FFFD)"),
    ("a\x00b", "control characters (U+0000)"),
    ("a\x1b[31mb", "control characters (U+001B)"),
    ("a\x85b", "control characters (U+0085)"),
    ("a\ud83db", "halves of characters (U+D83D)"),
    ("a\ue000b", "characters of no alphabet (U+E000)"),
    ("-" * 40, "nothing but '-'"),
    ("OK " + "-" * 40, "repeats '-' 40 times"),
)
WORDS = st.lists(
    st.sampled_from("the old house follows road Red 7 OK not is was my key word orbit".split()), min_size=1
)


@pytest.mark.parametrize("text", HONEST)
def test_honest_answers_pass(text):
    assert degenerate(text) == ""


def test_what_people_wrote_passes():
    """Paragraphs, tables, code and licences of this checkout."""
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "LICENSE",
        *ROOT.glob("plugins/module_utils/_slot/*/*.py"),
    ]
    texts = [text for file in files for text in file.read_text(encoding="utf-8").split("\n\n") if text.strip()]
    assert len(texts) > 500
    assert [text for text in texts if degenerate(text)] == []


@pytest.mark.parametrize(("text", "words"), GARBAGE)
def test_garbage_is_named(text, words):
    assert words in degenerate(text)


@given(st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=LONGEST), st.integers(8, 300))
def test_a_piece_over_and_over_is_found_whatever_it_is(piece, times):
    assert degenerate(piece * times)


@given(WORDS.filter(lambda words: len(words) <= LONGEST), WORDS, st.integers(16, 60))
def test_a_phrase_over_and_over_is_found_wherever_it_stands(phrase, before, times):
    text = " ".join([*before[:20], *(phrase * times), "and", "then"])
    assert "repeats" in degenerate(text) or "nothing but" in degenerate(text)


@given(st.lists(st.integers(0, 9999), unique=True, min_size=1, max_size=60))
def test_words_that_never_repeat_pass(numbers):
    assert degenerate(" ".join(f"word{number:04d}" for number in numbers)) == ""


@given(st.text(max_size=400))
def test_any_text_is_judged_and_white_space_around_it_does_not_matter(text):
    assert degenerate(f" \n{text}\t") == degenerate(text)


@given(st.text(st.characters(categories=["L"]), max_size=60), st.sampled_from("\ufffd\x00\x07\x1b\x7f\ud800\udfff"))
def test_one_bad_character_is_enough(text, bad):
    assume(text.strip())
    assert degenerate(f"{text}{bad}{text}")
