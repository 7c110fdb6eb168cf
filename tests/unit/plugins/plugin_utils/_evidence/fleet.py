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
        "lacking": {},
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
    data = {"summary": summary, "shapes": shapes(speed), "comparison": COMPARISON, "expectations": [EXPECTED]}
    return record("benchmark", f"{day}T04:16:00Z", data=data, **given)


COMPARISON = {
    "with": {
        "id": "20261120T041600Z-benchmark-tiny-a-5e1f0c",
        "began_at": "2026-11-20T04:16:00Z",
        "fingerprint": "sha256:0f3c7c8a",
        "host": "b70-02",
    },
    "band": {"rate": 0.1, "ttft": 0.25},
    "rows": [],
    "regressions": ["short-512 c1 frontdoor cold: wall_tok_s is 61, 0.76 of 80 (limit 0.90)"],
    "missing": [],
}
EXPECTED = {
    "streams": 1,
    "prompt_tokens": 119,
    "output_tokens": 512,
    "figure": "wall_tok_s",
    "recorded": 80.0,
    "host_class": HOST["class"],
    "now": 61.0,
    "scenario": "short-512 c1 frontdoor cold",
    "ratio": 0.7625,
}


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
        "prompt_tokens": 904,
        "output_tokens": 4096,
        "mean_ttft_s": 2.551,
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


def probes(length: int) -> dict[str, Any]:
    """Return the figures of the probes of one length."""
    shapes = {"ttft": (1, 100, 1), "decode": (64, 100, 128), "near_limit": (64, length - 16, 16)}
    return {
        name: {
            "requests": count,
            "failed": 0,
            "error": "",
            "prompt_tokens": count * prompt,
            "output_tokens": count * output,
            "mean_ttft_s": 0.12 * count,
            "wall_s": 9.6,
            "tok_s": round(count * output / 9.6, 2),
            "slowest_s": 9.5,
        }
        for name, (count, prompt, output) in shapes.items()
    }


def search(day: str, **given: Any) -> dict[str, Any]:
    rows = [(15616, 667253, 42.73), (7680, 405664, 52.82), (4096, 291995, 71.29), (4480, 292317, 65.25)]
    trials = [
        {
            "length": length,
            "kv_tokens": tokens,
            "concurrency": streams,
            "seconds": 66.5,
            "passes": streams >= 64,
            "probes": probes(length) if streams >= 64 else {},
            "problem": "",
        }
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


ITEMS = {
    "models": "tiny-a with 2048 tokens",
    "text": "answered 'I am tiny-a and I know only a few answers.'",
    "image": "the profile accepts no pictures",
    "canary": "6 cases, each asked 8 times at least",
    "same_answers": "the profile does not claim another profile's answers (canary.same_answers_as)",
    "logprobs": "60 log probabilities in 5 answers are finite numbers",
    "limit": "prompts of 2047 tokens are answered, of 2049 refused with 400",
    "overload": "2 admitted, one refused after 0.007 s",
    "cancel": "2 streams were left, their permits were free after 0.353 s",
    "ttft": "2016 tokens: 0.764 s",
    "prefix_cache": "first token after 0.171 s cold and 0.034 s warm; 92% of the warm prompts came from the cache",
    "ladder": "1 streams: 21.2 tok/s, 2 streams: 99.0 tok/s",
    "restart": "restarted and verified in 58.6 s, 5 cases answered as before",
    "accuracy": "1 over 12 questions, at least 0.9 is wanted",
}


def promotion(day: str, **given: Any) -> dict[str, Any]:
    """Return what the production gate left in the lab."""
    passed = dict.fromkeys(ITEMS, "passed") | dict.fromkeys(("image", "same_answers"), "not_applicable")
    data = {
        "summary": "12 of 14 items passed, 2 do not apply",
        "plan": {
            "items": list(ITEMS),
            "canary_repeats": 8,
            "request_timeout_s": 600.0,
            "refusal_limit_s": 1.0,
            "cancel_limit_s": 10.0,
            "warm_share": 0.8,
            "prompt_tokens": 2048,
            "output_tokens": 128,
            "quiet_s": 60.0,
        },
        "items": [
            {"item": name, "verdict": passed[name], "reason": reason, "observed": {}} for name, reason in ITEMS.items()
        ],
        "examined": "sha256:9c1d7e5b3a2f4860d8c6b4a2908e7f6d5c4b3a29180716253443526170819203",
        "not_run": [],
        "served": {"profile": "tiny-a", "verified": True, "open": True},
        "ended": {"how": "complete", "why": "all items were run"},
    }
    return record("promotion", f"{day}T09:00:00Z", data=data, **given)


def fleet() -> dict[str, list[dict[str, Any]]]:
    """Return what the lookup finds for two hosts: `{host: [record]}`, newest first."""
    other = {**HOST, "name": "b70-02"}
    changed = {"ok": True, "hashes": {"exact_ok": "cfaf413c134eea7354fa0b63fe7543885f4008cee709e8e4d3349f46872ca569"}}
    old = {"fingerprint": "sha256:77aa01b2", "stack": "lab-77aa01", "engine": {"name": "vllm", "version": "0.20.1"}}
    return {
        "b70-01": [
            promotion("2026-11-23"),
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
