# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary: requests whose answers are known, and how an answer is checked against them. Pure.

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
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from ..kinds.table import kind_of
from ..model.profile import CanaryCase, Profile
from ..words.needle import prompt as long_prompt
from ..words.types import Reply, SlotFault
from . import stream, structured
from .degenerate import degenerate
from .reasoning import answer_of

PATH = "/v1/chat/completions"
CACHED = 2  # the first attempt whose prompt the prefix cache holds, and which is streamed
SHOWN = 200  # characters of an answer that go into a result
NAN = "the engine computes NaN: a log probability of its answer is no number"
# The cards' stacks are known for this; users who ask for no log probabilities are not harmed.
NAN_FAR_BACK = "its log probabilities hold NaN, while its text without them is right"
_COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}


@dataclass(frozen=True)
class Answer:
    """A generated text, or the arguments of a call. finish_reason: stop, length … as the engine says it.

    prompt_tokens, cached_tokens: what it counted. problem: why this is no answer to judge.
    """

    text: str
    finish_reason: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class CanaryResult:
    """One case: passed only when every repeat passed. got, sha256 and seconds: of the first that failed, or the last.

    seconds: latency of that request. attempt: its number, from 1, of so many attempts. problem: why it failed, where
    the two sides don't say it. note: what is worth knowing although it passed. request: hash of what was asked.
    steady: whether the repeats were answered alike, so that another host with this fingerprint can be compared.
    replica: which engine of several was asked.
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
    cached_tokens: int | None = None
    attempts: int = 1
    request: str = ""
    steady: bool = True
    replica: int | None = None

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def normalise(text: str) -> str:
    return text.strip()


def digest(text: str) -> str:
    """Return the sha256 of the normalised text, in hex.

    Lone surrogates, which JSON can hold, count as they are.
    """
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).hexdigest()


def shown(text: str) -> str:
    """Return the normalised text for a screen: cut, and with unprintable characters as escapes."""
    whole = normalise(text)
    cut = whole if len(whole) <= SHOWN else whole[:SHOWN] + "…"
    return "".join(char if char.isprintable() or char in "\t\n" else ascii(char)[1:-1] for char in cut)


def png(width: int, height: int, colour: str) -> bytes:
    """Return a picture of one colour; raise SlotFault for an unknown colour (a name, or rrggbb in hex)."""
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
    """Return the data URL of a case's image: the given one, or {width, height, colour} drawn."""
    if isinstance(image, str):
        return image
    data = png(int(image.get("width", 64)), int(image.get("height", 64)), str(image.get("colour", "red")))
    return "data:image/png;base64," + base64.b64encode(data).decode()


