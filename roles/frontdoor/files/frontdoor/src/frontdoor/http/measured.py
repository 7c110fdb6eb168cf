# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers with timings in the words of llm-pool, for clients that request them.

Unknown values are null: tokens if the engine reports none, and what only an engine could measure.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from frontdoor.admission.router import Wish
from frontdoor.http.client import ClientConnection, Target
from frontdoor.http.exchange import MAX_COLLECTED, Exchange
from frontdoor.http.head import RequestHead, ResponseHead
from frontdoor.http.relay import Relay, relay_for, without_usage
from frontdoor.policy.document import Document
from frontdoor.policy.routes import RESPONSES

_CODED = re.compile(rb"(?im)^content-encoding:[ \t]*(?!identity[ \t]*\r?$)")
_JSON = re.compile(rb"(?im)^content-type:[ \t]*application/json")
_DATA = re.compile(rb"(?m)^data:[ \t]*(.*?)\r?$")
# events that end a response, of which one is the last
_ENDS = re.compile(rb'"type"[ \t]*:[ \t]*"response\.(?:completed|incomplete|failed)"')
_DELTA = b'.delta"'
# events of a chat that tell more than text
_TELLS = (b'"usage":{', b'"usage": {', b'"finish_reason":"', b'"finish_reason": "')
_DONE = b"[DONE]"


def _number(holder: Any, *names: str) -> int | None:
    """Return the first of these counts that a report has."""
    for name in names:
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _reason(answer: dict[str, Any]) -> str | None:
    """Return why the engine stopped: a chat completion says it per choice, a response by its status."""
    choices = answer.get("choices")
    if isinstance(choices, list):
        first = choices[0] if choices else None
        found = first.get("finish_reason") if isinstance(first, dict) else None
    else:
        details = answer.get("incomplete_details")
        found = details.get("reason") if isinstance(details, dict) else answer.get("status")
    return found if isinstance(found, str) else None


