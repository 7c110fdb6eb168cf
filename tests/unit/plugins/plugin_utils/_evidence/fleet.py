# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records as hosts write them: two benchmarks of a profile on one of two hosts, a soak, a context search, a promotion.

The figures have the shape of those that were measured on these cards: a rate that grows with the streams and saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unit.plugins.module_utils._evidence.records import HOST, record

STREAMS = (1, 2, 4, 8, 16, 32)
RATES = {"2k-128": (58.2, 109.4, 201.7, 352.9, 548.1, 611.6), "short-512": (61.0, 118.8, 228.3, 431.2, 779.4, 1126.0)}
WAITS = {"2k-128": (0.412, 0.655, 1.087, 2.041, 4.377, 9.02), "short-512": (0.071, 0.084, 0.109, 0.162, 0.257, 0.493)}


FACTORS = {"mean": 1.04, "p50": 1.0, "p95": 1.31, "p99": 1.6}


def figures(shape: str, place: int, speed: float) -> dict[str, Any]:
    """Return the summary of one scenario on a host of this relative speed."""
    ttft = {name: round(WAITS[shape][place] * factor / speed, 4) for name, factor in FACTORS.items()}
    return {
        "requests": STREAMS[place] * 3,
        "failed": 0,
        "errors": {},
        "wall_tok_s": round(RATES[shape][place] * speed, 4),
        "ttft_s": ttft,
    }


def shapes(speed: float) -> dict[str, Any]:
    return {
        shape: {
            "prompt_tokens": prompt,
            "output_tokens": output,
            "rounds": 3,
            "scenarios": {
                f"c{streams}": {
                    "streams": streams,
                    "frontdoor": {"cold": figures(shape, place, speed)},
                    "engine": {"cold": figures(shape, place, speed * 1.01)},
                }
                for place, streams in enumerate(STREAMS)
            },
        }
        for shape, prompt, output in (("2k-128", 2048, 128), ("short-512", 119, 512))
    }


def benchmark(day: str, speed: float, **given: Any) -> dict[str, Any]:
    summary = f"{max(RATES['short-512']) * speed:.1f} tok/s (short-512 c32 frontdoor cold), first token after 0.49 s"
    return record("benchmark", f"{day}T04:16:00Z", data={"summary": summary, "shapes": shapes(speed)}, **given)


PLAN = {
    "duration_s": 28800.0,
    "interval_s": 900.0,
    "reruns": 3,
    "stress": 25,
    "concurrency": 8,
    "prompt_words": 80,
    "output_tokens": 512,
    "request_timeout_s": 1800.0,
    "baseline_cycles": 3,
    "min_speed_share": 0.9,
    "max_isolated": 1,
    "max_repeated": 0,
    "max_persistent": 0,
}


ANOMALY = {
    "cycle": 17,
    "at": "2026-11-22T00:15:00Z",
    "case": "copy_phrase",
    "expected": "satin cobalt orbit",
    "got": "slh cobalt orbit",
    "problem": "",
    "reruns": 3,
    "reruns_ok": 3,
    "stress": 25,
    "stress_ok": 25,
    "class": "isolated",
}


def cycle(number: int, tok_s: float | None) -> dict[str, Any]:
    """Return one cycle of a soak; without a rate it broke off."""
    load = {
        "requests": 8,
        "failed": 0,
        "error": "",
        "output_tokens": 4096,
        "wall_s": 5.24,
        "tok_s": tok_s,
        "slowest_s": 5.2,
    }
    return {
        "number": number,
        "began_at": f"2026-11-21T{20 + number // 60:02}:{number % 60:02}:00Z",
        "seconds": 9.5,
        "canary": {"ok": True, "cases": 4, "seconds": 3.2},
        "anomalies": 0,
        "load": None if tok_s is None else load,
    }


def soak(day: str, rates: Sequence[float | None] = (), **given: Any) -> dict[str, Any]:
    usual = [781.04 - (number * 37 % 13) * 1.3 - (16 if number == 17 else 0) for number in range(1, 33)]
    data = {
        "summary": "32 cycles, anomalies: 1 isolated, 749.44 to 781.04 tok/s (first cycles 777.14)",
        "plan": PLAN,
        "reference_tok_s": 777.14,
        "cycles": [cycle(number, rate) for number, rate in enumerate(rates or usual, 1)],
        "anomalies": [dict(ANOMALY)],
        "ended": {"how": "deadline", "why": "the deadline was reached"},
    }
    return record("soak", f"{day}T20:00:00Z", data=data, **given)


def search(day: str, **given: Any) -> dict[str, Any]:
    rows = [(15616, 667253, 42.73), (7680, 405664, 52.82), (4096, 291995, 71.29), (4480, 292317, 65.25)]
    trials = [
        {"length": length, "kv_tokens": tokens, "concurrency": streams, "seconds": 66.5, "passes": streams >= 64}
        for length, tokens, streams in rows
    ]
    data = {
        "summary": "4480 tokens for 64 sequences (65.25x)",
        "sequences": 64,
        "granularity": 128,
        "bounds": {"least": 2048, "most": 15616},
        "trials": trials,
        "found": 4480,
    }
    return record("context_search", f"{day}T01:00:00Z", data=data, **given)


def fleet() -> dict[str, list[dict[str, Any]]]:
    """Return what the lookup finds for two hosts: `{host: [record]}`, newest first."""
    other = {**HOST, "name": "b70-02"}
    changed = {"ok": True, "hashes": {"exact_ok": "cfaf413c134eea7354fa0b63fe7543885f4008cee709e8e4d3349f46872ca569"}}
    old = {"fingerprint": "sha256:77aa01b2", "stack": "lab-77aa01", "engine": {"name": "vllm", "version": "0.20.1"}}
    return {
        "b70-01": [
            record("promotion", "2026-11-23T09:00:00Z", data={"summary": "candidate to stable"}),
            benchmark("2026-11-22", 1.0, canary={"before": changed, "after": changed}),
            soak("2026-11-21"),
            search("2026-11-20"),
            benchmark("2026-11-02", 0.91, **old),
        ],
        "b70-02": [
            benchmark("2026-11-22", 0.83, host=other, profile="gemma4-12b-int4-c8"),
            soak(
                "2026-11-21", host=other, verdict="failed", reasons=["2 persistent anomalies, at most 0 are accepted"]
            ),
            benchmark("2026-11-20", 0.98, host=other),
        ],
    }
