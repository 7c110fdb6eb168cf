# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary: requests whose answers are known, and the judgement of what came back. Pure.

Normalisation: surrounding white space is removed. Hash: sha256 of the normalised UTF-8 text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .profile import CanaryCase, Profile
from .types import Reply, SlotFault

SHOWN = 200  # characters of an answer that go into a result
RUN_LIMIT = 12  # the same word or character this often in a row is garbage
_COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}


@dataclass(frozen=True)
class CanaryResult:
    """One case: passed only when every repeat passed. got, sha256 and seconds: of the first that failed, or the last.

    seconds: latency of that request. attempt: its number, from 1.
    """

    profile: str
    name: str
    passed: bool
    expected: str
    got: str
    sha256: str
    seconds: float
    attempt: int = 1
    problem: str = ""

    def as_dict(self) -> dict[str, object]:
        return {
            "profile": self.profile,
            "name": self.name,
            "passed": self.passed,
            "expected": self.expected,
            "got": self.got,
            "sha256": self.sha256,
            "seconds": round(self.seconds, 3),
            "attempt": self.attempt,
            "problem": self.problem,
        }


def normalise(text: str) -> str:
    return text.strip()


def digest(text: str) -> str:
    """sha256 of the normalised text, in hex."""
    return hashlib.sha256(normalise(text).encode()).hexdigest()


def png(width: int, height: int, colour: str) -> bytes:
    """A one-colour picture. Raises SlotFault for a colour it doesn't know (a name, or rrggbb in hex)."""
    if re.fullmatch(r"#?[0-9a-fA-F]{6}", colour):
        rgb = bytes.fromhex(colour.removeprefix("#"))
    elif colour in _COLOURS:
        rgb = bytes(_COLOURS[colour])
    else:
        raise SlotFault(f"canary image: colour {colour!r} is unknown; use rrggbb or one of {', '.join(_COLOURS)}")

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + rgb * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def image_url(image: Mapping[str, Any] | str) -> str:
    """Data URL for a case's image: a data URL as it is, or {width, height, colour} drawn."""
    if isinstance(image, str):
        return image
    data = png(int(image.get("width", 64)), int(image.get("height", 64)), str(image.get("colour", "red")))
    return "data:image/png;base64," + base64.b64encode(data).decode()


def payload(profile: Profile, case: CanaryCase) -> dict[str, Any]:
    """Body of POST /v1/chat/completions for a case: greedy, seeded, not streamed."""
    content: Any = case.prompt
    if case.image is not None:
        content = [
            {"type": "text", "text": case.prompt},
            {"type": "image_url", "image_url": {"url": image_url(case.image)}},
        ]
    body: dict[str, Any] = {
        "model": profile.engine.served_model_name,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": case.max_tokens,
        "temperature": 0,
        "top_p": 1.0,
        "seed": profile.canary.seed,
        "stream": False,
    }
    if profile.frontdoor.chat_template_kwargs is not None:
        body["chat_template_kwargs"] = dict(profile.frontdoor.chat_template_kwargs)
    return body


def first_token_payload(profile: Profile, *, logprobs: bool) -> dict[str, Any]:
    """The cheapest request that makes the engine compute: one token, with its log probability where it can be had."""
    body = payload(profile, CanaryCase("first_token", "Say one word.", 1, "contains", ""))
    if logprobs:
        body["logprobs"] = True
    return body


def answer(reply: Reply) -> str:
    """The generated text of a chat completion. Raises SlotFault when there is none."""
    if reply.status != 200:
        got = reply.error or f"{reply.status} {reply.text[:SHOWN]}"
        raise SlotFault("the engine did not answer a generation request", expected="200", got=got.strip())
    try:
        data = json.loads(reply.text)
        message = data["choices"][0]["message"]
        text = message.get("content")
        if text is None:
            text = message.get("reasoning_content") or message.get("reasoning") or ""
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SlotFault(
            "the engine's answer is not a chat completion", expected="choices[0].message", got=reply.text[:SHOWN]
        ) from error
    return str(text)


def nan_logprob(reply: Reply) -> bool:
    """Did the engine compute numbers that are not numbers? Some engines say so in an error, some in the answer."""
    if "not JSON compliant" in reply.text:
        return True
    if reply.status != 200:
        return False
    try:
        entries = json.loads(reply.text)["choices"][0]["logprobs"]["content"]
        values = [entry["logprob"] for entry in entries]
    except (ValueError, LookupError, TypeError):
        return False
    return any(isinstance(value, float) and math.isnan(value) for value in values)


def degenerate(text: str, expected: str = "") -> str:
    """Why this text is no language at all, or "" when nothing is wrong with it."""
    stripped = normalise(text)
    if not stripped:
        return "the answer is empty"
    if "\ufffd" in stripped:
        return "the answer holds replacement characters"
    if any(ord(char) < 32 and char not in "\t\n\r" for char in stripped):
        return "the answer holds control characters"
    for unit, what in ((list(stripped), "character"), (stripped.split(), "word")):
        run, last = 0, None
        for item in unit:
            run = run + 1 if item == last else 1
            last = item
            if run >= RUN_LIMIT and not item.isspace() and item * RUN_LIMIT not in expected:
                return f"the answer repeats the {what} {item!r} {run} times or more"
    return ""


def expectation(case: CanaryCase) -> str:
    """The expected side in words."""
    return case.expected if case.compare == "exact" else f"{case.compare}: {case.expected}"


def matches(case: CanaryCase, text: str) -> bool:
    got = normalise(text)
    if case.compare == "exact":
        return got == normalise(case.expected)
    if case.compare == "contains":
        return case.expected.casefold() in got.casefold()
    if case.compare == "sha256":
        return digest(text) == case.expected.lower().removeprefix("sha256:")
    return re.search(case.expected, got) is not None


def evaluate(profile: Profile, case: CanaryCase, text: str, seconds: float, attempt: int) -> CanaryResult:
    """Judgement of one answer. Raises SlotFault when the case's own regular expression is broken."""
    problem = degenerate(text, case.expected)
    try:
        passed = not problem and matches(case, text)
    except re.error as error:
        raise SlotFault(f"canary {case.name}: {case.expected!r} is no regular expression ({error})") from error
    shown = normalise(text)
    return CanaryResult(
        profile=profile.name,
        name=case.name,
        passed=passed,
        expected=expectation(case)[:SHOWN],
        got=shown if len(shown) <= SHOWN else shown[:SHOWN] + "…",
        sha256=digest(text),
        seconds=seconds,
        attempt=attempt,
        problem=problem,
    )
