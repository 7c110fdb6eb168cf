# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told when there is no answer from the engine."""

from __future__ import annotations

import dataclasses
import functools
import http
import math
import re
from email.utils import formatdate
from typing import Any

import orjson

from frontdoor.admission.outlook import told_s
from frontdoor.codes import ANTHROPIC_TYPES, OPENAI_TYPES
from frontdoor.policy.routes import Style
from frontdoor.slot.state import SlotState, epoch


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
    _rendered: dict[tuple[Style, bytes, bytes, bool, int], bytes] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def render(self, style: Style, extra: bytes, connection: bytes, head_only: bool, spread: float = 0.0) -> bytes:
        """The complete response; of those that come in floods made once. `spread` is that of `told_s`."""
        seconds = 0 if self.retry_after_s is None else told_s(self.retry_after_s, spread)
        key = (style, extra, connection, head_only, seconds)
        done = self._rendered.get(key)
        if done is None:
            after = b"Retry-After: %d\r\n" % seconds if seconds else b""
            fields = after + self.fields + extra
            done = response(self.status, body(self, style), extra=fields, connection=connection, head_only=head_only)
            if self.status >= 500:
                # without a date: a server's failures need none (RFC 9110 6.6.1)
                self._rendered[key] = done
        return done


def body(refusal: Refusal, style: Style) -> bytes:
    """The JSON body in the shape the path's clients understand."""
    said = {"message": refusal.message, "code": refusal.code, **(refusal.details or {})}
    if style is Style.ANTHROPIC:
        usual = "invalid_request_error" if refusal.status < 500 else "api_error"
        content: dict[str, Any] = {
            "type": "error",
            "error": {"type": ANTHROPIC_TYPES.get(refusal.status, usual), **said},
        }
    elif style is Style.OPENAI or style is Style.RESPONSES:
        kind = OPENAI_TYPES.get(refusal.status, "invalid_request_error")
        content = {"error": {"type": kind, "param": None, **said}}
    elif refusal.status == 422:
        content = {"detail": [{"type": refusal.code, "loc": ["body"], "msg": refusal.message}]}
    else:
        content = {"detail": said}
    return orjson.dumps(content)


_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')


def stream_event(refusal: Refusal, style: Style, sent: bytes = b"") -> bytes:
    """One server-sent event that ends a stream which cannot be completed; `sent` is the last of what was sent of it."""
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


# What an answer says of its connection: HTTP/1.1 keeps it without a word, HTTP/1.0 does not.
CLOSE = b"Connection: close\r\n"
KEPT = b"Connection: keep-alive\r\n"


def status_line(status: int) -> bytes:
    """First line of a response."""
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()


def date_line() -> bytes:
    """The header line that says when an answer was made."""
    return f"Date: {formatdate(usegmt=True)}\r\n".encode()


def response(
    status: int,
    content: bytes,
    *,
    content_type: str = "application/json",
    extra: bytes = b"",
    connection: bytes = b"",
    head_only: bool = False,
) -> bytes:
    """A complete response; `extra` is whole header lines, and so is what is said of the connection."""
    return b"".join(
        (
            status_line(status),
            b"Content-Type: %s\r\nContent-Length: %d\r\n" % (content_type.encode(), len(content)),
            b"Cache-Control: no-store\r\n",
            b"" if status >= 500 else date_line(),
            extra,
            connection,
            b"\r\n",
            b"" if head_only else content,
        )
    )


def _unauthorized(what: str) -> Refusal:
    words = f"{what} is needed: Authorization: Bearer KEY"
    return Refusal(401, "invalid_api_key", words, fields=b'WWW-Authenticate: Bearer realm="b70"\r\n')


# by the kind of key that opens what was asked for
UNAUTHORIZED = _unauthorized("a valid API key")
UNAUTHORIZED_TO_LOOK = _unauthorized("a valid API key or administration key")
UNAUTHORIZED_ADMIN = _unauthorized("a valid administration key")
ONLY_ADMIN = _unauthorized("this key is for the administration and the status; to ask the model, an API key")


def unknown_path(path: str) -> Refusal:
    """A path that is neither ours nor one of the engine's that may be asked."""
    return Refusal(404, "unknown_path", f"{path} is not served here")


def method_not_allowed(path: str, methods: tuple[bytes, ...]) -> Refusal:
    """A path that does not know this method; browsers may always ask what it knows."""
    allow = b"Allow: %b\r\n" % b", ".join((*methods, b"OPTIONS"))
    return Refusal(405, "method_not_allowed", f"{path} only answers {methods[0].decode()}", fields=allow)