def payload(profile: Profile, case: CanaryCase) -> dict[str, Any]:
    """Return the body of POST /v1/chat/completions for a case: seeded, greedy unless the case samples, not streamed.

    It is the same for every repeat.
    """
    content: Any = case.prompt
    max_tokens = case.max_tokens + profile.engine.reasoning_room
    if case.long is not None:
        content = long_prompt(
            case.long,
            case.prompt,
            max_model_len=profile.engine.max_model_len,
            max_tokens=max_tokens,
            seed=profile.canary.seed,
        )
    if case.image is not None:
        content = [
            {"type": "text", "text": content},
            {"type": "image_url", "image_url": {"url": image_url(case.image)}},
        ]
    body: dict[str, Any] = {
        "model": profile.engine.served_model_name,
        "messages": [*map(dict, case.messages), {"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "top_p": 1.0,
        "seed": profile.canary.seed,
        "stream": False,
        **(case.sampling or {}),
        **structured.asked(case),
    }
    own = {} if profile.engine.reasoning is None else profile.engine.reasoning.template_kwargs
    if own or profile.frontdoor.chat_template_kwargs is not None:
        body["chat_template_kwargs"] = {**(profile.frontdoor.chat_template_kwargs or {}), **own}
    return body


def turns(case: CanaryCase) -> list[CanaryCase]:
    """Return one case for each question of a conversation, with what was said before; the last is the case itself."""
    earlier = (
        replace(
            case,
            messages=case.messages[:index],
            prompt=question["content"],
            compare="exact",
            expected=answer["content"],
            image=None,
            long=None,
        )
        for index, (question, answer) in enumerate(pairwise(case.messages))
        if (question["role"], answer["role"]) == ("user", "assistant")
    )
    return [*earlier, case]


def repeated(profile: Profile, case: CanaryCase, attempt: int, salt: str, *, follows: bool = False) -> dict[str, Any]:
    """Return the body of one attempt, from 1 on. follows: an earlier turn of the conversation was sent before it.

    The first attempt asks for log probabilities too, which show numbers that are none. The first of each pair of
    attempts finds nothing in the prefix cache and computes its whole prompt, the second finds what the first left and
    streams, so all ways are tried. salt: what no earlier request has used.
    """
    again = attempt % 2 == 0
    extra: Mapping[str, Any] = {"logprobs": True} if attempt == 1 else {}
    if again and case.stream:
        extra = stream.STREAMED
    body = salted(profile, payload(profile, case), f"{salt}-{(attempt + 1) // 2}", again=again or follows)
    return {**body, **extra}


def salted(profile: Profile, body: Mapping[str, Any], salt: str, *, again: bool = False) -> dict[str, Any]:
    """Return the body with a salt, so that it shares the prefix cache only with prompts of the same salt."""
    return kind_of(profile.engine.kind).apart(body, salt, again=again)


def request_hash(profile: Profile, case: CanaryCase) -> str:
    """Return a sha256 over the request and how its answer is found; the served name does not count."""
    asked = {key: value for key, value in payload(profile, case).items() if key != "model"}
    reasoning = profile.engine.reasoning
    if reasoning is not None:
        asked["reasoning"] = [reasoning.how, *reasoning.tags]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def first_token_payload(profile: Profile, *, logprobs: bool) -> dict[str, Any]:
    """Return the cheapest request that makes the engine compute: one token, with its log probability if `logprobs`."""
    body = payload(profile, CanaryCase("first_token", "Say one word.", 1, "contains", "")) | {"max_tokens": 1}
    if logprobs:
        body["logprobs"] = True
    return body


def known_question(profile: Profile) -> CanaryCase | None:
    """Return the first case with a short question and answer; None where there is none, or the model thinks first."""
    plain = (case for case in profile.canary.cases if case.compare == "exact" and case.prompt)
    short = (case for case in plain if not (case.long or case.image or case.messages or case.sampling or case.schema))
    return None if profile.engine.reasoning_room else next(short, None)


def check_answered(reply: Reply, asked: str) -> None:
    """Raise SlotFault if the engine refused what it was asked, or gave no answer. asked: in words."""
    if reply.status != 200:
        got = reply.error or f"{reply.status} {reply.text[:SHOWN]}"
        raise SlotFault(f"the engine did not answer {asked}", expected="200", got=shown(got))


def answer(
    reply: Reply, profile: Profile, case: CanaryCase | None = None, *, body: Mapping[str, Any] | None = None
) -> Answer:
    """Return the answer of a chat completion without the reasoning before it; raise SlotFault when there is none.

    body: the request; without one the answer is not a stream.
    """
    check_answered(reply, "a generation request")
    try:
        streamed = body is not None and body.get("stream")
        data, broken = stream.joined(reply.text) if streamed else (json.loads(reply.text), "")
        if not data:
            return Answer(reply.text[-SHOWN:], problem=broken)
        choice = data["choices"][0]
        message, finish_reason = choice["message"], str(choice.get("finish_reason") or "")
        text, problem = answer_of(message, finish_reason, profile.engine.reasoning)
        if case is not None and case.tool is not None and not problem:
            text, problem = structured.call_of(case, message, text)
        usage = data.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return Answer(text, finish_reason, _count(usage.get("prompt_tokens")), _count(cached), broken or problem)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SlotFault(
            "the engine's answer is not a chat completion", expected="choices[0].message", got=shown(reply.text)
        ) from error


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def refusal(reply: Reply) -> str:
    """Return what came in place of an answer that can be used."""
    return shown(f"{reply.status} {reply.text}") if reply.status != 200 else "200 with NaN in logprobs"


def nan_logprob(reply: Reply) -> bool:
    """Tell whether the engine computed numbers that are NaN: some engines report an error, others answer with them."""
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
    """Return the expected answer in words."""
    if case.tool is not None:
        return f"{case.tool['name']}({case.expected})"
    return case.expected if case.compare == "exact" else f"{case.compare}: {case.expected}".rstrip(": ")


def matches(case: CanaryCase, text: str) -> bool:
    """Tell whether a text is the wanted answer.

    For compare baseline, expected is the recorded hash, or empty while it is recorded.
    """
    got = normalise(text)
    if case.compare == "exact":
        return got == normalise(case.expected)
    if case.compare == "contains":
        return case.expected.casefold() in got.casefold()
    if case.compare == "regex":
        return re.search(case.expected, got) is not None
    if case.compare == "json":
        return not structured.wrong(case, got)
    if case.compare == "baseline" and not case.expected:
        return True
    return digest(text) == case.expected.lower().removeprefix("sha256:")


def evaluate(profile: Profile, case: CanaryCase, got: Answer, seconds: float, attempt: int) -> CanaryResult:
    """Check one answer. Raise SlotFault when the case's own regular expression is broken."""
    try:
        matched = not got.problem and matches(case, got.text)
    except re.error as error:
        raise SlotFault(f"canary {case.name}: {case.expected!r} is no regular expression ({error})") from error
    # An answer that is right to the letter is right, however odd it looks.
    certain = matched and case.expected and case.compare in ("exact", "sha256", "baseline", "json")
    problem = "" if certain else got.problem or degenerate(got.text)
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
        cached_tokens=got.cached_tokens,
    )


def _mismatch(case: CanaryCase, got: Answer) -> str:
    """Return what the two sides, which are cut, may not show."""
    if got.finish_reason == "length" and case.compare != "baseline":
        return f"the answer was cut off after max_tokens {case.max_tokens}"
    if case.compare == "json":
        return structured.wrong(case, normalise(got.text))
    if case.compare in ("sha256", "baseline"):
        wanted = case.expected.lower().removeprefix("sha256:")
        return f"the answer's sha256 begins with {digest(got.text)[:12]}, the wanted one with {wanted[:12]}"
    return ""


def unanswered(
    profile: Profile, case: CanaryCase, problem: str, got: str = "", seconds: float = 0.0, attempt: int = 1
) -> CanaryResult:
    """Return the result of a case that failed without a text to judge."""
    return CanaryResult(profile.name, case.name, False, expectation(case)[:SHOWN], got, "", seconds, attempt, problem)


def differing(results: Sequence[CanaryResult]) -> str:
    """Return how the answers of one case's repeats differ, or "" when they are the same.

    At temperature 0 with one seed an engine that nobody else uses has no reason to answer differently.
    """
    first: dict[str, CanaryResult] = {}
    for result in results:
        first.setdefault(result.sha256, result)
    if len(first) < 2:
        return ""
    seen = [f"{result.got[:40]!r} ({sha[:12]}, answer {result.attempt})" for sha, result in first.items()]
    return f"the repeats answered differently: {'; '.join(seen[:3])}"


def in_shape(
    result: CanaryResult, case: CanaryCase, body: Mapping[str, Any], turn: int = 1, of: int = 1
) -> CanaryResult:
    """Return the result of one request; a failed one tells how it was asked. turn: its number in a conversation."""
    words = [f"in turn {turn} of {of}"] if of > 1 else []
    words += [f"sampled at temperature {body['temperature']:g}"] if case.sampling else []
    words += ["in a stream"] if body["stream"] else []
    if result.passed or not words:
        return result
    return replace(result, problem="; ".join([*filter(None, [result.problem]), ", ".join(words)]))


def cached_answer(result: CanaryResult) -> CanaryResult:
    """Return the result of a long prompt's second answer, with a note where the prefix cache was not used."""
    if not result.passed:
        why = "from the prefix cache, after a right one without it"
        return replace(result, problem=f"{result.problem}; {why}" if result.problem else why)
    if result.cached_tokens == 0:
        return replace(result, note="the second answer took nothing from the prefix cache")
    return result


def summed_up(results: Sequence[CanaryResult], *, must_agree: bool, sampled: bool = False) -> CanaryResult:
    """Return one result of a case for all its attempts, of which only the last can have failed.

    must_agree: answers that differ fail the case; otherwise they are noted. sampled: they may differ, so they are not
    compared with those of other hosts either.
    """
    problem = "" if sampled else differing(results)
    last = replace(results[-1], steady=not problem and not sampled)
    if last.passed and problem and must_agree:
        return replace(last, passed=False, problem=problem)
    notes = [*(result.note for result in results), problem if last.passed else ""]
    return replace(last, note="; ".join(dict.fromkeys(note for note in notes if note)))
