# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many generations a request asks for at once: each of them takes a place. Pure.

What counts is what the engine makes of a request (vLLM 0.20.1, 0.21.0 and 0.32.0 alike): of each prompt of a
completion, and of the one of a chat, it runs `n` sequences at a time; with beam search `n` is the number of beams.
`best_of`, which these releases read no more, counts as `n` where it is larger, as other engines mean it. A list of
numbers is one prompt, in tokens; any other list is a list of prompts, and embedded prompts come on top. Numbers may
come as texts. A scoring takes one place whatever it compares: each of its items is read, and then one token is all.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from frontdoor.policy.splice import Body, Member, NotAnObject, Scanner, TooIntricate, members

_CHAT, _COMPLETIONS, _GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
NUMBERS = ("n", "best_of")
_PROMPTS = ("prompt", "prompt_embeds")
# where the numbers stand in an object of parameters instead
_PARAMETERS = "sampling_params"
_PATHS = frozenset((_CHAT, _COMPLETIONS, _GENERATE))
# nobody writes a number that long but to hide it, and prompts beyond are not counted any more
_MAX_VALUE = 64
_MAX_PROMPTS = 10_000
# from this many bytes on quotes are looked for one by one, and so many are taken for rare: images hold none
_LARGE = 64 * 1024
_RARE = 64

# Cheap tests: what they do not find need not be looked into. The first finds letters of these names that are spelt with
# escapes, the second what most clients send that name a number at all.
_LETTER = re.compile(rb"\\u00[5-7]")
_JUST_ONE = re.compile(rb'"n"[ \t\r\n]*:[ \t\r\n]*(?:1|null)[ \t\r\n]*[,}]')
_LIST = re.compile(rb'"prompt(?:_embeds)?"[ \t\r\n]*:[ \t\r\n]*\[')
_BEGINNINGS = (b'"n"', b'"best_of"', b'"\\', b'"b\\', b'"be\\', b'"bes\\', b'"best\\', b'"best_\\', b'"best_o\\')


class Asked(NamedTuple):
    """What a request asks for: so many prompts, and of each so many generations."""

    prompts: int
    each: int


ONE = Asked(1, 1)


def asked(path: str, body: Body) -> Asked:
    """What a request asks for; raise TooIntricate where that cannot be told."""
    if path not in _PATHS:
        return ONE
    if not _numbered(body) and not (path == _COMPLETIONS and _listed(body)):
        return ONE
    try:
        found = members(body, (*NUMBERS, _PARAMETERS, *_PROMPTS))
        numbers = [member for member in found if member.name in NUMBERS]
        if path == _GENERATE:
            numbers = []
            for holder in found:
                if holder.name == _PARAMETERS and body[holder.start : holder.start + 1] == b"{":
                    numbers += Scanner(body).found(holder.start, NUMBERS)
        # of members with the same name engines read the last one; none of them may hide another
        each = max((_number(body, member) for member in numbers), default=1)
        if path != _COMPLETIONS:
            return Asked(1, each)
        counts = dict.fromkeys(_PROMPTS, 0)
        for member in found:
            if member.name in counts:
                counts[member.name] = max(counts[member.name], _prompts(body, member))
        return Asked(max(1, sum(counts.values())), each)
    except TooIntricate:
        raise
    except NotAnObject:
        # the engine refuses it
        return ONE


def _numbered(body: Body) -> bool:
    """Whether more than one may be asked for by number."""
    if len(body) >= _LARGE:
        at = body.find(b'"')
        for _try in range(_RARE):
            if at < 0:
                return False
            if body.startswith(_BEGINNINGS, at):
                break
            at = body.find(b'"', at + 1)
    if b'"best_of"' in body or _escaped(body):
        return True
    named = body.count(b'"n"')
    return named > 0 and len(_JUST_ONE.findall(body)) != named


def _listed(body: Body) -> bool:
    """Whether there may be several prompts."""
    at = body.find(b'"prompt')
    while at >= 0:
        if _LIST.match(body, at):
            return True
        at = body.find(b'"prompt', at + 1)
    return _escaped(body)


def _escaped(body: Body) -> bool:
    return b"\\u00" in body and _LETTER.search(body) is not None


def _number(body: Body, member: Member) -> int:
    """The number there, as generous readers take it; 1 for what none does."""
    raw = body[member.start : member.end]
    if len(raw) > _MAX_VALUE:
        raise TooIntricate
    try:
        value: Any = orjson.loads(raw)
        if isinstance(value, str):
            value = float(value)
        return max(1, int(value)) if not isinstance(value, bool) and value == int(value) else 1
    except (TypeError, ValueError, OverflowError):
        return 1


def _prompts(body: Body, member: Member) -> int:
    """How many prompts a value is."""
    scanner = Scanner(body)
    mark = body[member.start : member.start + 1]
    if mark != b"[":
        return int(not scanner.is_null(member.start))
    at = scanner.space(member.start + 1)
    if body[at : at + 1] in (b"]", *(b"%d" % digit for digit in range(10))):
        return int(body[at] != ord("]"))
    count = 1
    while count < _MAX_PROMPTS:
        at = scanner.space(scanner.skip(at))
        if body[at : at + 1] != b",":
            break
        at = scanner.space(at + 1)
        count += 1
    return count
