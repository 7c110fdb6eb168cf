# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary of models that write down speech: a sound that is made here or given, and what came of it. Pure.

A tone says that the whole way from the upload through encoder and decoder to a text works and gives the same twice.
Only a recording with a known text shows that speech is understood.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..model.profile import CanaryCase, Profile
from ..words.types import Reply, SlotFault
from .canary import Answer, CanaryResult, check_answered, digest, evaluate, expectation, normalise, shown
from .degenerate import unprintable

PATH = "/v1/audio/transcriptions"
RATE = 16000
PROBE = CanaryCase("first_token", "", 0, "transcript", "", audio={"tone_hz": 440, "seconds": 1})


def wav(tone_hz: float, seconds: float) -> bytes:
    """Return a tone that swells and fades away, as 16-bit mono WAV."""
    count = int(RATE * seconds)
    samples = (
        int(12000 * math.sin(math.pi * n / count) * math.sin(2 * math.pi * tone_hz * n / RATE)) for n in range(count)
    )
    data = b"".join(struct.pack("<h", sample) for sample in samples)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, RATE, RATE * 2, 2, 16,
                       b"data", len(data))  # fmt: skip
    return head + data


def sound(audio: Mapping[str, Any] | str) -> bytes:
    """Return the bytes of a case's audio: from a data URL, or a tone made from {tone_hz, seconds}."""
    if isinstance(audio, str):
        return base64.b64decode(audio.partition("base64,")[2])
    return wav(float(audio.get("tone_hz", 440)), float(audio.get("seconds", 2)))


def fields(profile: Profile) -> dict[str, str]:
    """Return what is sent beside the file."""
    model = profile.engine.served_model_name
    return {"model": model, "response_format": "json", "temperature": "0", "seed": str(profile.canary.seed)}


def text_of(reply: Reply) -> str:
    """Return the text of a transcript; raise SlotFault when there is none, not even an empty one."""
    check_answered(reply, "a request for a transcript")
    with suppress(ValueError, LookupError, TypeError):
        text = json.loads(reply.text)["text"]
        if isinstance(text, str):
            return text
    raise SlotFault("the engine's answer is no transcript", expected="text", got=shown(reply.text))


def check_answer(profile: Profile, case: CanaryCase, reply: Reply, seconds: float, attempt: int) -> CanaryResult:
    """Check one transcript against its case. Raise SlotFault when there is none."""
    text = text_of(reply)
    if case.compare != "transcript":
        return evaluate(profile, case, Answer(text), seconds, attempt)
    # Silence, a note in brackets or a guess: any text is right for a tone, as long as it is one.
    problem = unprintable(normalise(text))
    got, expected = shown(text), expectation(case)
    return CanaryResult(profile.name, case.name, not problem, expected, got, digest(text), seconds, attempt, problem)
