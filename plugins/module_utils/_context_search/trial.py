# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial: a rendering of a profile with another length, and what its engine says of its cache. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .._slot.model.profile import Profile
from .._slot.model.rendering import Rendering
from .._slot.words.logline import by_clients
from .._slot.words.types import SlotFault
from .lengths import Trial

FLAG, SEQUENCES_FLAG = "--max-model-len", "--max-num-seqs"
KIND = "vllm"
# The log may name earlier sizes of the cache too: the last ones count.
_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_MOST = re.compile(r"estimated maximum model length is ([\d,]+)")
_IN_UNIT = re.compile(rf"(?<![\w-])({FLAG}[ =])\d+(?![\w.])")


def length_of(rendering: Rendering) -> int:
    """Return the length of the profile; raise SlotFault if it has none to search for."""
    profile = json.loads(rendering.profile)
    engine = profile["engine"]
    if engine["kind"] != KIND:
        raise SlotFault(f"{rendering.name} is served by {engine['kind']}; a length is searched for {KIND} alone")
    if not isinstance(engine["max_model_len"], int) or len(_IN_UNIT.findall(rendering.unit)) != 1:
        raise SlotFault(f"{rendering.name} does not name one {FLAG}; set engine.settings.max_model_len in the profile")
    return int(engine["max_model_len"])


def sequences_of(profile: Profile) -> int | None:
    """Return how many sequences the engine works on at once; None if the profile leaves that to the engine."""
    words = profile.engine.argv
    said = [word.partition("=")[2] for word in words if word.startswith(f"{SEQUENCES_FLAG}=")]
    said += [value for word, value in pairwise(words) if word == SEQUENCES_FLAG]
    return min((int(value) for value in said if value.isdecimal()), default=None)


def with_length(rendering: Rendering, length: int) -> Rendering:
    """Return the rendering of the same profile with this length, and with a fingerprint of its own."""
    profile = json.loads(rendering.profile)
    engine, before = profile["engine"], str(profile["engine"]["max_model_len"])
    engine["max_model_len"] = length
    # The warm-up's shapes are for the profile's own length.
    profile.pop("warmup", None)
    # A trial has the slot to itself.
    engine.pop("beside", None)
    engine["argv"] = _with_value(engine["argv"], before, str(length))
    if "max_model_len" in (engine.get("settings") or {}):
        engine["settings"]["max_model_len"] = length
    said = f"{profile['fingerprint']} with {FLAG} {length}"
    profile["fingerprint"] = f"sha256:{hashlib.sha256(said.encode()).hexdigest()}"
    unit = _IN_UNIT.sub(rf"\g<1>{length}", rendering.unit)
    return replace(rendering, unit=unit, profile=json.dumps(profile, indent=2) + "\n", more=())


def _with_value(argv: Sequence[str], before: str, after: str) -> list[str]:
    words = list(argv)
    for place, word in enumerate(words):
        if word == f"{FLAG}={before}":
            words[place] = f"{FLAG}={after}"
        elif word == FLAG:
            words[place + 1] = after
    return words


def read_trial(length: int, lines: Sequence[str], seconds: float) -> Trial:
    """Return what a ready engine has said of its cache; raise SlotFault if it has not said it for this length."""
    own = [line for line in lines if not by_clients(line)]
    tokens = [_number(found[1]) for line in own if (found := _TOKENS.search(line))]
    said = [(_number(found[1]), float(found[2])) for line in own if (found := _CONCURRENCY.search(line))]
    if not tokens or not said or said[-1][0] != length:
        got = f"{len(tokens)} sizes of a cache, and concurrencies for {[row[0] for row in said] or 'no length'}"
        raise SlotFault("the engine's log does not say how many sequences fit", expected=f"{length} tokens", got=got)
    return Trial(length, tokens[-1], said[-1][1], seconds=round(seconds, 1))


def refused_trial(length: int, lines: Sequence[str], seconds: float) -> Trial:
    """Return the trial of an engine that ended because one sequence of this length does not fit."""
    found = [_number(match[1]) for line in lines if (match := _MOST.search(line))]
    return Trial(length, None, 0.0, found[-1] if found else None, round(seconds, 1))


def longest(config: str | None, length: int) -> int:
    """Return the longest context that a model's config.json knows, but at least the profile's own length."""
    try:
        data: Mapping[str, Any] = json.loads(config or "{}")
        known = data.get("max_position_embeddings") or data["text_config"]["max_position_embeddings"]
    except (ValueError, LookupError, TypeError, AttributeError):
        return length
    return max(length, known) if isinstance(known, int) else length


def _number(text: str) -> int:
    return int(text.replace(",", ""))
