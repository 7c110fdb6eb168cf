# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wish of a generation for a replica, by its session, its prompt, and its length.

Pure. Only slots with several replicas look.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from frontdoor.admission.router import Wish
from frontdoor.config import Routing
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.prefix import BEFORE, PROMPTS, blocks_of
from frontdoor.policy.routes import GENERATE, PARAMETERS, TOKEN_FIELDS

#: what names a session where the profile does not say, in this order
HEADERS = (
    *("x-session-id", "x-conversation-id", "x-agent-id"),
    # the headers of Claude Code, Open WebUI, opencode and others, LiteLLM, and Codex
    *("x-claude-code-session-id", "x-openwebui-chat-id", "x-session-affinity", "x-opencode-session"),
    *("x-litellm-session-id", "thread-id", "session-id"),
)
JSON_FIELDS = (
    *("session_id", "conversation_id", "metadata.session_id", "metadata.conversation_id", "litellm_session_id"),
    # a session for Claude Code, somebody who may have several for others
    *("prompt_cache_key", "metadata.user_id", "safety_identifier", "user"),
)
_MODE = re.compile(rb"(?im)^x-sticky-mode:[ \t]*(off|prefer|strict)[ \t]*\r$")
_ESTIMATE = re.compile(rb"(?im)^x-estimated-prompt-tokens:[ \t]*([0-9]{1,12})[ \t]*\r$")
# Text that a token never holds more of on average, spaces apart: an estimate must not refuse what would fit. English
# and code have 4, Thai has 3 to 4.
_CHARACTERS = 8
# how much is read for an estimate; what is longer the engine judges
_MOST_BYTES = 2 * 1024 * 1024
# characters of a name that tell sessions apart
_MAX_NAME = 4096
# with it the engine shortens a prompt that does not fit
_SHORTENED = "truncate_prompt_tokens"
_REPLICA = re.compile(rb"[?&]replica=([0-9]{1,3})(?:&| )")
_ALL_REPLICAS = re.compile(rb"[?&]replica=all(?:&| )")


def replica_named(line: bytes) -> int:
    """Return the replica that the query of a request line names; 0 where it names none."""
    found = _REPLICA.search(line)
    return int(found[1]) if found else 0


def names_all_replicas(line: bytes) -> bool:
    """Tell whether the query of a request line names all replicas."""
    return _ALL_REPLICAS.search(line) is not None


class Reader:
    """Reads wishes by the settings of one profile.

    `lengths` are the contexts of its replicas in tokens; if one is 0, which is not known, no request is too long.
    `counts_answer` tells that the engines refuse a request whose answer might not fit; others stop when it does not.
    """

    def __init__(self, routing: Routing, lengths: Sequence[int], *, counts_answer: bool) -> None:
        self._routing = routing
        headers = HEADERS if routing.headers is None else routing.headers
        self._headers = {name.lower().encode(): rank for rank, name in enumerate(headers)}
        fields = JSON_FIELDS if routing.json_fields is None else routing.json_fields
        self._fields = tuple(field.split(".") for field in fields)
        self._lengths = tuple(lengths)
        self._shortest = min(self._lengths, default=0)
        self._counts_answer = counts_answer

    def wish(
        self, path: str, fields: bytes, document: Document, sent: bytes | bytearray, usable: int, client: str
    ) -> Wish | Refusal:
        """Return the wish of a request, or why no open replica can hold it.

        `fields` are its header lines, `sent` is the body as the engine is sent it, `usable` are the open replicas, as
        bits, and `client` is who competes. An unreadable body wishes nothing.
        """
        content = document.content if sent is document.body else document.sent
        table = content if isinstance(content, dict) else {}
        session, strict = self._session(fields, table, document)
        blocks, own = blocks_of(table, document, client) if self._routing.prefix_affinity else ((), 0)
        if not self._shortest:
            return Wish(session, blocks, own, strict)
        limit, answer = self._answer(path, table)
        tokens = self._tokens(fields, sent, table, answer, document)
        if tokens <= self._shortest:
            return Wish(session, blocks, own, strict)
        fits = sum(1 << one for one, length in enumerate(self._lengths) if tokens <= length)
        if not fits & usable:
            longest = max(length for one, length in enumerate(self._lengths) if usable >> one & 1)
            return _too_long(tokens, longest, limit, answer)
        return Wish(session, blocks, own, strict, fits)

    def _session(self, fields: bytes, table: dict[str, Any], document: Document) -> tuple[int | None, bool]:
        """Return the hash of the session's name, and whether it is to stay with its replica in any case."""
        mode = self._routing.sticky
        if mode == "off":
            return None, False
        if asked := _MODE.search(fields):
            mode = asked[1].decode().lower()
        if mode == "off":
            return None, False
        found = []
        for line in fields.split(b"\r\n"):
            field, _colon, told = line.partition(b":")
            if (rank := self._headers.get(field.lower())) is not None and (told := told.strip()):
                found.append((rank, told))
        if found:
            return hash(min(found)), mode == "strict"
        for names in self._fields:
            value: Any = table
            for name in names:
                value = value.get(name) if isinstance(value, dict) else None
            if isinstance(value, str) and value:
                return hash((".".join(names), document.whole(value, _MAX_NAME))), mode == "strict"
        return None, False

    def _tokens(
        self, fields: bytes, body: bytes | bytearray, table: dict[str, Any], answer: int, document: Document
    ) -> int:
        """Return the least tokens that a prompt takes together with its answer; 0 where nothing is known."""
        if table.get(_SHORTENED) is not None:
            return 0
        if told := _ESTIMATE.search(fields):
            return int(told[1]) + answer
        # of a short body nothing need be counted
        long = len(body) // 2 + answer > self._shortest
        return _Counted(document, max(self._lengths)).least_tokens(table) + answer if long else answer

    def _answer(self, path: str, table: dict[str, Any]) -> tuple[str, int]:
        """Return the field that limits the answer, and its tokens.

        0 without one, or where the answer does not count.
        """
        if not self._counts_answer:
            return "", 0
        within = table.get(PARAMETERS) if path == GENERATE else None
        holder = within if isinstance(within, dict) else table
        found = [(name, _count(holder.get(name))) for name in TOKEN_FIELDS.get(path, ())]
        return max(found, key=lambda one: one[1], default=("", 0))


