# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of llm-pool's requests, in the words of the engine that is served. Pure.

An engine ignores fields that it does not know. So each field of llm-pool's is translated, refused with a remedy, or
left out because it asks for what happens anyway; docs/llm-pool.md has the table. This module does not touch a request
without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from frontdoor.errors import Refusal
from frontdoor.policy.dialect import PLAIN, Dialect
from frontdoor.policy.routes import CHAT, RESPONSES, TOKEN_FIELDS

KWARGS = "chat_template_kwargs"
CONSENT = "allow_remote"
DEFAULT, ENABLED, DISABLED = "default", "enabled", "disabled"
_MODES = (DEFAULT, ENABLED, DISABLED)
_MAX_KEY = 128

# Fields of either path, and those that one of OpenAI's APIs has too: there they are the engine's.
_OWN = ("decoding", "thinking", "allow_remote", "metrics", "fairness_key", "source_lang_code", "target_lang_code")
_NOT_OF_RESPONSES = ("messages", "response_format", "reasoning_effort", "thinking_token_budget")
_NOT_OF_CHAT = ("instructions",)
NAMES: dict[str, frozenset[str]] = {
    CHAT: frozenset(_OWN + _NOT_OF_CHAT),
    RESPONSES: frozenset(_OWN + _NOT_OF_RESPONSES),
}
# The parts that llm-pool takes where OpenAI's responses have items.
_PARTS = frozenset(("text", "image_url", "audio_url", "file"))
# Of a decoding: range, or None for a list of texts. The lower end of top_p is not part of its range.
_RANGES: dict[str, tuple[float, float] | None] = {
    "beam_size": (1, 16),
    "top_k": (1, 200),
    "top_p": (0, 1),
    "temperature": (0, 2),
    "repetition_penalty": (0, 4),
    "max_tokens": (1, 4096),
    "stop": None,
}
_WHOLE = ("beam_size", "top_k", "max_tokens")
_FORMATS = ("json_schema", "json_object", "text")


class Served(NamedTuple):
    """The served model: its name, its engine's dialect, and how it thinks (`thinking_kwargs`).

    `remote` tells that the engine is elsewhere.
    """

    name: str = ""
    dialect: Dialect = PLAIN
    thinking: Mapping[str, Mapping[str, Any]] = {}
    remote: bool = False


class Translated(NamedTuple):
    """The translated body, and whether the client wants metrics; None if it does not say."""

    content: dict[str, Any]
    metrics: bool | None


