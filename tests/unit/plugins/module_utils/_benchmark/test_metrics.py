# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a benchmark, with numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, percentile, summary


def answered(started: float, first: float, last: float, ended: float, tokens: int = 11) -> RequestRecord:
    return RequestRecord(started, first, last, ended, 100, tokens, 11, 100)


FAILED = RequestRecord(0.0, None, None, 9.0, 0, 0, 11, 100, "503 Service Unavailable")


def test_each_figure_is_what_its_definition_says() -> None:
    figures = summary([answered(10.0, 11.0, 15.0, 16.0), answered(12.0, 12.5, 17.5, 20.0)])
    assert figures["wall_s"] == 10.0
    assert figures["wall_tok_s"] == 22 / 10
    assert figures["decode_tok_s"] == round(22 / (20.0 - 11.0), 4)
    assert figures["request_decode_tok_s"] == 20 / (5.0 + 7.5)
    assert figures["ttft_s"] == {"mean": 0.75, "p50": 0.75, "p95": 0.975, "p99": 0.995}
    assert figures["itl_s"]["mean"] == (4.0 / 10 + 5.0 / 10) / 2
    assert figures["request_s"]["mean"] == 7.0
    assert (figures["requests"], figures["failed"], figures["lacking"]) == (2, 0, {})
    assert (figures["prompt_tokens"], figures["completion_tokens"]) == (200, 22)


def test_a_failed_request_counts_and_spoils_no_other_figure() -> None:
    good = [answered(10.0, 11.0, 15.0, 16.0), answered(12.0, 12.5, 17.5, 20.0)]
    counted = {"requests", "failed", "errors"}
    alone, beside = summary(good), summary([*good, FAILED, FAILED])
    assert {key: value for key, value in beside.items() if key not in counted} == {
        key: value for key, value in alone.items() if key not in counted
    }
    assert (beside["requests"], beside["failed"], beside["errors"]) == (4, 2, {"503 Service Unavailable": 2})


@pytest.mark.parametrize("records", [[], [FAILED]])
def test_without_an_answer_there_is_no_figure(records: list[RequestRecord]) -> None:
    figures = summary(records)
    names = ("wall_s", "wall_tok_s", "decode_tok_s", "request_decode_tok_s", "ttft_s", "itl_s", "request_s")
    assert [figures[name] for name in names] == [None] * len(names)


def test_an_answer_in_one_piece_is_not_infinitely_fast() -> None:
    """A client that was late finds the whole answer at once."""
    figures = summary([answered(0.0, 1.0, 1.0, 1.0), answered(0.0, 1.0, 3.0, 3.0)])
    assert figures["request_decode_tok_s"] == 20 / 2.0


def test_an_answer_shorter_than_wanted_is_counted() -> None:
    lacking = summary([answered(0.0, 1.0, 2.0, 2.0, tokens=7)])["lacking"]
    assert lacking == {"7 tokens in the answer, not 11": 1}


def test_percentiles_lie_between_neighbours() -> None:
    found = [percentile([4.0, 1.0, 3.0, 2.0], share) for share in (0.0, 0.5, 0.95, 1.0)]
    assert found == pytest.approx([1.0, 2.5, 3.85, 4.0])
