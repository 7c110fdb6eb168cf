# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON bodies of all kinds, and what an engine must get of them under given rules.

The second half knows the rules from the documentation, and not from the frontdoor's code.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any

from trial_config import ALIAS, SERVED, Rules

CHAT = "/v1/chat/completions"
GENERATING = (CHAT, "/v1/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate", "/generative_scoring")
LIMITS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/messages": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/inference/v1/generate": ("max_tokens",),
}
SAMPLED = (CHAT, "/v1/completions", "/v1/messages", "/v1/responses")
COUNTED = (CHAT, "/v1/completions")
KWARGS, _OPTIONS, _USAGE = "chat_template_kwargs", "stream_options", "include_usage"
_MEDIA = {
    "image": ("image_url", "input_image", "image"),
    "audio": ("audio_url", "input_audio"),
    "video": ("video_url",),
}
_MEDIA["video"] += ("input_video",)
_MODELS = (
    f'"{SERVED}"',
    f'"{ALIAS}"',
    '"gpt-4o"',
    '"tiny\\u002da"',
    "null",
    "5",
    '""',
    '["tiny-a"]',
    '"tiny-\\ud83d\\ude00"',
)
_NUMBERS = (
    "1",
    "7",
    "64",
    "65",
    "100000",
    "0",
    "-1",
    "null",
    "true",
    '"9"',
    '"100000"',
    "5.5",
    "1e2",
    "1e99",
    "[]",
    "{}",
)
_TEXTS = ("Who are you?", 'a "quote" and a \\ back', "{[,:]}", "äöü ∑ 😀", "x" * 3000, "", "model", '"max_tokens":1')
_EXTRA = (
    '"stream":true',
    '"stream":false',
    '"user":"u"',
    '"n":1',
    '"stop":["]","}"]',
    '"metadata":{"model":"x"}',
    '"a":[[[{}]]]',
)
_SPACE = ("", "", "", " ", "\n", "\t ", " \r\n")
_INSERTED: tuple[bytes, ...] = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\\u0000",
    b"\\ud800",
)
_INSERTED += (
    b'"max_tokens":9,',
    b'"model":"x",',
    b'"chat_template_kwargs":null,',
    b" ",
    b"1e999",
    b"NaN",
    b"/**/",
    b"[" * 2000,
)


def _string(rng: random.Random, text: str) -> str:
    if rng.random() < 0.15 and text:
        at = rng.randrange(len(text))
        if ord(text[at]) < 0x10000:
            return f"{json.dumps(text[:at])[:-1]}\\u{ord(text[at]):04x}{json.dumps(text[at + 1 :])[1:]}"
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def _content(rng: random.Random) -> str:
    text = _string(rng, rng.choice(_TEXTS))
    if rng.random() < 0.7:
        return text
    part = rng.choice([kind for kinds in _MEDIA.values() for kind in kinds] + ["text", "refusal"])
    url = f'{{"url":"data:image/png;base64,{"iVBORw0K" * rng.randrange(200)}"}}'
    return f'[{{"type":"text","text":{text}}},{{"type":{_string(rng, part)},{_string(rng, part)}:{url}}}]'


