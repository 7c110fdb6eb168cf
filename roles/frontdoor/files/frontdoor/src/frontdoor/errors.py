# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers to clients when there is none from the engine, and the codes that they are told (codes.toml)."""

from __future__ import annotations

import dataclasses
import functools
import http
import math
import re
import tomllib
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from frontdoor.admission.outlook import told_s
from frontdoor.policy.routes import Style, meant
from frontdoor.slot.state import SlotState, epoch


class Code(NamedTuple):
    """No status means that it only comes in a stream that was begun. `admin`: of the administration alone."""

    statuses: tuple[int, ...]
    means: str
    then: str
    admin: bool = False


CODES = {
    name: Code(**{**row, "statuses": tuple(row["statuses"])})
    for name, row in tomllib.loads(Path(__file__).with_name("codes.toml").read_text()).items()
}


def _of(*statuses: int) -> tuple[str, ...]:
    return tuple(name for name, code in CODES.items() if set(code.statuses) & set(statuses))


# by what they say about whom, as the metrics count them
TURNED_AWAY_CODES = _of(503)
# also of streams that were begun, and answers of the engine's own that say that it failed
ENGINE_CODES = (*_of(502, 504), "upstream_cut", "upstream_timeout", "http_500")
OTHER_CODES = tuple(name for name in CODES if name not in TURNED_AWAY_CODES + ENGINE_CODES and CODES[name].statuses)

_TYPES = {
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("invalid_request_error", "not_found_error"),
    408: ("timeout_error", "invalid_request_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    502: ("upstream_error", "api_error"),
    503: ("service_unavailable", "overloaded_error"),
    504: ("timeout_error", "timeout_error"),
}


def types_of(status: int) -> tuple[str, str]:
    """Return the `type` of an error with this status, as OpenAI and as Anthropic call it."""
    return _TYPES.get(status, ("invalid_request_error", "invalid_request_error" if status < 500 else "api_error"))


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An answer of the frontdoor's own; `code` is stable and meant for programs.

    `retry_after_s` is when it is worth to ask again, however long that is; each client is told its own share of it.
    """

    status: int
    code: str
    message: str
    retry_after_s: int | None = None
    details: dict[str, Any] | None = None
    #: whole header lines
    fields: bytes = b""
    _rendered: dict[Any, tuple[bytes, bytes]] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def render(self, style: Style, fields: bytes, head_only: bool, spread: float) -> tuple[bytes, bytes]:
        """Return the response, cut after its first line; those that come in floods are made once.

        `spread` is that of `told_s`.
        """
        seconds = 0 if self.retry_after_s is None else told_s(self.retry_after_s, spread)
        key = (style, fields, head_only, seconds)
        done = self._rendered.get(key)
        if done is None:
            after = b"Retry-After: %d\r\n" % seconds if seconds else b""
            whole = response(self.status, body(self, style), after + self.fields + fields, head_only=head_only)
            cut = whole.index(b"\n") + 1
            done = whole[:cut], whole[cut:]
            if self.status >= 500:
                self._rendered[key] = done
        return done


def body(refusal: Refusal, style: Style) -> bytes:
    """Return the JSON body in the shape that the path's clients understand."""
    said = {"message": refusal.message, "code": refusal.code, **(refusal.details or {})}
    openai, anthropic = types_of(refusal.status)
    if style is Style.ANTHROPIC:
        said = {"type": "error", "error": {"type": anthropic, **said}}
    elif style is not Style.DETAIL:
        said = {"error": {"type": openai, "param": None, **said}}
    elif refusal.status == 422:
        said = {"detail": [{"type": refusal.code, "loc": ["body"], "msg": refusal.message}]}
    else:
        said = {"detail": said}
    return orjson.dumps(said)


_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')


def stream_event(refusal: Refusal, style: Style, sent: bytes = b"") -> bytes:
    """Return the server-sent event that ends a broken stream; `sent` is the last part of what was sent of it."""
    if style is Style.RESPONSES:
        # the type wants the fields beside the type, clients raise an error where there is one under `error`
        # of an event that was begun nothing was sent
        found = _NUMBER.findall(sent, 0, 1 + max(sent.rfind(b"\n\n"), sent.rfind(b"\r\n\r\n")))
        number = int(found[-1]) + 1 if found else 0
        inner = {"type": "server_error", "code": refusal.code, "message": refusal.message, "param": None}
        data = orjson.dumps({**inner, "type": "error", "sequence_number": number, "error": inner})
        return b"event: error\ndata: " + data + b"\n\n"
    prefix = b"event: error\ndata: " if style is Style.ANTHROPIC else b"data: "
    return prefix + body(refusal, style) + b"\n\n"


def told_by_engine(status: int, content: bytes) -> Refusal:
    """Return the engine's error, in its own words, for a client that already has the head of a stream."""
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError:
        said = None
    error = said.get("error", said) if isinstance(said, dict) else said
    details = error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}
    message = details.get("message")
    if not isinstance(message, str):
        message = f"the engine answered with status {status}"
    return Refusal(status, "engine_error", message, details=details)


