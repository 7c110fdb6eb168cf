# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of a benchmark's requests as data, and which of them fit a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RequestShape:
    """One kind of request: tokens of the prompt and of the answer. rounds: requests of each stream."""

    name: str
    prompt_tokens: int
    output_tokens: int
    rounds: int = 3


@dataclass(frozen=True)
class Limits:
    """The limits of a profile and its frontdoor. context: tokens of prompt and answer; None if they are not limited."""

    context: int | None
    output: int | None
    streams: int
    queues: bool


_KNOWN = (
    RequestShape("random-512-1536", 512, 1536, 1),
    RequestShape("2k-128", 2048, 128),
    RequestShape("2k-512", 2048, 512, 2),
    RequestShape("short-128", 119, 128),
    RequestShape("short-256", 119, 256),
    RequestShape("short-512", 119, 512, 2),
    RequestShape("short-1024", 119, 1024, 1),
    RequestShape("15k-128", 15360, 128, 1),
    RequestShape("28k-128", 28672, 128, 1),
)
SHAPES = {shape.name: shape for shape in _KNOWN}


class RequestShapeError(Exception):
    """A shape is not known or makes no sense; the text says what to write."""


def shape_of(given: Any) -> RequestShape:
    """Return a shape by its name or from ``{name, prompt_tokens, output_tokens, rounds}``; raise RequestShapeError."""
    if isinstance(given, str):
        if given not in SHAPES:
            raise RequestShapeError(f"the shape {given!r} is not known; there are {', '.join(SHAPES)}")
        return SHAPES[given]
    unknown = set(given) - {"name", "prompt_tokens", "output_tokens", "rounds"}
    if unknown:
        raise RequestShapeError(
            f"a shape has no {', '.join(sorted(unknown))}; it has name, prompt_tokens, output_tokens, rounds"
        )
    numbers = {key: given.get(key, 3 if key == "rounds" else 0) for key in ("prompt_tokens", "output_tokens", "rounds")}
    wrong = [
        key for key, value in numbers.items() if isinstance(value, bool) or not isinstance(value, int) or value < 1
    ]
    if wrong:
        raise RequestShapeError(
            f"{', '.join(wrong)} of the shape {given.get('name', '?')!r} is a whole number from 1 on"
        )
    name = str(given.get("name") or f"{numbers['prompt_tokens']}-{numbers['output_tokens']}")
    return RequestShape(name, **numbers)


def ladder(most: int) -> list[int]:
    """Return the numbers of streams to measure: powers of two, and the most that are admitted."""
    found = [1]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return found if most == 1 else [*found, most]


def chosen(
    shapes: Sequence[RequestShape], streams: Sequence[int], limits: Limits
) -> tuple[list[RequestShape], list[int], list[dict[str, Any]]]:
    """Return the shapes and numbers of streams to measure, and what is left out and why."""
    out: list[dict[str, Any]] = []
    kept = []
    for shape in shapes:
        tokens = shape.prompt_tokens + shape.output_tokens
        why = ""
        if limits.context is not None and tokens > limits.context:
            why = f"needs {tokens} tokens, and the profile admits {limits.context} (max_model_len)"
        elif limits.output is not None and shape.output_tokens > limits.output:
            why = f"asks for {shape.output_tokens} tokens, and the frontdoor gives {limits.output} (max_tokens_cap)"
        if why:
            out.append({"shape": shape.name, "reason": why})
        else:
            kept.append(shape)
    admitted = []
    for count in dict.fromkeys(streams or ladder(limits.streams)):
        if count > limits.streams and not limits.queues:
            why = f"the frontdoor admits {limits.streams} generations and queues none (queue_timeout_s is 0)"
            out.append({"streams": count, "reason": why})
        else:
            admitted.append(count)
    return kept, admitted, out


def limits_of(profile: Mapping[str, Any]) -> Limits:
    """Return the limits of a resolved profile, as it is stored on the host."""
    frontdoor = profile["frontdoor"]
    return Limits(
        context=profile["engine"].get("max_model_len"),
        output=frontdoor.get("max_tokens_cap"),
        streams=int(frontdoor["max_active_generations"]),
        queues=float(frontdoor["queue_timeout_s"]) > 0,
    )
