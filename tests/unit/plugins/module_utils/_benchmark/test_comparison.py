# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures beside figures: only like with like, and nothing worse passes unnoticed."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import comparison
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import Band
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import SHAPES, Shape
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
    assert comparison.compare(now, earlier(), BAND)["rows"] == []


def test_cold_is_never_compared_with_warm() -> None:
    now = data(frontdoor=10.0)
    for scenario in now["shapes"]["short-128"]["scenarios"].values():
        scenario["frontdoor"].pop("cold")
    before = earlier()
    for scenario in before["data"]["shapes"]["short-128"]["scenarios"].values():
        scenario["frontdoor"].pop("warm")
    rows = comparison.compare(now, before, BAND)["rows"]
    assert {row["scenario"].split()[2] for row in rows} == {"engine"}


def of_shape(name: str, record_id: str, **kept: Any) -> dict[str, Any]:
    """A record of one shape; kept: the only prefix of the only way."""
    found = {**earlier(), "id": record_id}
    shape = found["data"]["shapes"].pop("short-128")
    for scenario in shape["scenarios"].values():
        for target in ("frontdoor", "engine") if kept else ():
            scenario[target] = {kept["prefix"]: scenario[target][kept["prefix"]]} if target == kept["target"] else {}
    found["data"]["shapes"][name] = shape
    return found


def test_a_newer_record_of_other_requests_hides_nothing() -> None:
    long, short = of_shape("2k-128", "3"), of_shape("short-128", "2")
    assert comparison.nearest(data(), [long, short, of_shape("short-128", "1")]) == short
    assert comparison.nearest(data(), [long]) is None
    assert comparison.nearest(data(), []) is None


def test_a_record_of_few_figures_is_no_measure_for_many() -> None:
    gate, whole = of_shape("short-128", "2", target="frontdoor", prefix="cold"), of_shape("short-128", "1")
    assert comparison.nearest(data(), [gate, whole]) == whole
    assert comparison.nearest(gate["data"], [gate, whole]) == gate


def test_a_record_that_nothing_was_compared_with_is_not_named() -> None:
    now = data()
    now["shapes"]["short-128"]["prompt_tokens"] = 120
    found = comparison.compare(now, earlier(), BAND, comparison.expectations(EVIDENCE, "4 x B70", now))
    assert (found["with"], found["rows"]) == (None, [])
    nothing = earlier()
    for scenario in nothing["data"]["shapes"]["short-128"]["scenarios"].values():
        for way in ("frontdoor", "engine"):
            scenario[way] = {
                prefix: {**one, "wall_tok_s": None, "ttft_s": None} for prefix, one in scenario[way].items()
            }
    assert comparison.compare(data(), nothing, BAND)["with"] is None
    assert comparison.nearest(data(), [nothing]) is None


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


def test_the_catalogue_counts_where_no_record_does() -> None:
    expected = comparison.expectations(EVIDENCE, "4 x B70", data())
    limit = "is 71.9101, 0.90 of 80 in the catalogue (limit 0.95)"
    for record in (None, {**earlier(), "data": {"shapes": {}}}):
        found = comparison.compare(data(), record, Band(0.05, 0.25), expected)
        assert found["regressions"] == [f"short-128 c1 frontdoor cold: wall_tok_s {limit}"]
        lines = comparison.compared({"comparison": found, "expectations": expected})
        assert lines[0] == "short-128 c1 frontdoor cold: wall_tok_s 71.9101, 0.90 of 80 in the catalogue"
    found = comparison.compare(data(), earlier(), Band(0.05, 0.25), expected)
    assert (len(found["rows"]), found["regressions"]) == (16, [])


def test_what_would_be_compared_is_known_before_it_is_measured() -> None:
    def lines(record: Any = None, shape: Shape = SHAPES["short-128"], *streams: int, evidence: Any = None) -> list[str]:
        return comparison.outlook((shape,), streams, ("frontdoor",), [record] if record else [], evidence, "4 x B70")

    measured = earlier()
    shape = Shape("short-128", 119, 128, 1)
    assert lines(measured, shape) == [
        "short-128 c1 frontdoor cold: 71.9101 in before of b70-01",
        "short-128 c4 frontdoor cold: 287.64 in before of b70-01",
    ]
    assert lines(measured, shape, 1, 2) == lines(measured, shape)[:1]
    assert lines(measured, shape, 2) == lines(measured, SHAPES["2k-128"]) == lines() == []
    assert lines(evidence=EVIDENCE) == [
        "short-128 c1 frontdoor cold: 80 in the catalogue",
        "short-128 c4 frontdoor cold: 90 in the catalogue",
    ]
    assert lines(evidence={**EVIDENCE, "host_class": "another"}) == []


def test_the_headline_is_what_clients_get() -> None:
    assert comparison.headline(data()) == "287.6 tok/s (short-128 c4 frontdoor cold), first token after 0.50 s"
    assert comparison.headline({"shapes": {}}) == "no figures"


def test_failures_are_named() -> None:
    now = data()
    now["shapes"]["short-128"]["scenarios"]["c4"]["frontdoor"]["cold"] = figures(4, 100.0, failed=1)
    assert comparison.lacking(now) == ["short-128 c4 frontdoor cold: 1 of 4 requests failed (1 x 503)"]
