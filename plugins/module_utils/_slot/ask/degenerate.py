# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that no sound model writes: empty, unprintable, or one thing over and over. Pure.

The limits are such that honest answers pass: a rule of dashes, a number with many zeros, a refrain, "no, no, no".
What is a wrong answer in clean words is the expectation's business, not this one's.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

WHOLE_CHARS, WHOLE_TIMES = 8, 4  # an answer that is nothing but one short piece, this long and this often
RUN_CHARS = 16  # one character in a row: a trillion has 12 zeros
LOOP_CHARS, LOOP_TIMES = 32, 8  # a piece of 2 to 8 characters in a row, anywhere
WORD_TIMES = 8  # one word in a row
PHRASE_WORDS, PHRASE_TIMES = 16, 4  # a phrase of 2 to 8 words in a row
LONGEST = 8  # characters of a piece, words of a phrase
_RULES = frozenset("-=_*~#.|:+─═│━ \t\n\r")  # what lines and tables are drawn with


def degenerate(text: str) -> str:
    """Return why this text is no language at all, or "" when nothing is wrong with it."""
    stripped = text.strip()
    if not stripped:
        return "the answer is empty"
    return unprintable(stripped) or _whole(stripped) or _words(stripped.split()) or _characters(stripped)


def unprintable(text: str) -> str:
    """Return why this text holds what nobody writes, or ""."""
    if "\ufffd" in text:
        return "the answer holds replacement characters (U+FFFD)"
    if text.isprintable():
        return ""
    for char in text:
        kind = unicodedata.category(char)
        if kind in ("Cc", "Cs", "Co") and char not in "\t\n\r":
            names = {"Cc": "control characters", "Cs": "halves of characters", "Co": "characters of no alphabet"}
            return f"the answer holds {names[kind]} (U+{ord(char):04X})"
    return ""


def _whole(text: str) -> str:
    if len(text) < WHOLE_CHARS:
        return ""
    for period in range(1, min(LONGEST, len(text) // WHOLE_TIMES) + 1):
        if _in_a_row(text, period) == len(text):
            return f"the answer is nothing but {text[:period]!r}, {len(text) // period} times"
    return ""


def _characters(text: str) -> str:
    number = int.from_bytes(text.encode("utf-32-le", "surrogatepass")[::4], "big")
    for period in range(1, LONGEST + 1):
        limit = RUN_CHARS if period == 1 else max(LOOP_CHARS, LOOP_TIMES * period)
        if not _may_repeat(number, len(text), period, limit):
            continue
        start, length = _longest(text, period)
        piece = text[start : start + period]
        drawn = _RULES.issuperset(piece) and 2 * length <= len(text)
        if length >= limit and not drawn:
            return f"the answer repeats {piece!r} {length // period} times in a row"
    return ""


def _words(words: Sequence[str]) -> str:
    codes = {word: code & 255 for code, word in enumerate(set(words))}
    number = int.from_bytes(map(codes.__getitem__, words), "big")
    for period in range(1, LONGEST + 1):
        limit = WORD_TIMES if period == 1 else max(PHRASE_WORDS, PHRASE_TIMES * period)
        if not _may_repeat(number, len(words), period, limit):
            continue
        start, length = _longest(words, period)
        phrase = words[start : start + period]
        if length >= limit and not _RULES.issuperset("".join(phrase)):
            what = "word" if period == 1 else "words"
            return f"the answer repeats the {what} {' '.join(phrase)!r} {length // period} times in a row"
    return ""


def _may_repeat(number: int, count: int, period: int, limit: int) -> bool:
    """Return whether a stretch of so many of the items may repeat with the period.

    number: a byte for each item, which is the same for the same items. Live streams are judged, too, so all items are
    compared at once: where one equals that of a period before, the number and the shifted number differ by 0.
    """
    if count < limit:
        return False
    different = number ^ (number >> 8 * period)
    return different.to_bytes(count, "big").find(bytes(limit - period), period) >= 0


def _in_a_row(items: Sequence[str], period: int) -> int:
    """Return how many items from the first on repeat with the period, the first round included."""
    length = min(period, len(items))
    while length < len(items) and items[length] == items[length - period]:
        length += 1
    return length


def _longest(items: Sequence[str], period: int) -> tuple[int, int]:
    """Return where the longest stretch that repeats with the period begins, and its length with the first round."""
    best, where, length = min(period, len(items)), 0, min(period, len(items))
    for index in range(period, len(items)):
        length = length + 1 if items[index] == items[index - period] else period
        if length > best:
            best, where = length, index - length + 1
    return where, best