def thinking_kwargs(reasoning: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the arguments that make a chat template think, or not, by mode, without modes that the model lacks.

    A profile names the arguments that its way of thinking takes. Switches among them have an opposite.
    """
    if not reasoning:
        return {}
    given = dict(reasoning.get("template_kwargs") or {})
    here, other = (DISABLED, ENABLED) if reasoning.get("how") == DISABLED else (ENABLED, DISABLED)
    modes = {here: given}
    if given and all(isinstance(value, bool) for value in given.values()):
        modes[other] = {name: not value for name, value in given.items()}
    return modes


def translate(path: str, content: dict[str, Any], served: Served) -> Translated | Refusal:
    """Return the body as the engine takes it, or why it is refused."""
    new = dict(content)
    try:
        if not isinstance(content.get("thinking"), dict):
            # an object under this name is another API's
            _think(path, new, served)
        _decode(path, new, served)
        metrics = new.pop("metrics", None)
        if not isinstance(metrics, bool | None):
            raise _fault("metrics", "must be true or false")
        _consent(new)
        _leave_out(new)
        if path == CHAT:
            _instruct(new)
        else:
            _effort(new)
            _format(new, served)
            _input(new)
    except _Refused as exc:
        return exc.refusal
    return Translated(new, metrics)


class _Refused(Exception):
    """The reason why a field cannot be translated."""

    def __init__(self, status: int, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(status, code, message, details={"param": param})


def _fault(param: str, what: str) -> _Refused:
    return _Refused(422, "invalid_parameter", f"{param} {what}", param)


def _set(new: dict[str, Any], name: str, value: Any, param: str) -> None:
    """Set a member, unless the client set it to another value."""
    given = new.get(name)
    if given is not None and given != value:
        raise _fault(param, f"contradicts {name}, which the request sets too; leave one of them out")
    new[name] = value


def _think(path: str, new: dict[str, Any], served: Served) -> None:
    mode = new.pop("thinking", None)
    if mode is None or mode == DEFAULT:
        return
    if mode not in _MODES:
        raise _fault("thinking", f"must be one of {', '.join(_MODES)}")
    wanted = served.thinking.get(mode)
    if wanted is None:
        takes = ", ".join((DEFAULT, *sorted(served.thinking)))
        words = f"{served.name or 'the model'} takes thinking: {takes}; a profile says so under engine.reasoning"
        raise _Refused(400, "thinking_unsupported", words, "thinking")
    if not wanted:
        return
    if path == RESPONSES and not served.dialect.templates_responses:
        words = f"the engine of {served.name or 'the model'} ignores this here; send it to /v1/chat/completions"
        raise _Refused(400, "thinking_unsupported", words, "thinking")
    given = new.get(KWARGS)
    if given is not None and not isinstance(given, dict):
        raise _fault(KWARGS, "must be an object")
    merged = dict(given or {})
    for name, value in wanted.items():
        if merged.get(name, value) != value:
            raise _fault("thinking", f"contradicts {KWARGS}.{name}; leave one of them out")
        merged[name] = value
    new[KWARGS] = merged


def _decode(path: str, new: dict[str, Any], served: Served) -> None:
    decoding = new.pop("decoding", None)
    if decoding is None:
        return
    if not isinstance(decoding, dict):
        raise _fault("decoding", "must be an object")
    unknown = sorted(decoding.keys() - _RANGES.keys())
    if unknown:
        raise _fault(f"decoding.{unknown[0][:_MAX_KEY]}", f"is not known; known are {', '.join(_RANGES)}")
    for name, value in decoding.items():
        if value is None:
            continue
        param = f"decoding.{name}"
        _check(param, name, value)
        if name == "beam_size":
            if value > 1:
                words = "the engine samples; send beam_size 1, or use_beam_search and n to /v1/chat/completions"
                raise _Refused(400, "parameter_unsupported", words, param)
        elif name == "max_tokens":
            names = TOKEN_FIELDS[path]
            for own in [name for name in names if new.get(name) is not None] or names[:1]:
                _set(new, own, value, param)
        elif name == "stop":
            if value:
                _set(new, "stop", value, param)
        elif name in ("top_k", "repetition_penalty") and not served.dialect.penalty:
            # a penalty of 1 is none
            if name == "top_k" or value != 1:
                words = f"engines that run elsewhere are not known to take {name}; leave it out"
                raise _Refused(400, "parameter_unsupported", words, param)
        else:
            _set(new, served.dialect.penalty if name == "repetition_penalty" else name, value, param)


def _check(param: str, name: str, value: Any) -> None:
    bounds = _RANGES[name]
    if bounds is None:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise _fault(param, "must be a list of strings")
        return
    least, most = bounds
    whole = name in _WHOLE
    right = isinstance(value, int) if whole else isinstance(value, int | float)
    if isinstance(value, bool) or not right or not least <= value <= most or (name == "top_p" and value == 0):
        above = "above 0, at most 1" if name == "top_p" else f"from {least:g} to {most:g}"
        raise _fault(param, f"must be a {'whole ' if whole else ''}number {above}")


def _consent(new: dict[str, Any]) -> bool | None:
    """Take out whether the request may leave this host."""
    allowed = new.pop(CONSENT, None)
    if not isinstance(allowed, bool | None):
        raise _fault(CONSENT, "must be true or false")
    return allowed


def to_remote(content: dict[str, Any], served: Served, *, asks: bool) -> dict[str, Any] | Refusal:
    """Return the body for an engine on another host, on any path, or why it may not leave this one.

    `asks` tells that the request has to allow it; else it may not forbid it.
    """
    new = dict(content)
    try:
        allowed = _consent(new)
        if not (allowed or (allowed is None and not asks)):
            remedy = "send allow_remote: true" + ("" if asks else ", or leave it out")
            words = f"{served.name or 'the model'} runs on another host; {remedy}"
            raise _Refused(403, "remote_execution_disallowed", words, CONSENT)
    except _Refused as exc:
        return exc.refusal
    return new if CONSENT in content else content


def _leave_out(new: dict[str, Any]) -> None:
    # turns go by API key or address, which a client cannot invent
    key = new.pop("fairness_key", None)
    if key is not None and (not isinstance(key, str) or not key.strip() or len(key.strip()) > _MAX_KEY):
        raise _fault("fairness_key", f"must be a text of 1 to {_MAX_KEY} characters")
    for name in ("source_lang_code", "target_lang_code"):
        if new.pop(name, None) is not None:
            words = f"no model here takes {name}; name the language in the instructions"
            raise _Refused(400, "parameter_unsupported", words, name)


def _instruct(new: dict[str, Any]) -> None:
    told, messages = new.pop("instructions", None), new.get("messages")
    if told is None:
        return
    if not isinstance(told, str) or not isinstance(messages, list):
        raise _fault("instructions", "must be a string beside a list of messages")
    first = messages[0] if messages else None
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        raise _fault("instructions", "cannot be combined with a system message; send one of them")
    new["messages"] = [{"role": "system", "content": told}, *messages]


def _effort(new: dict[str, Any]) -> None:
    effort = new.pop("reasoning_effort", None)
    if effort is not None:
        if not isinstance(effort, str):
            raise _fault("reasoning_effort", "must be a text")
        given = new.get("reasoning")
        reasoning = dict(given) if isinstance(given, dict) else {}
        _set(reasoning, "effort", effort, "reasoning_effort")
        new["reasoning"] = reasoning
    if new.pop("thinking_token_budget", None) is not None:
        words = "engines take it on /v1/chat/completions only; send it there, or leave it out"
        raise _Refused(400, "parameter_unsupported", words, "thinking_token_budget")


def _format(new: dict[str, Any], served: Served) -> None:
    wanted = new.get("response_format")
    if served.dialect.formats_responses and wanted is not None:
        # the format of a response it ignores
        return
    new.pop("response_format", None)
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in _FORMATS:
        words = f"response_format.type must be one of {', '.join(_FORMATS)}"
        raise _Refused(400, "response_format_unsupported", words, "response_format")
    asked: dict[str, Any] = {"type": kind}
    if kind == "json_schema":
        schema = wanted.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise _fault("response_format.json_schema", "must be an object with a schema")
        asked |= {"name": "answer", **schema}
    given = new.get("text")
    text = dict(given) if isinstance(given, dict) else {}
    _set(text, "format", asked, "response_format")
    new["text"] = text


def holds_parts(value: Any) -> bool:
    """Tell whether an input has the form of llm-pool: parts of one message, not items of a conversation."""
    return isinstance(value, list) and any(_is_part(one) for one in value)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in _PARTS and "role" not in value


def _input(new: dict[str, Any]) -> None:
    messages = new.pop("messages", None)
    given = new.get("input")
    if messages is not None:
        if given is not None:
            raise _fault("messages", "cannot be combined with input; send one of them")
        if not isinstance(messages, list) or not messages:
            raise _fault("messages", "must be a list that is not empty")
        new["input"] = [_message(index, one) for index, one in enumerate(messages)]
        if new["input"][-1]["role"] != "user":
            raise _fault("messages", "must end with a user message")
    elif holds_parts(given):
        new["input"] = [{"role": "user", "content": _parts(given or [], "input")}]


def _message(index: int, message: Any) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        raise _fault(where, "must have the role user or assistant; instructions take what the system says")
    content = message.get("content")
    if isinstance(content, list):
        content = _parts(list(content), f"{where}.content")
    if not isinstance(content, str) and (message["role"] == "assistant" or not isinstance(content, list)):
        raise _fault(f"{where}.content", "must be a text, or of the user a list of parts")
    return {"role": message["role"], "content": content}


def _parts(parts: list[Any], where: str) -> str | list[dict[str, Any]]:
    """Return parts as responses take them; texts alone become one text."""
    made = [_part(part, f"{where}[{index}]") for index, part in enumerate(parts)]
    if made and all(part["type"] == "input_text" for part in made):
        return "".join(part["text"] for part in made)
    return made


def _part(part: Any, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "input_text", "text": part["text"]}
    if kind == "image_url":
        image = part.get("image_url")
        if not isinstance(image, dict) or not isinstance(image.get("url"), str):
            raise _fault(where, "must have image_url.url")
        if image["url"][:5].lower() == "file:":
            raise _Refused(400, "remote_media_refused", "files of the host are not read; send a data: URL", where)
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    if kind == "file":
        words = "files are not read here; send their text, or their pages as pictures"
        raise _Refused(400, "file_input_unsupported", words, where)
    if kind == "audio_url":
        words = "audio is taken on /v1/chat/completions only; send it there"
        raise _Refused(400, "modality_unsupported", words, where)
    raise _fault(where, "must be a part of type text or image_url, complete with its text or image_url")
