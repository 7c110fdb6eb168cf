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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .degenerate import degenerate
from .needle import prompt as long_prompt
from .profile import CanaryCase, Profile
from .types import Reply, SlotFault

SHOWN = 200  # characters of an answer that go into a result
NAN = "the engine computes NaN: a log probability of its answer is no number"
# The cards' stacks are known for this; users who ask for no log probabilities are not harmed.
NAN_FAR_BACK = "its log probabilities hold NaN, while its text without them is right"
_COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}


@dataclass(frozen=True)
class Answer:
    """A generated text. finish_reason: stop, length … as the engine says it. prompt_tokens: what it counted."""

    text: str
    finish_reason: str = ""
    prompt_tokens: int | None = None


@dataclass(frozen=True)
class CanaryResult:
    """One case: passed only when every repeat passed. got, sha256 and seconds: of the first that failed, or the last.

    seconds: latency of that request. attempt: its number, from 1. problem: why it failed, where the two sides don't say
    it. note: what is worth knowing although it passed.
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
    note: str = ""
    finish_reason: str = ""
    prompt_tokens: int | None = None

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
            "note": self.note,
            "finish_reason": self.finish_reason,
            "prompt_tokens": self.prompt_tokens,
        }


def normalise(text: str) -> str:
    return text.strip()


def digest(text: str) -> str:
    """sha256 of the normalised text, in hex. Halves of characters, which JSON can hold, count as they are."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).hexdigest()


