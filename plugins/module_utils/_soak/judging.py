# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak's plan, when its cycles begin, and what its anomalies and figures mean. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

ISOLATED, REPEATED, PERSISTENT, UNCLASSIFIED = CLASSES = ("isolated", "repeated", "persistent", "unclassified")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class SoakPlan:
    """One soak. Times are seconds.

    :param reruns: how often a case with a wrong answer is asked again at once.
    :param stress: how often it is asked after that.
    :param concurrency: the requests in the load of a cycle, all at once.
    :param baseline_cycles: the number of first cycles whose median rate later cycles are compared with.
    :param min_speed_share: the share of that rate below which a cycle is too slow; 0 compares nothing.
    """

    duration_s: float
    interval_s: float
    reruns: int
    stress: int
    concurrency: int
    prompt_words: int
    output_tokens: int
    request_timeout_s: float
    baseline_cycles: int
    min_speed_share: float
    max_isolated: int
    max_repeated: int
    max_persistent: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SoakStep:
    """The next step and its time: another cycle, or the end."""

    at: float
    ends: bool = False


def seconds_of(text: str) -> float:
    """Return the seconds of ``8h``, ``90m``, ``1h30m`` or a number; raise ValueError, which names these forms."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    whole = "".join(number + unit for number, unit in parts)
    if parts and whole == text:
        total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif re.fullmatch(r"\d+(\.\d+)?", text):
        total = float(text)
    else:
        raise ValueError(f"{text!r} is no duration: write it as 8h, 90m, 1h30m or a number of seconds")
    if total <= 0:
        raise ValueError(f"the duration {text!r} is none: name more than 0 seconds")
    return total


def next_step(now: float, last_began: float | None, interval_s: float, deadline: float) -> SoakStep:
    """Return the next step.

    A cycle begins an interval after the previous one began, or at once if that took longer. None begins at the deadline
    or after it.
    """
    begins = now if last_began is None else max(now, last_began + interval_s)
    return SoakStep(max(now, deadline), ends=True) if begins >= deadline else SoakStep(begins)


def classify(reruns: Sequence[bool], stress: Sequence[bool], earlier: int) -> str:
    """Return the class of a wrong answer, from the later answers to the same case (True: right).

    isolated: wrong once and never again. repeated: wrong again, now or in another cycle. persistent: never right again.

    :param earlier: anomalies of this case in the cycles before.
    """
    after = (*reruns, *stress)
    if not after:
        return UNCLASSIFIED
    if not any(after):
        return PERSISTENT
    return REPEATED if earlier or not all(after) else ISOLATED


def reference(cycles: Sequence[Mapping[str, Any]], count: int) -> float | None:
    """Return the median rate of the first `count` cycles that have a rate; None if there are fewer."""
    rates = [cycle["load"]["tok_s"] for cycle in cycles if _rate(cycle) is not None][:count]
    return round(statistics.median(rates), 2) if len(rates) == count else None


def _rate(cycle: Mapping[str, Any]) -> float | None:
    load = cycle.get("load")
    return load["tok_s"] if load and not load["failed"] else None


def counts(anomalies: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {name: sum(row["class"] == name for row in anomalies) for name in CLASSES}


def judge(plan: SoakPlan, seen: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the verdict (passed, failed or unfinished) on what was seen, and the reasons, one sentence each."""
    wrong: list[str] = []
    cycles, ended = seen["cycles"], seen["ended"]
    found = counts(seen["anomalies"])
    most = {ISOLATED: plan.max_isolated, REPEATED: plan.max_repeated, PERSISTENT: plan.max_persistent}
    if ended["how"] == "deadline":
        most[UNCLASSIFIED] = 0  # the engine was there to the end, and nobody asked again
    for name, limit in most.items():
        if found[name] > limit:
            first = next(row for row in seen["anomalies"] if row["class"] == name)
            wrong.append(
                f"{found[name]} {name} anomalies, at most {limit} are accepted; the first in cycle {first['cycle']}: "
                f"{first['case']}, expected {first['expected']!r}, got {first['got']!r}"
            )
    usual = reference(cycles, plan.baseline_cycles)
    slow = [
        cycle
        for cycle in cycles[plan.baseline_cycles :]
        if usual is not None and (rate := _rate(cycle)) is not None and rate < plan.min_speed_share * usual
    ]
    if slow:
        wrong.append(
            f"{len(slow)} cycles are slower than {plan.min_speed_share:g} of the first {plan.baseline_cycles} "
            f"({usual:g} tok/s); the first is cycle {slow[0]['number']} with {slow[0]['load']['tok_s']:g} tok/s"
        )
    failed = [cycle for cycle in cycles if cycle.get("load") and cycle["load"]["failed"]]
    if failed:
        first = failed[0]
        wrong.append(
            f"requests of the load failed in {len(failed)} cycles, first in cycle {first['number']}: "
            f"{first['load']['error']}"
        )
    if ended["how"] in ("lost", "crashed"):
        wrong.insert(0, ended["why"])
    if wrong:
        return "failed", wrong
    if ended["how"] != "deadline":
        return "unfinished", [ended["why"]]
    return "passed", [f"{len(cycles)} cycles, {_in_words(found)}"]


def _in_words(found: Mapping[str, int]) -> str:
    some = [f"{count} {name}" for name, count in found.items() if count]
    return f"anomalies: {', '.join(some)}" if some else "no anomaly"


def summary(plan: SoakPlan, seen: Mapping[str, Any]) -> str:
    """Return one line for lists of records."""
    usual = reference(seen["cycles"], plan.baseline_cycles)
    rates = [rate for cycle in seen["cycles"] if (rate := _rate(cycle)) is not None]
    speed = f", {min(rates):g} to {max(rates):g} tok/s" if rates else ""
    of = f" (first cycles {usual:g})" if usual is not None else ""
    waits = [cycle["load"]["mean_ttft_s"] for cycle in seen["cycles"] if _rate(cycle) is not None]
    first = [wait for wait in waits if wait is not None]
    ttft = f", first token after {min(first):g} to {max(first):g} s" if first else ""
    return f"{len(seen['cycles'])} cycles, {_in_words(counts(seen['anomalies']))}{speed}{of}{ttft}"