@functools.lru_cache(maxsize=256)
def busy(limit: int, places: int, retry_after_s: int) -> Refusal:
    """No slot is free, or not enough of them, and the queue is off. Made once: it comes in floods."""
    what = "the generation slot is" if limit == 1 else f"all {limit} generation slots are"
    if places > 1:
        what = f"{places} generation slots are needed at once, and too many of the {limit} are"
    return Refusal(503, "busy", f"{what} in use; try again shortly", retry_after_s, {"max_active_generations": limit})


def queue_timeout(limit: int, waited_s: float, retry_after_s: int) -> Refusal:
    """The wait for a slot ran out."""
    message = f"no generation slot became free within {waited_s:.4g} s ({limit} in use); try again later"
    return Refusal(503, "queue_timeout", message, retry_after_s, {"max_active_generations": limit})


def too_many_generations(places: int, limit: int, param: str = "n") -> Refusal:
    """More at once than there are slots: waiting is of no use."""
    message = f"the request asks for {places} generations at once; at most {limit} may run here: ask for fewer"
    details = {"param": param, "max_active_generations": limit}
    return Refusal(400, "too_many_generations", message, details=details)


def queue_full(queued: int, retry_after_s: int) -> Refusal:
    """Too many are waiting already."""
    message = f"{queued} generations are already waiting for a slot"
    return Refusal(503, "queue_full", message, retry_after_s)


def outdated(was: SlotState, state: SlotState) -> Refusal:
    """What was asked for is not what is served any more; for those who waited through a change."""
    before, after = ((one.profile or {}).get("name") or "a model" for one in (was, state))
    what = f"the model slot switched from {before} to {after}" if before != after else f"the rules for {after} changed"
    return Refusal(503, "switching", f"{what} while this request waited; send it again", 1, {"phase": state.phase})


def _elapsed(since: str | None, now: float) -> float:
    """Seconds since a timestamp; 0 where it is none, or lies ahead."""
    return max(0.0, now - (epoch(since) or now))


def _retry_after(state: SlotState, now: float) -> int:
    """Seconds until it is worth to ask again: what is left of the time that is expected, or a steady number."""
    switch = state.switch or {}
    expected = switch.get("eta_s")
    left = state.retry_after_s
    if expected is not None and state.phase in ("switching", "verifying"):
        if left is not None:
            left -= _elapsed(state.updated_at, now)
        else:
            left = expected - _elapsed(switch.get("started_at") or state.updated_at, now)
    return 30 if left is None else max(1, math.ceil(left))


def _on_the_move(switch: dict[str, Any], *, loading: bool) -> str:
    """What a slot does that has no engine which answers."""
    source, target = switch["from"] or "nothing", switch["to"] or "nothing"
    if not loading:
        how = f"starting {target} anew" if source == target else f"switching from {source} to {target}"
        return f"the model slot is {how}"
    place = "" if source in ("nothing", target) else f" in the place of {source}"
    left = "" if switch["eta_s"] is None else f", about {switch['eta_s']} s are left"
    return f"the model slot is loading {target}{place}{left}"


_CLOSED = {
    "failed": "the model slot failed and serves nothing",
    "serving": "the model slot is closed to new requests",
    "stopped": "no model is being served",
}


def closed(state: SlotState, now: float) -> Refusal:
    """The slot does not take work; says why and when to come back, seen from a time of day."""
    details: dict[str, Any] = {"phase": state.phase}
    retry = _retry_after(state, now)
    if state.phase in ("switching", "verifying") and state.switch:
        details["switch"] = {name: state.switch.get(name) for name in ("from", "to", "started_at", "eta_s")}
        if details["switch"]["eta_s"] is not None:
            details["switch"]["eta_s"] = retry
    if state.phase == "switching" and state.switch:
        message = _on_the_move(details["switch"], loading=bool(state.switch.get("loading")))
    elif state.phase == "verifying":
        target = (state.switch or {}).get("to") or (state.profile or {}).get("name") or "the model"
        message = f"{target} is loaded and is being verified"
    else:
        message = _CLOSED.get(state.phase, f"the model slot is {state.phase}")
    if state.reason:
        message = f"{message}: {state.reason}"
    code = state.phase if state.phase != "serving" else "closed"
    return Refusal(503, code, message, retry, details)