def waiting(style: Style) -> bytes:
    """Return the bytes for a stream whose request waits: a comment, or the event that Anthropic's clients expect."""
    return b'event: ping\ndata: {"type": "ping"}\n\n' if style is Style.ANTHROPIC else b": waiting\n\n"


# Header lines about the connection: HTTP/1.1 keeps it without a word, HTTP/1.0 does not.
CLOSE = b"Connection: close\r\n"
KEPT = b"Connection: keep-alive\r\n"


def response(
    status: int, content: bytes | None, fields: bytes, *, kind: str = "application/json", head_only: bool = False
) -> bytes:
    """Return a complete response; `fields` are whole header lines. Without content, no header describes one."""
    parts = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()]
    if content is not None:
        about = b"Content-Type: %b\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"
        parts.append(about % (kind.encode(), len(content)))
    if status < 500:
        # a server's failures need no date (RFC 9110 6.6.1), and are made once
        parts.append(b"Date: %b\r\n" % formatdate(usegmt=True).encode())
    return b"".join((*parts, fields, b"\r\n", b"" if head_only else content or b""))


def _unauthorized(what: str) -> Refusal:
    words = f"{what} is needed: Authorization: Bearer KEY"
    return Refusal(401, "invalid_api_key", words, fields=b'WWW-Authenticate: Bearer realm="b70"\r\n')


# by the kind of key that opens what was asked for
UNAUTHORIZED = _unauthorized("a valid API key")
UNAUTHORIZED_TO_LOOK = _unauthorized("a valid API key or administration key")
UNAUTHORIZED_ADMIN = _unauthorized("a valid administration key")
ONLY_ADMIN = _unauthorized("this key is for the administration and the status; to ask the model, an API key")


def unknown_path(path: str) -> Refusal:
    """Return the refusal of a path that neither the frontdoor nor the engine answers."""
    right = meant(path)
    return Refusal(404, "unknown_path", f"{path} is not served here" + (f"; send it to {right}" if right else ""))


def not_remote(path: str) -> Refusal:
    """Return the refusal of a path that only engines on this host answer, for an engine elsewhere."""
    return Refusal(404, "unknown_path", f"{path} is not served here: the engine runs on another host")


def method_not_allowed(path: str, methods: tuple[bytes, ...]) -> Refusal:
    """Return the refusal of a method that a path does not know; browsers may always ask which it knows."""
    allow = b"Allow: %b\r\n" % b", ".join((*methods, b"OPTIONS"))
    return Refusal(405, "method_not_allowed", f"{path} only answers {methods[0].decode()}", fields=allow)


@functools.lru_cache(maxsize=256)
def busy(limit: int, places: int, retry_after_s: int) -> Refusal:
    """Return the refusal without a queue, when too few permits are free; made once, because it comes in floods."""
    what = "the generation slot is" if limit == 1 else f"all {limit} generation slots are"
    if places > 1:
        what = f"{places} generation slots are needed at once, and too many of the {limit} are"
    return Refusal(503, "busy", f"{what} in use; try again shortly", retry_after_s, {"max_active_generations": limit})


def queue_timeout(limit: int, waited_s: float, retry_after_s: int) -> Refusal:
    """Return the refusal of a request whose wait for a permit ran out."""
    message = f"no generation slot became free within {waited_s:.4g} s ({limit} in use); try again later"
    return Refusal(503, "queue_timeout", message, retry_after_s, {"max_active_generations": limit})


