# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured for a profile, and what is left out and why."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import (
    SHAPES,
    Limits,
    RequestShape,
    RequestShapeError,
    chosen,
    ladder,
    limits_of,
    shape_of,
)

WIDE = Limits(context=None, output=None, streams=4, queues=True)


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])])
def test_streams_double_up_to_what_is_admitted(most: int, counts: list[int]) -> None:
    assert ladder(most) == counts


def test_a_shape_that_does_not_fit_is_left_out_with_its_reason() -> None:
    limits = Limits(context=2048, output=256, streams=2, queues=False)
    kept, streams, out = chosen([SHAPES["short-128"], SHAPES["28k-128"], SHAPES["short-512"]], [1, 4], limits)
    assert ([shape.name for shape in kept], streams) == (["short-128"], [1])
    assert out == [
        {"shape": "28k-128", "reason": "needs 28800 tokens, and the profile admits 2048 (max_model_len)"},
        {"shape": "short-512", "reason": "asks for 512 tokens, and the frontdoor gives 256 (max_tokens_cap)"},
        {"streams": 4, "reason": "the frontdoor admits 2 generations and queues none (queue_timeout_s is 0)"},
    ]


def test_a_frontdoor_that_queues_takes_more_streams() -> None:
    assert chosen([SHAPES["short-128"]], [1, 16, 16], WIDE) == ([SHAPES["short-128"]], [1, 16], [])


def test_the_limits_are_those_of_the_profile() -> None:
    profile = {
        "engine": {"max_model_len": 2048},
        "frontdoor": {"max_active_generations": 2, "queue_timeout_s": 0, "max_tokens_cap": None},
    }
    assert limits_of(profile) == Limits(2048, None, 2, False)


def test_own_shapes_need_only_their_sizes() -> None:
    assert shape_of({"prompt_tokens": 1000, "output_tokens": 100}) == RequestShape("1000-100", 1000, 100, 3)
    assert shape_of("2k-512") is SHAPES["2k-512"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("2k", "the shape '2k' is not known; there are random-512-1536, 2k-128"),
        ({"prompt": 5}, "a shape has no prompt"),
        ({"name": "x", "prompt_tokens": 5}, "output_tokens of the shape 'x' is a whole number from 1 on"),
        ({"name": "x", "prompt_tokens": True, "output_tokens": 1}, "prompt_tokens of the shape 'x'"),
    ],
)
def test_a_wrong_shape_is_named(given: Any, words: str) -> None:
    with pytest.raises(RequestShapeError, match=words):
        shape_of(given)
