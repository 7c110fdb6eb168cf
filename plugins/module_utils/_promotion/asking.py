# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's requests, and how it reads the answers. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._benchmark.metrics import RequestRecord
from .._slot.ask import canary as canaries
from .._slot.ask.canary import CanaryResult
from .._slot.ask.stream import STREAMED
from .._slot.kinds.table import kind_of
from .._slot.model.profile import BURST, CanaryCase, Profile
from .._slot.words.types import Reply
from .client import Stream, error_of

TEXT = CanaryCase("text", "In one sentence, what is a lighthouse for?", 48, "regex", r"\w")
_PICTURES = tuple(
    CanaryCase(
        f"{colour}_image",
        "Name the colour of this picture in one word.",
        8,
        "contains",
        colour,
        image={"colour": colour, "width": 256, "height": 192},
    )
    for colour in ("red", "blue")
)


@dataclass(frozen=True)
class Expected:
    """A profile's answers on this host. source: where they are known from; requests: what was asked, by case."""

    source: str
    hashes: Mapping[str, str]
    requests: Mapping[str, str]


def pictures(profile: Profile) -> list[CanaryCase]:
    """Return the profile's own cases with a picture and an answer, or else two built-in ones.

    Cases that compare with a baseline don't count: without a baseline they accept any answer.
    """
    own = (case for case in profile.canary.cases if case.image is not None and case.compare != "baseline")
    return list(own) or list(_PICTURES)


def texts(profile: Profile) -> list[CanaryCase]:
    """Return short questions only: far back in a long context the stacks for cards give NaN, which the canary notes."""
    plain = (case for case in profile.canary.cases if case.prompt and case.long is None and case.image is None)
    return [TEXT, *plain]


def shown(result: CanaryResult) -> dict[str, Any]:
    """Return a canary case in the form of a record."""
    keys = ("passed", "expected", "got", "sha256", "problem", "note", "attempts", "steady")
    return {"case": result.name, **{key: getattr(result, key) for key in keys}, "seconds": round(result.seconds, 3)}


def completion(profile: Profile, prompt: Sequence[int], output: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": profile.engine.served_model_name,
        "prompt": list(prompt),
        "max_tokens": output,
        "temperature": 0,
        "seed": profile.canary.seed,
        **STREAMED,
    }
    return kind_of(profile.engine.kind).full_length(body)


def tokens(reply: Reply) -> list[int]:
    """Return the tokens of a text as the engine counts them; none if it doesn't count them."""
    try:
        found = json.loads(reply.text)["tokens"] if reply.status == 200 else []
    except (ValueError, LookupError, TypeError):
        return []
    return [int(one) for one in found]


def refusal(reply: Reply) -> dict[str, str]:
    """Return type and message of the error in an answer; both are empty if there is no error."""
    if reply.status == 200:
        return {"type": "", "error": ""}
    error = error_of(reply.text)
    words = str(error.get("message") or reply.error or reply.text)
    return {"type": str(error.get("type") or ""), "error": words[:300]}


def logprobs(reply: Reply) -> tuple[int, str]:
    """Return how many log probabilities an answer has, and what is wrong with them (empty: nothing)."""
    if canaries.nan_logprob(reply):
        return 0, canaries.NAN
    if reply.status != 200:
        return 0, f"no log probabilities came: {canaries.refusal(reply)}"
    try:
        entries = json.loads(reply.text)["choices"][0]["logprobs"]["content"]
        rows = [row for entry in entries for row in (entry, *(entry.get("top_logprobs") or ()))]
        values = [row["logprob"] for row in rows]
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0, "the answer has no log probabilities"
    for row, value in zip(rows, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return len(values), f"the log probability of {row.get('token')!r} is {value!r}"
    return len(values), "" if values else "the answer has no log probabilities"


def cache_hits(profile: Profile, metrics: str) -> float | None:
    """Return how many tokens the engine has taken from its prefix cache so far; None if it doesn't count them."""
    name = kind_of(profile.engine.kind).metrics.cache_hits
    lines = re.compile(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)
    found = [float(value) for value in lines.findall(metrics)] if name else []
    return sum(found) if found else None


def record(stream: Stream, prompt: int, output: int) -> RequestRecord:
    return RequestRecord(
        started_s=stream.started_s,
        first_text_s=stream.first_s,
        last_text_s=stream.last_s,
        ended_s=stream.ended_s,
        prompt_tokens=stream.prompt_tokens or prompt,
        completion_tokens=stream.completion_tokens or 0,
        wanted_tokens=output,
        wanted_prompt=prompt,
        error=stream.error,
    )


def compared(profile: Profile, results: Sequence[CanaryResult], name: str, expected: Expected) -> dict[str, Any]:
    """Compare the answers with the other profile's, for cases that both were asked alike and answer steadily."""
    rows, others = [], []
    asked = {one.name: one for one in results if one.name != BURST}
    for case in profile.canary.cases:
        result = asked.get(case.name)
        same = expected.requests.get(case.name) == canaries.request_hash(profile, case)
        if result is None or not result.steady or not same or case.name not in expected.hashes:
            others.append(case.name)
            continue
        rows.append({"case": case.name, "sha256": result.sha256, "expected_sha256": expected.hashes[case.name]})
    return {"profile": name, "source": expected.source, "cases": rows, "not_compared": others}


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
