# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data of benchmarks as tests need it."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, summary


def requests(
    streams: int, speed: float, tokens: int = 128, failed: int = 0, prompt: int = 119, rounds: int = 1
) -> list[RequestRecord]:
    """Rounds of equal requests, at `speed` tokens per second each. failed: of the last round."""
    took = 0.5 + tokens / speed
    good = [
        RequestRecord(begun, begun + 0.5, begun + took, begun + took, prompt, tokens, tokens, prompt)
        for begun in (number * took for number in range(rounds))
        for _stream in range(streams)
    ]
    bad = RequestRecord(0.0, None, None, 0.1, 0, 0, tokens, prompt, "503")
    return good[: len(good) - failed] + [bad] * failed


def figures(streams: int, speed: float, failed: int = 0) -> dict[str, Any]:
    return {**summary(requests(streams, speed, failed=failed)), "seed": 1, "records": []}


def data(frontdoor: float = 100.0, engine: float = 110.0, failed: int = 0) -> dict[str, Any]:
    """Figures of one shape with one and four streams, cold and warm, over both ways."""
    scenarios = {
        f"c{streams}": {
            "streams": streams,
            "frontdoor": {prefix: figures(streams, frontdoor, failed) for prefix in ("cold", "warm")},
            "engine": {prefix: figures(streams, engine) for prefix in ("cold", "warm")},
        }
        for streams in (1, 4)
    }
    shape = {"prompt_tokens": 119, "output_tokens": 128, "rounds": 1, "scenarios": scenarios}
    return {"shapes": {"short-128": shape}}