def shown(text: str) -> str:
    """The normalised text, cut, with what no screen should be given written as escapes."""
    whole = normalise(text)
    cut = whole if len(whole) <= SHOWN else whole[:SHOWN] + "…"
    return "".join(char if char.isprintable() or char in "\t\n" else ascii(char)[1:-1] for char in cut)


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
    """Body of POST /v1/chat/completions for a case: greedy, seeded, not streamed. The same for every repeat."""
    content: Any = case.prompt
    if case.long is not None:
        content = long_prompt(
            case.long,
            case.prompt,
            max_model_len=profile.engine.max_model_len,
            max_tokens=case.max_tokens,
            seed=profile.canary.seed,
        )
    if case.image is not None:
        content = [
            {"type": "text", "text": content},
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


def repeated(profile: Profile, body: Mapping[str, Any], attempt: int, salt: str) -> dict[str, Any]:
    """The body as one attempt sends it, from 1 on.

    The first asks for log probabilities too, which show numbers that are none. On vLLM the first of each pair of
    attempts finds nothing in the prefix cache and computes its whole prompt, the second finds what the first left, so
    both ways are tried. salt: what no earlier request has used.
    """
    extra: dict[str, Any] = {"logprobs": True} if attempt == 1 else {}
    if profile.engine.kind == "vllm":
        extra["cache_salt"] = f"{salt}-{(attempt + 1) // 2}"
    return {**body, **extra}


def request_hash(body: Mapping[str, Any]) -> str:
    """sha256 over what is asked, without the name under which the model is served."""
    asked = {key: value for key, value in body.items() if key != "model"}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def first_token_payload(profile: Profile, *, logprobs: bool) -> dict[str, Any]:
    """The cheapest request that makes the engine compute: one token, with its log probability where it can be had."""
    body = payload(profile, CanaryCase("first_token", "Say one word.", 1, "contains", ""))
    if logprobs:
        body["logprobs"] = True
    return body


def answer(reply: Reply) -> Answer:
    """The generated text of a chat completion. Raises SlotFault when there is none."""
    if reply.status != 200:
        got = reply.error or f"{reply.status} {reply.text[:SHOWN]}"
        raise SlotFault("the engine did not answer a generation request", expected="200", got=shown(got))
    try:
        data = json.loads(reply.text)
        choice = data["choices"][0]
        message = choice["message"]
        text = message.get("content")
        if text is None:
            text = message.get("reasoning_content") or message.get("reasoning") or ""
        counted = (data.get("usage") or {}).get("prompt_tokens")
        return Answer(str(text), str(choice.get("finish_reason") or ""), counted if isinstance(counted, int) else None)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SlotFault(
            "the engine's answer is not a chat completion", expected="choices[0].message", got=shown(reply.text)
        ) from error


def refusal(reply: Reply) -> str:
    """What came in place of an answer that can be used."""
    return shown(f"{reply.status} {reply.text}") if reply.status != 200 else "200 with NaN in logprobs"


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
    return any(isinstance(value, float) and not math.isfinite(value) for value in values)


def expectation(case: CanaryCase) -> str:
    """The expected side in words."""
    return case.expected if case.compare == "exact" else f"{case.compare}: {case.expected}".rstrip(": ")


def matches(case: CanaryCase, text: str) -> bool:
    """Is it the wanted answer? For compare baseline, expected is the recorded hash, or empty while it is recorded."""
    got = normalise(text)
    if case.compare == "exact":
        return got == normalise(case.expected)
    if case.compare == "contains":
        return case.expected.casefold() in got.casefold()
    if case.compare == "regex":
        return re.search(case.expected, got) is not None
    if case.compare == "baseline" and not case.expected:
        return True
    return digest(text) == case.expected.lower().removeprefix("sha256:")


def evaluate(profile: Profile, case: CanaryCase, got: Answer, seconds: float, attempt: int) -> CanaryResult:
    """Judgement of one answer. Raises SlotFault when the case's own regular expression is broken."""
    try:
        matched = matches(case, got.text)
    except re.error as error:
        raise SlotFault(f"canary {case.name}: {case.expected!r} is no regular expression ({error})") from error
    # What is right to the letter is right, however odd it looks.
    certain = matched and case.expected and case.compare in ("exact", "sha256", "baseline")
    problem = "" if certain else degenerate(got.text)
    if not matched:
        problem = problem or _mismatch(case, got)
    return CanaryResult(
        profile=profile.name,
        name=case.name,
        passed=matched and not problem,
        expected=expectation(case)[:SHOWN],
        got=shown(got.text),
        sha256=digest(got.text),
        seconds=seconds,
        attempt=attempt,
        problem=problem,
        finish_reason=got.finish_reason,
        prompt_tokens=got.prompt_tokens,
    )


def _mismatch(case: CanaryCase, got: Answer) -> str:
    """What the two sides, which are cut, may not show."""
    if got.finish_reason == "length" and case.compare != "baseline":
        return f"the answer was cut off after max_tokens {case.max_tokens}"
    if case.compare in ("sha256", "baseline"):
        wanted = case.expected.lower().removeprefix("sha256:")
        return f"the answer's sha256 begins with {digest(got.text)[:12]}, the wanted one with {wanted[:12]}"
    return ""


def unanswered(
    profile: Profile, case: CanaryCase, problem: str, got: str = "", seconds: float = 0.0, attempt: int = 1
) -> CanaryResult:
    """A case that failed without a text to judge."""
    return CanaryResult(profile.name, case.name, False, expectation(case)[:SHOWN], got, "", seconds, attempt, problem)


def differing(results: Sequence[CanaryResult]) -> str:
    """How the answers of one case's repeats differ, or "" when they are the same.

    At temperature 0 with one seed an engine that nobody else uses has no reason to answer differently.
    """
    first: dict[str, CanaryResult] = {}
    for result in results:
        first.setdefault(result.sha256, result)
    if len(first) < 2:
        return ""
    seen = [f"{result.got[:40]!r} ({sha[:12]}, answer {result.attempt})" for sha, result in first.items()]
    return f"the repeats answered differently: {'; '.join(seen[:3])}"


def summed_up(results: Sequence[CanaryResult], *, must_agree: bool) -> CanaryResult:
    """One result of a case out of its repeats, of which only the last can have failed.

    must_agree: answers that differ fail the case; otherwise they are noted.
    """
    last, problem = results[-1], differing(results)
    if last.passed and problem and must_agree:
        return replace(last, passed=False, problem=problem)
    notes = [*(result.note for result in results), problem if last.passed else ""]
    return replace(last, note="; ".join(dict.fromkeys(note for note in notes if note)))
