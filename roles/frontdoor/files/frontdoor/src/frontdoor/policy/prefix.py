# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The beginning of a prompt in blocks: as many hashes as two prompts have alike, so much of them is the same.

Each hash stands for its block and all before it. A message ends a block, so that short conversations are told apart,
too. What engines leave out of a prompt, and clients change from turn to turn, takes no part. Pure.
"""

from __future__ import annotations

from typing import Any

import orjson

from frontdoor.policy.document import Document

#: members that hold a prompt, and those that stand before it
PROMPTS = ("messages", "input", "prompt", "token_ids")
BEFORE = ("system", "instructions")
# all that stands before it; what changes least comes first
_HEAD = ("tools", *BEFORE)
# Half a megabyte of a prompt at most: who has so much in common is one conversation.
_BLOCK = 4096
_MOST_BLOCKS = 128
_MOST_BYTES = _BLOCK * _MOST_BLOCKS
# of messages, tools and what they hold
_MOST_PARTS = 2048
# a mark for the cache of another API, which moves with the end of the conversation
_CACHE_MARK = "cache_control"
# the line for its own API with which Claude Code begins the system prompt
_BILLING = "x-anthropic-billing-header:"
_ASKING = ("system", "developer", "user")


def blocks_of(table: dict[str, Any], document: Document, client: str) -> tuple[tuple[int, ...], int]:
    """Return the hashes of a client's prompt by blocks, and the number of the first of this conversation alone.

    Those before it are of tools and instructions, which many conversations begin with. Its own ones begin with the end
    of what was asked before the first answer; they are told apart by client, because that may be an example that an
    agent gives every time. Without a prompt there are none.
    """
    chain = _Chain(document)
    for name in _HEAD:
        if value := table.get(name):
            chain.add(chain.parts(value))
    own = 0
    for name in PROMPTS:
        value = table.get(name)
        if not value:
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            own = chain.add_messages(value)
        else:
            own = len(chain.hashes)
            chain.add(chain.parts(value))
        break
    hashes, own, salt = chain.hashes, max(0, min(own, len(chain.hashes) - 1)), hash(client)
    return (*hashes[:own], *(one ^ salt for one in hashes[own:])), own


class _Chain:
    """Takes the parts of a prompt one after the other, as long as there is room in it."""

    def __init__(self, document: Document) -> None:
        self.hashes: list[int] = []
        self._document = document
        self._left, self._parts_left = _MOST_BYTES, _MOST_PARTS

    def add(self, value: Any) -> bool:
        """Add a part, whose end ends a block; False where the prompt is followed no further."""
        try:
            text = self._document.spelt(orjson.dumps(value), self._left)
        except orjson.JSONEncodeError:
            # numbers beyond 64 bits, half a surrogate pair
            return False
        before = self.hashes[-1] if self.hashes else 0
        for at in range(0, len(text), _BLOCK):
            if len(self.hashes) == _MOST_BLOCKS:
                return False
            before = hash((before, text[at : at + _BLOCK]))
            self.hashes.append(before)
        self._left -= len(text)
        return self._left > 0 and self._parts_left > 0

    def add_messages(self, messages: list[Any]) -> int:
        """Add messages, each with blocks of its own; returns the last block before the first answer."""
        asked, own = False, -1
        for message in messages:
            role = message.get("role") if isinstance(message, dict) else None
            if own < 0 and asked and role not in _ASKING:
                own = len(self.hashes) - 1
            asked = asked or role == "user"
            if not self.add(self._part(message)):
                break
        return own if own >= 0 else len(self.hashes) - 1

    def parts(self, value: Any) -> Any:
        """Return a member's content as it reaches the prompt; a single text is the same as the text alone."""
        if isinstance(value, str):
            return value.partition("\n")[2] if value.startswith(_BILLING) else value
        if not isinstance(value, list):
            return value
        if not isinstance(value[0] if value else None, dict):
            return value[:_MOST_BYTES]
        parts = [self._part(one) for one in value[: self._parts_left] if not _is_billing(one)]
        first = parts[0] if len(parts) == 1 else None
        return first["text"] if isinstance(first, dict) and first.keys() == {"type", "text"} else parts

    def _part(self, value: Any) -> Any:
        """Return a message, a tool, or a part of one, without what is not for the model."""
        self._parts_left -= 1
        if not isinstance(value, dict):
            return value
        if _CACHE_MARK in value:
            value = {name: one for name, one in value.items() if name != _CACHE_MARK}
        content = value.get("content")
        return {**value, "content": self.parts(content)} if content else value


def _is_billing(part: Any) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return isinstance(text, str) and text.startswith(_BILLING)
