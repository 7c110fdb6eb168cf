# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary of models that write no text: vectors of an embedding model, scores of a reranker, classes. No effects."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..model.profile import CanaryCase, Profile
from ..words.types import Reply, SlotFault
from .canary import CanaryResult, check_answered, digest, nan_logprob, shown

PATHS = {"embed": "/v1/embeddings", "score": "/v1/rerank", "classify": "/classify"}
_ASKED = ("Say one word.", "One word.")
PROBES = {
    "embed": CanaryCase("first_token", "", 0, "vector", "", texts=_ASKED, unit_norm=False),
    "score": CanaryCase("first_token", "", 0, "order", "", texts=_ASKED),
    "classify": CanaryCase("first_token", "", 0, "classes", "", texts=_ASKED, one_label=False),
}
NAN = "the engine computes NaN: its answer holds something that is no number"
UNIT_MARGIN = 0.02  # 16-bit numbers, a thousand of them
SUM_MARGIN = 0.01
SAME = 1 - 1e-6  # cosine of vectors that say the same of different texts


def payload(profile: Profile, case: CanaryCase) -> dict[str, Any]:
    """Return what is posted to `PATHS[task]`: the texts, or the first as the question about the others."""
    body: dict[str, Any] = {"model": profile.engine.served_model_name}
    if profile.engine.task == "embed":
        return {**body, "input": list(case.texts), "encoding_format": "float"}
    if profile.engine.task == "classify":
        return {**body, "input": list(case.texts)}
    return {**body, "query": case.texts[0], "documents": list(case.texts[1:])}


def expectation(case: CanaryCase) -> str:
    """Return the expected answer in words."""
    if case.compare == "order":
        return "order: each text fits better than the next"
    if case.compare == "classes":
        labels = ", ".join(case.labels) or "probabilities"
        return f"classes: {labels}{', which sum to 1' if case.one_label else ''}"
    size = f"{case.dimension} numbers" if case.dimension else "finite numbers"
    return f"vector: {size}{', of length 1' if case.unit_norm else ''}"


def _wrong(what: str, reply: Reply) -> SlotFault:
    return SlotFault(f"the engine's answer is not {what}", expected="numbers", got=shown(reply.text))


def _parsed(reply: Reply) -> Any:
    check_answered(reply, "a request for numbers")
    try:
        return json.loads(reply.text)
    except ValueError as error:
        raise _wrong("JSON", reply) from error


def _number(value: Any) -> float:
    # Some encoders write null for what is no number.
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def vectors(reply: Reply, count: int) -> list[list[float]]:
    """Return the vectors of an embedding answer, in the order of the texts; other values than numbers become NaN."""
    try:
        items = sorted(_parsed(reply)["data"], key=lambda item: item["index"])
        found = [[_number(value) for value in item["embedding"]] for item in items]
    except (LookupError, TypeError, AttributeError) as error:
        raise _wrong("a list of embeddings", reply) from error
    if len(found) != count or not all(found):
        raise SlotFault("the engine gave another number of vectors", expected=str(count), got=str(len(found)))
    return found


def scores(reply: Reply, count: int) -> list[float]:
    """Return the scores of a reranker's answer, in the order of the texts; other values than numbers become NaN."""
    try:
        found = {int(item["index"]): _number(item["relevance_score"]) for item in _parsed(reply)["results"]}
    except (LookupError, TypeError, ValueError) as error:
        raise _wrong("a list of scores", reply) from error
    if sorted(found) != list(range(count)):
        raise SlotFault("the engine scored other texts than it was given", expected=str(count), got=str(len(found)))
    return [found[index] for index in range(count)]


def classes(reply: Reply, count: int) -> list[tuple[str, list[float]]]:
    """Return label and probabilities of each text, in their order; other values than numbers become NaN."""
    try:
        items = sorted(_parsed(reply)["data"], key=lambda item: item["index"])
        found = [(str(item.get("label")), [_number(value) for value in item["probs"]]) for item in items]
    except (LookupError, TypeError, AttributeError) as error:
        raise _wrong("a list of classes", reply) from error
    if len(found) != count or not all(probabilities for _label, probabilities in found):
        raise SlotFault("the engine classed another number of texts", expected=str(count), got=str(len(found)))
    return found


