# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told when there is no answer from the engine."""

from __future__ import annotations

import dataclasses
import http
import math
from typing import Any

import orjson

from frontdoor.routes import Style
from frontdoor.state import SlotState


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An answer of the frontdoor's own; `code` is stable and meant for programs."""

    status: int
    code: str
    message: str
    retry_after_s: int | None = None
    details: dict[str, Any] | None = None
    #: whole header lines
    fields: bytes = b""
    _rendered: dict[tuple[Style, bytes, bool, bool], bytes] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def render(self, style: Style, extra: bytes, close: bool, head_only: bool) -> bytes:
        """The complete response; made once, since a flood is refused with the same bytes."""
        key = (style, extra, close, head_only)
        done = self._rendered.get(key)
        if done is None:
            after = b"" if self.retry_after_s is None else b"Retry-After: %d\r\n" % self.retry_after_s
            done = self._rendered[key] = response(
                self.status, body(self, style), extra=after + self.fields + extra, close=close, head_only=head_only
            )
        return done


_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    417: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
    502: "upstream_error",
    503: "service_unavailable",
    504: "timeout_error",
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def body(refusal: Refusal, style: Style) -> bytes:
    """The JSON body in the shape the path's clients understand."""
    if style is Style.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(refusal.status, "api_error")
        inner = {"type": kind, "message": refusal.message, "code": refusal.code, **(refusal.details or {})}
        return orjson.dumps({"type": "error", "error": inner})
    if style is Style.DETAIL:
        if refusal.status == 422:
            return orjson.dumps({"detail": [{"type": refusal.code, "loc": ["body"], "msg": refusal.message}]})
        return orjson.dumps({"detail": {"code": refusal.code, "message": refusal.message, **(refusal.details or {})}})
    kind = _OPENAI_TYPES.get(refusal.status, "invalid_request_error")
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code, **(refusal.details or {})}
    return orjson.dumps({"error": error})


def stream_event(refusal: Refusal, style: Style) -> bytes:
    """One server-sent event that ends a stream which cannot be completed."""
    if style is Style.RESPONSES:
        data = orjson.dumps({"type": "error", "code": refusal.code, "message": refusal.message, "param": None})
        return b"event: error\ndata: " + data + b"\n\n"
    prefix = b"event: error\ndata: " if style is Style.ANTHROPIC else b"data: "
    return prefix + body(refusal, style) + b"\n\n"


def status_line(status: int) -> bytes:
    """First line of a response."""
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()


def response(
    status: int,
    content: bytes,
    *,
    content_type: str = "application/json",
    extra: bytes = b"",
    close: bool = False,
    head_only: bool = False,
) -> bytes:
    """A complete response; `extra` is whole header lines."""
    return b"".join(
        (
            status_line(status),
            b"Content-Type: %s\r\nContent-Length: %d\r\n" % (content_type.encode(), len(content)),
            b"Cache-Control: no-store\r\n",
            extra,
            b"Connection: close\r\n\r\n" if close else b"\r\n",
            b"" if head_only else content,
        )
    )


UNAUTHORIZED = Refusal(
    401,
    "invalid_api_key",
    "a valid API key is needed: Authorization: Bearer KEY",
    fields=b'WWW-Authenticate: Bearer realm="b70"\r\n',
)


def busy(limit: int) -> Refusal:
    """No slot is free and the queue is off."""
    what = "the generation slot is" if limit == 1 else f"all {limit} generation slots are"
    return Refusal(503, "busy", f"{what} in use; try again shortly", 1, {"max_active_generations": limit})


def queue_timeout(limit: int, waited_s: float) -> Refusal:
    """The wait for a slot ran out."""
    message = f"no generation slot became free within {waited_s:g} s ({limit} in use); try again later"
    return Refusal(503, "queue_timeout", message, 1, {"max_active_generations": limit})


def queue_full(queued: int) -> Refusal:
    """Too many are waiting already."""
    return Refusal(503, "queue_full", f"{queued} requests are already waiting for a generation slot", 5)


def closed(state: SlotState) -> Refusal:
    """The slot does not take work; says why and when to come back."""
    details: dict[str, Any] = {"phase": state.phase}
    if state.phase == "switching" and state.switch:
        source, target = state.switch.get("from") or "nothing", state.switch.get("to") or "nothing"
        message = f"the model slot is switching from {source} to {target}"
        details["switch"] = {name: state.switch.get(name) for name in ("from", "to", "started_at", "eta_s")}
    elif state.phase == "verifying":
        target = (state.switch or {}).get("to") or (state.profile or {}).get("name") or "the model"
        message = f"{target} is loaded and is being verified"
    elif state.phase == "failed":
        message = "the model slot failed and serves nothing"
    elif state.phase == "serving":
        message = "the model slot is closed to new requests"
    elif state.phase == "stopped":
        message = "no model is being served"
    else:
        message = f"the model slot is {state.phase}"
    if state.reason:
        message = f"{message}: {state.reason}"
    code = state.phase if state.phase != "serving" else "closed"
    after = state.retry_after_s if state.retry_after_s is not None else (state.switch or {}).get("eta_s")
    retry = max(1, math.ceil(after)) if isinstance(after, int | float) else 30
    return Refusal(503, code, message, retry, details)