def too_many_generations(places: int, limit: int) -> Refusal:
    """Return the refusal of a request for more generations at once than there are permits, which no wait could help."""
    message = f"the request asks for {places} generations at once; at most {limit} may run here: ask for fewer"
    details = {"param": "n", "max_active_generations": limit}
    return Refusal(400, "too_many_generations", message, details=details)


def over_limit(name: str, limit: int, left_s: float) -> Refusal:
    """Return the refusal of an API key that has used what it may."""
    what, _per, span = name.split("_")
    seconds = max(1, math.ceil(left_s))
    message = f"this API key may use {limit} {what} per {span}, and has; the next {span} begins in {seconds} s"
    return Refusal(429, "rate_limit_exceeded", message, seconds, {"limit": name})


def queue_full(queued: int, retry_after_s: int) -> Refusal:
    """Return the refusal when too many requests wait already."""
    message = f"{queued} generations are already waiting for a slot"
    return Refusal(503, "queue_full", message, retry_after_s)


def not_served_here(name: str, served: Iterable[str]) -> Refusal:
    """Refuse a model that this client may not have loaded."""
    names = list(served)
    words = f"the model {name[:100]!r} is not served here; served: {', '.join(names)}"
    return Refusal(404, "model_not_found", words, details={"param": "model", "models": names})


def loading(profile: str, eta_s: float) -> Refusal:
    """Refuse a request whose wait for its model would be, or was, too long."""
    seconds = max(1, math.ceil(eta_s))
    words = (
        f"{profile} is not served yet, and will be in about {seconds} s; ask again then, or for a stream, which waits"
    )
    return Refusal(503, "loading", words, seconds, {"model": profile})


def load_failed(profile: str, reason: str, retry_after_s: int | None = None) -> Refusal:
    """Refuse a request for a profile that could not be loaded; every client may read the reason."""
    words = f"{profile} could not be loaded: {reason}"
    if retry_after_s is None:
        words += "; requests do not load it again before it was changed, or somebody has switched to it"
    return Refusal(503, "load_failed", words, retry_after_s, {"model": profile})


LEAVING = Refusal(
    503,
    "switching",
    "the model slot waits for its running answers, and then loads a model that was asked for before",
    30,
)


_MOVING = ("switching", "verifying")


def _retry_after(state: SlotState, now: float) -> int:
    """Return the seconds until it is worth to ask again: the rest of the expected time, or a steady number."""
    switch, left = state.switch or {}, state.retry_after_s
    if state.phase in _MOVING and switch.get("eta_s") is not None:
        since = state.updated_at
        if left is None:
            left, since = switch["eta_s"], switch["started_at"] or since
        # a time that is none, or lies ahead, is that of now
        left -= max(0.0, now - (epoch(since) or now))
    return 30 if left is None else max(1, math.ceil(left))


_CLOSED = {
    "failed": "the model slot failed and serves nothing",
    "serving": "the model slot is closed to new requests",
    "stopped": "no model is being served",
    "switching": "the model slot is switching",
}


def _situation(state: SlotState, retry_after_s: int) -> str:
    """Return what the slot does instead of taking requests, in words."""
    switch = state.switch or {}
    if state.phase == "verifying":
        target = switch.get("to") or (state.profile or {}).get("name") or "the model"
        return f"{target} is loaded and is being verified"
    if state.phase != "switching" or not switch:
        return _CLOSED[state.phase]
    source, target = switch["from"] or "nothing", switch["to"] or "nothing"
    if not switch.get("loading"):
        how = f"starting {target} anew" if source == target else f"switching from {source} to {target}"
        return f"the model slot is {how}"
    place = "" if source in ("nothing", target) else f" in the place of {source}"
    left = "" if switch["eta_s"] is None else f", about {retry_after_s} s are left"
    return f"the model slot is loading {target}{place}{left}"


def closed(state: SlotState, now: float) -> Refusal:
    """Return the refusal of a slot that takes no work: why, and when to come back, seen from a time of day."""
    details: dict[str, Any] = {"phase": state.phase}
    retry = _retry_after(state, now)
    if state.phase in _MOVING and state.switch:
        left = None if state.switch["eta_s"] is None else retry
        details["switch"] = {name: state.switch[name] for name in ("from", "to", "started_at")} | {"eta_s": left}
    message = _situation(state, retry) + (f": {state.reason}" if state.reason else "")
    code = "closed" if state.phase == "serving" else state.phase
    return Refusal(503, code, message, retry, details)
