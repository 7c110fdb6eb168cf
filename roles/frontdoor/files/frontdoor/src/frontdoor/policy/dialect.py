# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of an engine's API that the frontdoor must know; the slot tells them, without the name of a kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Dialect(NamedTuple):
    """The dialect of an engine; its defaults are those of OpenAI's API.

    `penalty` is what the engine calls a repetition penalty, empty where it is not known to take one, or a top_k.
    `templates_responses`: its /v1/responses takes arguments of the chat template; `formats_responses`: it reads the
    format of a chat completion there. `counts_answer`: it refuses a request whose answer might not fit.
    """

    penalty: str = ""
    templates_responses: bool = False
    formats_responses: bool = False
    counts_answer: bool = False


# nothing is known but that it speaks OpenAI's API
PLAIN = Dialect()


def dialect_of(engine: Mapping[str, Any] | None, version: str) -> Dialect:
    """Return the dialect in a state's words about an engine; `version` is that of its release, or empty."""
    told = (engine or {}).get("dialect")
    return of_before((engine or {}).get("kind") or "vllm", version) if told is None else Dialect(**told)


def of_before(kind: str, version: str) -> Dialect:
    """Return the dialect of slots that did not tell it yet."""
    if kind == "llama-server":
        return Dialect("repeat_penalty", templates_responses=True, formats_responses=True)
    if kind != "vllm":
        return PLAIN
    found = re.match(r"(\d+)\.(\d+)", version)
    templates = found is not None and (int(found[1]), int(found[2])) >= (0, 30)
    return Dialect("repetition_penalty", templates_responses=templates, counts_answer=True)
