# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches answers for output that no sound engine sends. It only reads the bytes, and only a sample of them.

A look takes ten microseconds, over the end of an answer that the exchange keeps anyway: once in LOOK_EVERY bytes of a
stream, and at the end of one in SHORT_ONES of shorter streams and complete answers. After a sign, all answers of that
replica are looked at until CLOSER of them had none. It does not decide what is degenerate: `degenerate` does, for
canaries as for clients' answers. A look only leaves out text that has no chance to be.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import orjson

from frontdoor.config import Sentinels
from frontdoor.observability.degenerate import LONGEST, WORD_TIMES, degenerate, unprintable
from frontdoor.observability.events import EventLog
from frontdoor.observability.metrics import NOT_A_NUMBER, REPETITION, UNPRINTABLE, Metrics, ModelStats
from frontdoor.policy.routes import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from frontdoor.slot.state import SlotState, utc_now

#: bytes of a stream from one look to the next
LOOK_EVERY = 256 * 1024
#: one in so many shorter streams and complete answers is looked at when it ends
SHORT_ONES = 16
#: so many answers of a replica without a sign end that all of them are looked at
CLOSER = 8
#: bytes that are looked at
WINDOW = 4096
#: how many answers are remembered, of each replica
RECENT = 32

# where the events of each path have their texts; the first of these that a look finds often enough counts
_KEYS: dict[str, tuple[bytes, ...]] = {
    CHAT: (b'content":', b'"reasoning":'),
    COMPLETIONS: (b'"text":',),
    MESSAGES: (b'"text":', b'"thinking":'),
    RESPONSES: (b'"delta":',),
}
#: the paths whose answers are watched
WATCHED = frozenset(_KEYS)
# the same of a complete answer, where it differs
_WHOLE_KEYS = {**_KEYS, RESPONSES: (b'"text":',)}
_TEXT = re.compile(rb'[ ]?("[^"\\]*(?:\\.[^"\\]*)*")')
# the rest of a text that begins before the window
_REST = re.compile(rb'[\x80-\xbf]*([^"\\]*(?:\\.[^"\\]*)*")[,}\]]')
# vLLM (by pydantic) and llama-server write a NaN as null, which no logprob of a generated token is otherwise
_LOGPROB, _NAN = b'logprob":', re.compile(rb'"logprob":[ ]?(?:null|NaN)')
_REPLACEMENT = "\ufffd".encode()


def sign_in(path: str, tail: bytes | bytearray, whole: bool = False) -> str:
    """Return the sign of a broken engine at the end of these bytes of an event stream of a path, or "".

    `whole`: they are those of a complete answer.
    """
    window = bytes(tail[-WINDOW:])
    if window.find(_LOGPROB) >= 0 and _NAN.search(window):
        return NOT_A_NUMBER
    if whole:
        return _sign_in_whole(path, window)
    for key in _KEYS.get(path, ()):
        parts = window.split(key)
        if len(parts) > WORD_TIMES:
            # with escapes as they stand, and an escaped quote cuts a text short
            text = b"".join([found[1] for part in parts[1:-1] if len(found := part.split(b'"', 2)) > 1])
            words = text.split()
            sound = 2 * len({*words}) > len(words) and len({*text}) > 2 * LONGEST
            if sound and text.find(_REPLACEMENT) < 0 and text.find(b"\\u") < 0:
                return ""
        sign = _judged(parts[1:])
        if sign:
            return sign
    return ""


def _sign_in_whole(path: str, window: bytes) -> str:
    """Return the sign in a complete answer, each of whose texts is judged by itself, or ""."""
    keys = _WHOLE_KEYS.get(path, ())
    parts = [part for key in keys for part in window.split(key)[1:]]
    if keys and len(window) == WINDOW:
        rest = _REST.match(window)
        if rest is not None:
            parts.append(b'"' + rest[1])
    for part in parts:
        sign = _judged([part])
        if sign:
            return sign
    return ""


def _judged(parts: list[bytes]) -> str:
    """Return the sign in the texts that these parts of a window begin with, or ""; logprobs begin with none."""
    found = [match[1] for part in parts if (match := _TEXT.match(part))]
    try:
        text = "".join(orjson.loads(b"[%b]" % b",".join(found)))
    except orjson.JSONDecodeError:
        # the coding of chunks stands in the middle of a text
        return ""
    if unprintable(text):
        return UNPRINTABLE
    return REPETITION if text.strip() and degenerate(text) else ""


class Sentinel:
    """The findings in the answers of one slot, and whether its engines should be verified again.

    The request for a verification is for the watchdog or an operator, and ends with the next verification.
    """

    def __init__(self, slot: str, settings: Sentinels, metrics: Metrics, events: EventLog) -> None:
        self.watches = settings.watch
        self._slot = slot
        self._verify_after = settings.verify_after
        self._metrics = metrics
        self._events = events
        self._model = ""
        # shorter streams and complete answers that ended
        self._short = -1
        # the engines, and when they were verified
        self._of: object = None
        # by replica, the newest last: whether an answer had a sign
        self._recent: dict[int, deque[bool]] = {}
        # by replica: how many answers without a sign are still to come until not all of them are looked at
        self._closer: dict[int, int] = {}
        #: the last sign: when, which one, and of which replica
        self.last: dict[str, Any] | None = None
        #: since when a verification is wanted, as a UTC timestamp
        self.verification_wanted_at: str | None = None

    def apply(self, state: SlotState) -> None:
        """Take the slot's new state; findings about other engines, or from before their verification, are forgotten."""
        self._model = str((state.profile or {}).get("served_model_name") or "")
        if self._model:
            # a rise from nothing is not seen
            self._metrics.models.setdefault(self._model, ModelStats())
        of = state.verified_at, [one.engine for one in state.replicas]
        if of != self._of:
            self._of = of
            self._recent.clear()
            self._closer.clear()
            self.last = self.verification_wanted_at = None

    def sample(self, replica: int) -> bool:
        """Tell whether to look at a shorter stream or complete answer that ended: only some are sampled."""
        self._short += 1
        return not self._short % SHORT_ONES or self._closer.get(replica, 0) > 0

    def note(self, replica: int, sign: str) -> None:
        """Count an answer that was looked at; `sign` is empty where it had none."""
        counted = self._metrics.models[self._model]
        counted.streams += 1
        recent = self._recent.get(replica)
        if recent is None:
            recent = self._recent[replica] = deque(maxlen=RECENT)
        recent.append(bool(sign))
        if not sign:
            if self._closer.get(replica, 0):
                self._closer[replica] -= 1
            return
        self._closer[replica] = CLOSER
        counted.signs[sign] += 1
        self.last = {"at": utc_now(), "sign": sign, "replica": replica}
        self._events.emit("degenerate_stream", slot=self._slot, model=self._model, sign=sign, replica=replica)
        if self.verification_wanted_at is None and 0 < self._verify_after <= sum(recent):
            self.verification_wanted_at = utc_now()
            self._events.emit("verification_wanted", slot=self._slot, model=self._model, replica=replica)

    def report(self) -> dict[str, Any]:
        """Return the sentinel's part of the status."""
        counted = self._metrics.models.get(self._model) or ModelStats()
        return {
            "streams": counted.streams,
            "signs": +counted.signs,
            "last": self.last,
            "verification_wanted_at": self.verification_wanted_at,
        }
