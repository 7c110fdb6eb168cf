# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for a length: the published example, other shapes, and any shape against trying every length."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._context_search.lengths import (
    Bounds,
    SearchEnd,
    Trial,
    next_length,
)

# Of the published search for 64 sequences: length and tokens of the cache.
TABLE = ((4096, 291995), (4480, 292317), (4864, 292589), (7680, 405664), (10368, 507081), (15616, 667253))


def published(length: int) -> int:
    """The tokens of the table, and between its rows those on the line through them."""
    lengths = [row[0] for row in TABLE]
    place = min(max(bisect_left(lengths, length), 1), len(TABLE) - 1)
    (left, low), (right, high) = TABLE[place - 1], TABLE[place]
    return round(low + (high - low) * (length - left) / (right - left))


def search(
    tokens: Callable[[int], int | None], target: int, granularity: int, bounds: Bounds
) -> tuple[int | None, list[int]]:
    """(the length that was found, the lengths that were tried)."""
    trials: list[Trial] = []
    while True:
        step = next_length(trials, target, granularity, bounds)
        if isinstance(step, SearchEnd):
            return step.length, [trial.length for trial in trials]
        assert step not in [trial.length for trial in trials]
        assert step % granularity == 0
        assert bounds.least <= step <= bounds.most
        found = tokens(step)
        trials.append(Trial(step, found, 0.0 if found is None else found / step))
        assert len(trials) < 40


def test_the_published_table() -> None:
    found, tried = search(published, 64, 128, Bounds(1024, 15616))
    assert found == 4480
    assert tried[:2] == [15616, 10368]
    assert len(tried) <= 6


def test_the_rows_of_the_table_lead_to_its_selection() -> None:
    """Given exactly the published trials, in their order, the search says what was selected."""
    rows = [(15616, 42.73), (10368, 48.91), (7680, 52.82), (4864, 60.15), (4096, 71.29)]
    trials = [Trial(length, dict(TABLE)[length], concurrency) for length, concurrency in rows]
    assert [trial.passes(64) for trial in trials] == [False, False, False, False, True]
    assert next_length(trials, 64, 128, Bounds(1024, 15616)) in (4352, 4480)
    trials.append(Trial(4480, 292317, 65.25))
    assert next_length(trials, 64, 128, Bounds(1024, 15616)) == SearchEnd(4480)


def test_constant_tokens_take_two_starts() -> None:
    assert search(lambda length: 300_000, 64, 128, Bounds(128, 32768)) == (4608, [32768, 4608])


def test_all_pass() -> None:
    assert search(lambda length: 10_000_000, 64, 128, Bounds(128, 15616)) == (15616, [15616])


def test_none_passes() -> None:
    found, tried = search(lambda length: 500, 64, 128, Bounds(128, 15616))
    assert found is None
    assert len(tried) == 1
    assert search(lambda length: 100 * length // 2, 64, 128, Bounds(128, 1024))[0] is None


def test_lengths_with_which_the_engine_does_not_start() -> None:
    found, tried = search(lambda length: None if length > 8000 else 300_000, 64, 128, Bounds(128, 262144))
    assert found == 4608
    assert len(tried) <= 12


def test_what_the_engine_says_would_fit_is_a_bound() -> None:
    trials = [Trial(262144, None, 0.0, most=131072)]
    step = next_length(trials, 8, 128, Bounds(128, 262144))
    assert isinstance(step, int)
    assert step <= 131072 // 8


def test_bounds_without_a_multiple_between_them() -> None:
    assert next_length([], 64, 128, Bounds(129, 255)) == SearchEnd(None)
    assert next_length([], 64, 128, Bounds(100, 300)) == 256


@given(st.randoms(use_true_random=True))
@settings(max_examples=300)
def test_any_shape_that_grows(chance: random.Random) -> None:
    """Tokens that grow by any steps, less than in proportion: the answer is that of trying every length."""
    granularity, target = chance.choice([16, 64, 128, 384]), chance.choice([1, 2, 8, 12, 64])
    bounds = Bounds(granularity, granularity * chance.randint(1, 300))
    base = chance.randint(1, target * bounds.most)
    tokens: dict[int, int | None] = {}
    grown, starts_until = base, bounds.most if chance.random() < 0.7 else chance.randint(1, bounds.most)
    for length in range(granularity, bounds.most + 1, granularity):
        grown += chance.choice([0, 0, 0, chance.randint(0, target * granularity - 1)])
        tokens[length] = grown if length <= starts_until else None
    passing = [length for length, count in tokens.items() if count is not None and count / length >= target]
    found, tried = search(tokens.__getitem__, target, granularity, bounds)
    assert found == max(passing, default=None)
    assert len(tried) <= 20
