# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures beside figures: only like with like, and nothing worse passes unnoticed."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import comparison
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import Band
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import SHAPES, RequestShape
from unit.plugins.module_utils._evidence.records import HOST

from .benchmarks import data, figures

BAND = Band(rate=0.1, ttft=0.25)


def earlier() -> dict[str, Any]:
    return {
        "id": "before",
        "began_at": "2026-11-22T04:16:00Z",
        "fingerprint": "sha256:1",
        "profile": "tiny-a",
        "host": HOST,
        "data": {**data(), "generator": {"name": "guidellm", "version": "0.8.1"}},
    }


def test_the_first_record_is_compared_with_nothing() -> None:
    found = comparison.compare(data(), None, BAND)
    assert (found["with"], found["rows"], found["regressions"]) == (None, [], [])


def test_noise_is_no_regression() -> None:
    found = comparison.compare(data(frontdoor=95.0), earlier(), BAND)
    assert found["with"] == {
        "id": "before",
        "began_at": "2026-11-22T04:16:00Z",
        "fingerprint": "sha256:1",
        "host": "b70-01",
    }
    assert len(found["rows"]) == 16  # 2 numbers of streams, 2 ways, cold and warm, 2 figures
    assert found["regressions"] == []


def test_what_is_slower_than_the_band_is_a_regression() -> None:
    found = comparison.compare(data(frontdoor=60.0), earlier(), BAND)
    assert len(found["regressions"]) == 4
    assert found["regressions"][0] == (
        "short-128 c1 frontdoor cold: wall_tok_s is 48.6076, 0.68 of 71.9101 (limit 0.90)"
    )
    assert not any("engine" in text for text in found["regressions"])


def test_a_later_first_token_is_a_regression() -> None:
    now = data()
    now["shapes"]["short-128"]["scenarios"]["c4"]["engine"]["warm"]["ttft_s"]["p50"] = 0.7
    assert comparison.compare(now, earlier(), BAND)["regressions"] == [
        "short-128 c4 engine warm: ttft_s.p50 is 0.7, 1.40 of 0.5 (limit 1.25)"
    ]


def test_a_shape_that_has_changed_is_compared_with_nothing() -> None:
    now = data(frontdoor=10.0)
    now["shapes"]["short-128"]["prompt_tokens"] = 120
    found = comparison.compare(now, earlier(), BAND)
    assert (found["rows"], len(found["missing"])) == ([], 8)


def test_cold_is_never_compared_with_warm() -> None:
    now = data(frontdoor=10.0)
    for scenario in now["shapes"]["short-128"]["scenarios"].values():
        scenario["frontdoor"].pop("cold")
    before = earlier()
    for scenario in before["data"]["shapes"]["short-128"]["scenarios"].values():
        scenario["frontdoor"].pop("warm")
    rows = comparison.compare(now, before, BAND)["rows"]
    assert {row["scenario"].split()[2] for row in rows} == {"engine"}


def test_what_the_baseline_has_no_figure_of_is_named() -> None:
    found = comparison.compare(data(), few := only("frontdoor", "cold"), BAND)
    assert (found["with"]["id"], len(found["rows"]), len(found["missing"])) == ("before", 4, 6)
    assert "short-128 c4 engine cold" in found["missing"]
    assert comparison.compare(few["data"], earlier(), BAND)["missing"] == []


def only(target: str, prefix: str) -> dict[str, Any]:
    """The baseline with one way and prefix."""
    found = earlier()
    for scenario in found["data"]["shapes"]["short-128"]["scenarios"].values():
        kept = {prefix: scenario[target][prefix]}
        del scenario["frontdoor"], scenario["engine"]
        scenario[target] = kept
    return found


def test_the_share_of_the_frontdoor_is_seen() -> None:
    rows = comparison.shares(data())
    assert len(rows) == 4
    assert rows[0] == {"shape": "short-128", "streams": 1, "prefix": "cold", "wall_ratio": 0.9346, "ttft_added_s": 0.0}


EVIDENCE = {
    "host_class": "4 x B70",
    "tok_s": [
        {"value": 80.0, "measure": "wall", "streams": 1, "prompt_tokens": 123, "output_tokens": 128},
        {"value": 90.0, "measure": "decode", "streams": 4, "prompt_tokens": 123, "output_tokens": 128},
        {"value": 70.0, "measure": "wall", "streams": 1, "prompt_tokens": 2072, "output_tokens": 128},
        {"value": 60.0, "streams": 1, "prompt_tokens": 123, "output_tokens": 128, "note": "draft tokens"},
    ],
}


def test_what_the_catalogue_recorded_on_such_a_host_is_expected() -> None:
    rows = comparison.expectations(EVIDENCE, "4 x B70", data())
    assert [(row["scenario"], row["ratio"]) for row in rows] == [
        ("short-128 c1 frontdoor cold", 0.8989),
        ("short-128 c4 frontdoor cold", 4.4444),
        (None, None),
        (None, None),
    ]


def test_a_figure_of_another_host_class_is_no_expectation() -> None:
    rows = comparison.expectations(EVIDENCE, "no cards, some processor", data())
    assert [row["ratio"] for row in rows] == [None] * 4
    assert rows[0]["now"] == 71.9101
    assert comparison.expectations(None, "4 x B70", data()) == []


def test_what_is_read_of_an_earlier_record_is_enough() -> None:
    short = comparison.essence(earlier())
    assert comparison.compare(data(frontdoor=60.0), short, BAND) == comparison.compare(
        data(frontdoor=60.0), earlier(), BAND
    )
    assert comparison.essence(short) == short


def test_what_would_be_compared_is_known_before_it_is_measured() -> None:
    def seen(shape: RequestShape, *streams: int) -> tuple[list[str], list[str]]:
        return comparison.outlook((shape,), streams, ("frontdoor",), earlier())

    shape = RequestShape("short-128", 119, 128, 1)
    lines = [
        "short-128 c1 frontdoor cold: 71.9101 in before of b70-01",
        "short-128 c4 frontdoor cold: 287.64 in before of b70-01",
    ]
    assert seen(shape) == (lines, [])
    assert seen(shape, 1, 2) == (lines[:1], ["short-128 c2 frontdoor cold"])
    # of this name, and with other rounds
    assert seen(SHAPES["short-128"], 1) == ([], ["short-128 c1 frontdoor cold"])


def test_the_headline_is_what_clients_get() -> None:
    assert comparison.headline(data()) == "287.6 tok/s (short-128 c4 frontdoor cold), first token after 0.50 s"
    assert comparison.headline({"shapes": {}}) == "no figures"


def test_failures_are_named() -> None:
    now = data()
    now["shapes"]["short-128"]["scenarios"]["c4"]["frontdoor"]["cold"] = figures(4, 100.0, failed=1)
    assert comparison.lacking(now) == ["short-128 c4 frontdoor cold: 1 of 4 requests failed (1 x 503)"]