def metrics_of(
    queued_s: float, total_s: float, first_s: float | None, usage: Any, reason: str | None
) -> dict[str, Any]:
    """Return the metrics of an answer; times in milliseconds.

    `queued_s` is the wait for a permit, `total_s` the time since the request was complete. `first_s` is the time from
    asking the engine to the first token of a stream, None where that cannot be seen.
    """
    backend_s = max(0.0, total_s - queued_s)
    about = usage if isinstance(usage, dict) else {}
    details = about.get("prompt_tokens_details") or about.get("input_tokens_details")
    generated = _number(usage, "completion_tokens", "output_tokens")
    streamed = first_s is not None
    # of a stream after its first token; else all of it, for nobody saw the first one
    decode_s, decoded = backend_s, generated
    if first_s is not None and generated:
        decode_s, decoded = max(0.0, backend_s - first_s), generated - 1
    return {
        "engine_queue_wait_ms": _ms(queued_s),
        "backend_inference_wall_ms": _ms(backend_s),
        "engine_total_wall_ms": _ms(total_s),
        "engine_outside_backend_wall_ms": _ms(total_s - backend_s),
        "pool_total_wall_ms": _ms(total_s),
        "engine_tokenize_ms": None,
        "gpu_time_to_first_token_ms": _ms(first_s),
        "gpu_generate_total_ms": _ms(backend_s) if streamed else None,
        "gpu_decode_after_first_token_ms": _ms(max(0.0, backend_s - first_s)) if first_s is not None else None,
        "engine_prompt_tokens": _number(usage, "prompt_tokens", "input_tokens"),
        "engine_cached_prompt_tokens": _number(details, "cached_tokens"),
        "engine_output_tokens": generated,
        "engine_finish_reason": reason,
        "engine_tokens_per_second": round(decoded / decode_s, 3) if decoded and decode_s else None,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


class Measured(Exchange):
    """An exchange whose answer gets metrics. Answers that are not 200 or not JSON pass as they are."""

    __slots__ = ("_about", "_first_s", "_usage")

    def __init__(
        self,
        client: ClientConnection,
        target: Target,
        head: RequestHead,
        size: int,
        body: bytes | bytearray,
        permits: int,
        wish: Wish | None,
        asked: Document,
    ) -> None:
        # nothing can be added to a compressed body
        head.uncoded()
        super().__init__(client, target, head, size, body, permits, wish, asked=asked)
        self._first_s: float | None = None
        # of a chat that is streamed: its report of tokens, and what else its chunks say
        self._usage: Any = None
        self._about: dict[str, Any] = {}

    def _collects(self, response: ResponseHead) -> bool:
        if response.event_stream or response.status != 200 or _CODED.search(response.wire):
            return super()._collects(response)
        return (response.length or 0) <= MAX_COLLECTED and _JSON.search(response.wire) is not None

    def _relay_of(self, response: ResponseHead) -> Relay:
        if response.status == 200 and response.event_stream:
            return relay_for(response, client_chunks=self._head.http11, edit=self._edited_events)
        return super()._relay_of(response)

    def _tell(self, response: ResponseHead, content: bytes) -> None:
        if self._client.opened:
            super()._tell(response, content)
        else:
            self._tell_whole(response, self._edited_body(content))

    # --- complete answers ------------------------------------------------------------------------------------------

    def _edited_body(self, content: bytes) -> bytes:
        try:
            answer = orjson.loads(content)
        except orjson.JSONDecodeError:
            return content
        if not isinstance(answer, dict):
            return content
        found = self._metrics(answer.get("usage"), _reason(answer))
        own = answer.get("metrics")
        text = content.rstrip()
        if own is None and "metrics" not in answer and answer:
            # everything else stays the same, byte for byte
            return text[:-1] + b',"metrics":' + orjson.dumps(found) + b"}"
        return orjson.dumps({**answer, "metrics": {**own, **found} if isinstance(own, dict) else found})

    def _metrics(self, usage: Any, reason: str | None) -> dict[str, Any]:
        queued = 0.0 if self._permit is None else self._permit.waited
        return metrics_of(queued, self._server.loop.time() - self._started, self._first_s, usage, reason)

    # --- event streams ---------------------------------------------------------------------------------------------

    def _edited_events(self, events: bytes) -> bytes:
        """Return whole events with those that are added."""
        responses = self._head.route.path == RESPONSES
        if self._first_s is None and (not responses or _DELTA in events):
            queued = 0.0 if self._permit is None else self._permit.waited
            self._first_s = self._server.loop.time() - self._started - queued
        return self._response_events(events) if responses else self._chat_events(events)

    def _response_events(self, events: bytes) -> bytes:
        if not _ENDS.search(events):
            return events
        for data in _DATA.finditer(events):
            event = _object(data[1]) if _ENDS.search(data[1]) else None
            answer = event.get("response") if event is not None else None
            if isinstance(answer, dict):
                about = {"type": "response.metrics", "id": answer.get("id")}
                about["metrics"] = self._metrics(answer.get("usage"), _reason(answer))
                at = _start(events, data.start())
                return events[:at] + b"event: response.metrics\ndata: " + orjson.dumps(about) + b"\n\n" + events[at:]
        return events

    def _chat_events(self, events: bytes) -> bytes:
        if not self._about or any(mark in events for mark in _TELLS):
            for data in _DATA.finditer(events):
                if not self._about or any(mark in data[1] for mark in _TELLS):
                    self._take_chunk(_object(data[1]) or {})
        if self._hides:
            events = without_usage(events)
        done = next((data for data in _DATA.finditer(events) if data[1] == _DONE), None) if _DONE in events else None
        if done is None:
            return events
        found = self._metrics(self._usage, self._about.pop("reason", None))
        added = {**self._about, "choices": [], "metrics": found}
        at = _start(events, done.start())
        return events[:at] + b"data: " + orjson.dumps(added) + b"\n\n" + events[at:]

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        if "id" not in self._about:
            self._about |= {name: chunk[name] for name in ("id", "object", "created", "model") if name in chunk}
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        reason = _reason(chunk)
        if reason is not None:
            self._about.setdefault("reason", reason)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _start(events: bytes, at: int) -> int:
    """Return where the event begins that has a line at this place."""
    ends = (events.rfind(mark, 0, at) + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if mark in events[:at])
    return max(ends, default=0)
