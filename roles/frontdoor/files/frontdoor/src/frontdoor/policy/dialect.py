# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of an engine's API that the frontdoor must know; the slot tells them, without the name of a kind."""

from __future__ import annotations

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
# of an engine whose slot does not say, as its metrics are then vLLM's
UNTOLD = Dialect("repetition_penalty", counts_answer=True)


def dialect_of(engine: Mapping[str, Any] | None) -> Dialect:
    """Return the dialect in a state's words about an engine."""
    told = (engine or {}).get("dialect")
    return UNTOLD if told is None else Dialect(*(told[name] for name in Dialect._fields))