def _count(value: Any) -> int:
    """Return a number of tokens above 0; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _too_long(tokens: int, length: int, limit: str, answer: int) -> Refusal:
    """Return the refusal of a prompt that is too long; `limit` is the field that allows the answer so many tokens."""
    what, remedy = f"the prompt takes about {tokens} tokens", "send less"
    if answer:
        what = f"the prompt takes about {tokens - answer} tokens and {limit} allows {answer} for the answer"
        remedy = f"lower {limit}" if tokens == answer else f"send less, or lower {limit}"
    message = f"{what}, and the maximum context length here is {length}: {remedy}"
    details = {"max_model_len": length, **({"param": limit} if answer else {})}
    return Refusal(413, "context_length_exceeded", message, details=details)


class _Counted:
    """Counts about as much of the texts of a document, all in all, as the longest context can hold."""

    def __init__(self, document: Document, length: int) -> None:
        self._document = document
        # spaces do not count, and some letters are long
        self._left = min(length * _CHARACTERS * 2, _MOST_BYTES)

    def least_tokens(self, table: dict[str, Any]) -> int:
        """Return the least tokens of a prompt; of several, those of the longest, since each has a context."""
        before = sum(self._characters(table.get(name)) for name in BEFORE)
        found = 0
        for name in PROMPTS:
            value = table.get(name)
            if isinstance(value, list) and name in ("prompt", "token_ids"):
                longest = len(value) if _are_tokens(value) else max(map(self._of_prompt, value), default=0)
            else:
                longest = (before + self._characters(value)) // _CHARACTERS
            found = max(found, longest)
        return found

    def _of_prompt(self, prompt: Any) -> int:
        if isinstance(prompt, list):
            return len(prompt) if _are_tokens(prompt) else 0
        return self._characters(prompt) // _CHARACTERS

    def _characters(self, value: Any, depth: int = 0) -> int:
        """Return the characters of the texts in messages without spaces; pictures and sounds are unknown here."""
        if self._left <= 0:
            return 0
        if isinstance(value, str):
            text = self._document.whole(value, self._left)
            self._left -= len(text)
            return len(text) - text.count(" ") - text.count("\n")
        if depth > 4:
            return 0
        if isinstance(value, list):
            return sum(self._characters(one, depth + 1) for one in value)
        if isinstance(value, dict):
            return sum(self._characters(value.get(name), depth + 1) for name in ("content", "text", "output"))
        return 0


def _are_tokens(value: list[Any]) -> bool:
    return bool(value) and _is_number(value[0])


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