def _input(rng: random.Random) -> str:
    """Of a response: a text, items as OpenAI has them, or parts as llm-pool has them."""
    text, kind = _string(rng, rng.choice(_TEXTS)), rng.randrange(4)
    if kind == 0:
        return text
    if kind < 3:
        parts = [f'{{"type":"input_text","text":{text}}}']
        if rng.random() < 0.5:
            part = rng.choice([kind for kinds in _MEDIA.values() for kind in kinds] + ["text", "refusal"])
            parts.append(f'{{"type":{_string(rng, part)},"image_url":"data:image/png;base64,iVBORw0K"}}')
        content = text if rng.random() < 0.3 else f"[{','.join(parts)}]"
        return f'[{{"role":"user","content":{content}}}]'
    parts = [f'{{"type":"text","text":{_string(rng, rng.choice(_TEXTS))}}}' for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.4:
        detail = rng.choice(("", ',"detail":"low"', ',"detail":null'))
        parts.append(f'{{"type":"image_url","image_url":{{"url":"data:image/png;base64,iVBORw0K"{detail}}}}}')
    if rng.random() < 0.2:
        # refused
        parts.append(rng.choice(('{"type":"file","file":{}}', '{"type":"audio_url","audio_url":{}}', "5")))
    rng.shuffle(parts)
    return f"[{','.join(parts)}]"


def body(rng: random.Random, path: str) -> bytes:
    """A JSON object that a client of this path could send, or nearly."""
    space = rng.choice(_SPACE)
    found: list[str] = []

    def member(name: str, value: str) -> None:
        found.append(f"{_string(rng, name)}{space}:{space}{value}")

    for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
        member("model", rng.choice(_MODELS) if rng.random() < 0.5 else f'"{SERVED}"')
    for name in LIMITS.get(path, ("max_tokens",)):
        for _ in range(rng.choice((0, 0, 1, 2))):
            member(name, rng.choice(_NUMBERS))
    if rng.random() < 0.4:
        values = ("null", "{}", '{"enable_thinking":true}', '{ "x" : {"y":1} }', '"x"', "[]", '{"depth":9,"depth":8}')
        for _ in range(rng.choice((1, 1, 2))):
            member(KWARGS, rng.choice(values))
    if rng.random() < 0.4:
        member(rng.choice(("temperature", "top_p")), rng.choice(("0", "null", "1.5", '"warm"')))
    if path == "/v1/responses":
        member("input", _input(rng))
    elif path in (CHAT, "/v1/messages"):
        member("messages", f'[{{"role":"user","content":{_content(rng)}}}]')
    else:
        member("prompt", _string(rng, rng.choice(_TEXTS)))
    if path == "/inference/v1/generate":
        inner = f'{{"max_tokens":{rng.choice(_NUMBERS)},"n":1}}' if rng.random() < 0.7 else "{ }"
        member("sampling_params", rng.choice((inner, inner, "null", "[]")))
    found += rng.sample(_EXTRA, rng.randrange(3))
    rng.shuffle(found)
    glue = f"{space},{space}"
    return f"{rng.choice(_SPACE)}{{{space}{glue.join(found)}{space}}}{rng.choice(_SPACE)}".encode()


def spoilt(rng: random.Random, data: bytes) -> bytes:
    """The same with a few bytes changed, most often no JSON any more."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at, what = rng.randrange(len(changed) + 1), rng.randrange(5)
        if what == 0:
            changed[at:at] = rng.choice(_INSERTED)
        elif what == 1:
            del changed[at : at + rng.randrange(1, 9)]
        elif what == 2:
            changed[at:at] = changed[at : at + rng.randrange(1, 60)]
        elif what == 3 and at < len(changed):
            changed[at] = rng.randrange(256)
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


class Members(list[tuple[str, Any]]):
    """The members of an object in order, duplicates included."""

    def last(self) -> dict[str, Any]:
        return dict(self)


def read(data: bytes) -> Members | None:
    """A JSON object as an engine reads it; None where it is none."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=Members)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Members) else None


def _media(value: Any) -> set[str]:
    """Modalities that stand in messages or input, where engines look for them."""
    found: set[str] = set()
    todo = [value.last().get("messages"), value.last().get("input")]
    while todo:
        part = todo.pop()
        if isinstance(part, Members):
            kind = part.last().get("type")
            found |= {name for name, kinds in _MEDIA.items() if isinstance(kind, str) and kind in kinds}
            todo += [inner for name, inner in part.last().items() if name in ("content", "output")]
        elif isinstance(part, list):
            todo += part
    return found


_PARTS = ("text", "image_url", "audio_url", "file")


def _asked(value: Any) -> Any:
    """The `input` of a response as the engine gets it: llm-pool's parts are one message of the user.

    The table of docs/llm-pool.md says so: texts alone are joined. Parts of other kinds never reach the engine; None is
    returned of these.
    """

    def kind(one: Any) -> Any:
        return one.last().get("type") if isinstance(one, Members) else None

    if not isinstance(value, list) or isinstance(value, Members):
        return value
    if not any(kind(one) in _PARTS and "role" not in one.last() for one in value if isinstance(kind(one), str)):
        return value
    made: list[dict[str, Any]] = []
    for one in value:
        part = one.last() if isinstance(one, Members) else {}
        image = part.get("image_url")
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            made.append({"type": "input_text", "text": part["text"]})
        elif part.get("type") == "image_url" and isinstance(image, Members):
            url, detail = image.last().get("url"), image.last().get("detail")
            made.append({"type": "input_image", "image_url": url, "detail": detail or "auto"})
        else:
            return None
    texts = [part["text"] for part in made if part["type"] == "input_text"]
    content: Any = "".join(texts) if len(texts) == len(made) else [Members(part.items()) for part in made]
    return [Members({"role": "user", "content": content}.items())]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong_parameters(sent: Members, got: Members, default: int, cap: int) -> str:
    """Of the one path where the limit may stand in an object of parameters; the default goes there, if there is one."""
    path = "/inference/v1/generate"
    within, now = sent.last().get("sampling_params"), got.last().get("sampling_params")
    if not isinstance(within, Members):
        return _wrong_tokens(path, sent.last(), got.last(), default, cap)
    if not isinstance(now, Members):
        return f"sampling_params became {now!r}"
    given = sent.last().get("max_tokens")
    outer = _wrong_tokens(path, sent.last(), got.last(), default, cap) if given is not None else ""
    return outer or _wrong_tokens(path, within.last(), now.last(), default, cap)


def _wrong_tokens(path: str, sent: dict[str, Any], got: dict[str, Any], default: int, cap: int) -> str:
    names = LIMITS.get(path, ())
    if not names or not (default or cap):
        return ""
    given = {name: sent[name] for name in names if sent.get(name) is not None}
    if any(_number(value) and not math.isfinite(value) for value in given.values()):
        return ""
    if not given:
        wanted = min(default or cap, cap or default)
        return "" if got.get(names[0]) == wanted else f"no default of {wanted} in {names[0]}"
    for name, value in given.items():
        usable = _number(value) and value > 0
        wanted = (min(value, cap) if cap else value) if usable else default or cap
        if got.get(name) != wanted:
            return f"{name} is {got.get(name)!r} instead of {wanted!r}"
    return ""


def _wrong_kwargs(path: str, sent: Members, got: Members, defaults: dict[str, Any] | None, escaped: bool) -> str:
    if path != CHAT or not defaults:
        return ""
    value, now = sent.last().get(KWARGS), got.last().get(KWARGS)
    if value is None:
        fits = now == list(defaults.items()) or (escaped and now is None)
    elif isinstance(value, Members):
        wanted = {**defaults, **value.last()}
        fits = isinstance(now, Members) and (now.last() == wanted or (escaped and now == value))
    else:
        fits = now == value
    return "" if fits else f"{KWARGS} is {now!r}"


def _wrong_model(sent: Members, got: Members, policy: str, aliases: list[str]) -> str:
    given, now = sent.last().get("model"), got.last().get("model")
    kept = policy == "pass" and not (isinstance(given, str) and given in aliases)
    # with `reject`, what reaches the engine is either right already or an alias
    wanted = given if kept else SERVED
    return "" if now == wanted else f"the model is {now!r} instead of {wanted!r}"


def _wrong_report(sent: dict[str, Any], got: dict[str, Any]) -> str | None:
    """Of a stream that does not ask for its tokens, which it then does; None where it is none, or asks."""
    given, now = sent.get(_OPTIONS), got.get(_OPTIONS)
    if sent.get("stream") is not True or not isinstance(given, Members | None):
        return None
    wanted = {} if given is None else given.last()
    if wanted.get(_USAGE) is True:
        return None
    kept = isinstance(now, Members) and now.last().get(_USAGE) is True and wanted.keys() <= now.last().keys()
    return "" if kept else f"{_OPTIONS} is {now!r}"


def wrong(path: str, sent: bytes, got: bytes, rules: Rules) -> str:
    """What is wrong with a body that reached the engine; empty when all is right."""
    before, after = read(sent), read(got)
    request = rules.request
    if before is None:
        # what cannot be read to its end may have got something in front
        return ""
    if after is None:
        return f"it is no JSON any more: {got[:300]!r}"
    missing = _media(before) - set(rules.modalities)
    if missing:
        return f"the model takes no {missing}"
    tokens = request.get("max_tokens_default", 0), request.get("max_tokens_cap", 0)
    found = [_wrong_model(before, after, request["model_policy"], request.get("model_aliases", []))]
    ours = {"model"}
    if path in GENERATING:
        defaults = request.get("sampling_defaults", {}) if path in SAMPLED else {}
        within = path == "/inference/v1/generate"
        found.append(
            _wrong_parameters(before, after, *tokens)
            if within
            else _wrong_tokens(path, before.last(), after.last(), *tokens)
        )
        found.append(_wrong_kwargs(path, before, after, request.get(KWARGS), b"\\u" in sent))
        for name, value in defaults.items():
            wanted = before.last().get(name)
            wanted = value if wanted is None else wanted
            if after.last().get(name) != wanted:
                found.append(f"{name} is {after.last().get(name)!r} instead of {wanted!r}")
        counted = _wrong_report(before.last(), after.last()) if path in COUNTED else None
        if counted is not None:
            found.append(counted)
            ours.add(_OPTIONS)
        ours |= {KWARGS, "sampling_params", *LIMITS.get(path, ()), *defaults}
    wanted_members = [
        (name, _asked(value) if name == "input" and path == "/v1/responses" else value) for name, value in before
    ]
    translated = wanted_members != before
    if [pair for pair in wanted_members if pair[0] not in ours] != [pair for pair in after if pair[0] not in ours]:
        found.append("something else was changed")
    if request == {"model_policy": "pass"} and sent != got and not translated and _OPTIONS not in ours:
        found.append("there is no rule, and it was changed")
    return "; ".join(text for text in found if text)