def length(vector: Sequence[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in vector))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how alike two vectors are, from -1 to 1; NaN where one has no direction, or they are of different
    spaces."""
    size = length(one) * length(other)
    if len(one) != len(other) or not size:
        return math.nan
    return math.fsum(left * right for left, right in zip(one, other, strict=True)) / size


def _vector(case: CanaryCase, found: list[list[float]]) -> tuple[str, str]:
    """Return the vectors in words, and why they are wrong or an empty text."""
    sizes = sorted({len(vector) for vector in found})
    lengths = [length(vector) for vector in found]
    got = f"{len(found)} vectors of {' and '.join(map(str, sizes))} numbers, of length "
    got += ", ".join(f"{value:.3f}" for value in lengths)
    if not all(math.isfinite(value) for value in lengths):
        return got, NAN
    if len(sizes) > 1:
        return got, "the vectors are of different dimensions"
    if case.dimension and sizes != [case.dimension]:
        return got, f"the vectors have {sizes[0]} numbers"
    if not all(lengths):
        return got, "a vector is nothing but zeros"
    if case.unit_norm and any(abs(value - 1) > UNIT_MARGIN for value in lengths):
        return got, "a vector is not of length 1 (with unit_norm: false it need not be)"
    for index, vector in enumerate(found):
        for other in range(index):
            if case.texts[index] != case.texts[other] and cosine(vector, found[other]) > SAME:
                return got, f"texts {other + 1} and {index + 1} got the same vector"
    return got, ""


def _order(values: list[float]) -> tuple[str, str]:
    got = ", ".join(f"{value:.4f}" for value in values)
    if not all(math.isfinite(value) for value in values):
        return got, NAN
    for index, (fits, less) in enumerate(pairwise(values), start=2):
        if fits <= less:
            return got, f"text {index + 1} fits no worse than text {index}, which is to fit better"
    return got, ""


def _classes(case: CanaryCase, found: list[tuple[str, list[float]]]) -> tuple[str, str]:
    got = ", ".join(f"{label} {max(probabilities):.4f}" for label, probabilities in found)
    for index, (label, probabilities) in enumerate(found):
        if not all(math.isfinite(value) for value in probabilities):
            return got, NAN
        if not all(-SUM_MARGIN <= value <= 1 + SUM_MARGIN for value in probabilities):
            return got, f"a probability of text {index + 1} is not between 0 and 1"
        total = math.fsum(probabilities)
        if case.one_label and abs(total - 1) > SUM_MARGIN:
            return (
                got,
                f"the probabilities of text {index + 1} sum to {total:.3f} (with one_label: false they need not)",
            )
        if case.labels and label != case.labels[index]:
            return got, f"text {index + 1} is {label}, not {case.labels[index]}"
    if len({len(probabilities) for _label, probabilities in found}) > 1:
        return got, "the texts have different numbers of classes"
    return got, ""


def check_answer(profile: Profile, case: CanaryCase, reply: Reply, seconds: float, attempt: int) -> CanaryResult:
    """Check the numbers of one answer against their case. Raise SlotFault when it holds none."""
    if nan_logprob(reply):
        got, problem = shown(f"{reply.status} {reply.text}"), NAN
    elif profile.engine.task == "embed":
        found = vectors(reply, len(case.texts))
        if case.compare == "vector":
            got, problem = _vector(case, found)
        else:
            got, problem = _order([cosine(found[0], other) for other in found[1:]])
    elif profile.engine.task == "classify":
        got, problem = _classes(case, classes(reply, len(case.texts)))
    else:
        got, problem = _order(scores(reply, len(case.texts) - 1))
    expected = expectation(case)
    return CanaryResult(profile.name, case.name, not problem, expected, got, digest(got), seconds, attempt, problem)
