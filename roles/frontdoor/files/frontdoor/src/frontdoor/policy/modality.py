# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds images, audio and video in a request, where engines look for them and nowhere else.

That is: in content parts, by type or by key, and in those of tool results. What a tool is called with, what it is
called, and metadata may hold the same words.
"""

from __future__ import annotations

import re

from frontdoor.policy.splice import Body, Scanner

MODALITIES = frozenset(("image", "audio", "video"))
# parts by their type; vLLM's own, then those of the APIs that it or another engine speaks
_TYPES = {
    "image_url": "image",
    "input_image": "image",
    "image_embeds": "image",
    "image_pil": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
    "image": "image",
    "audio": "audio",
    "video": "video",
    "input_video": "video",
    "document": "image",
    "computer_screenshot": "image",
}
# parts without a type, or with a uuid, are told by these keys
_KEYS = {
    name: _TYPES[name]
    for name in (
        *("image_url", "image_pil", "image_embeds"),
        *("audio_url", "input_audio", "audio_embeds"),
        *("video_url", "video_embeds"),
    )
}
# where a part has its URL, or an object with one: the first by their name alone, the others in a part of a media type
_URLS = frozenset(("image_url", "audio_url", "video_url"))
_MAYBE_URLS = frozenset(("url", "source", "image", "audio", "video", "document"))
_REMOTE_URL = re.compile(
    rb'"(?:[hH]|\\u00[46]8)(?:[tT]|\\u00[57]4){2}(?:[pP]|\\u00[57]0)(?:[sS]|\\u00[57]3)?(?::|\\u003[aA])'
)
#: begins what is said of a part that is to be fetched
REMOTE = "remote "
# members that hold messages, items or parts: of conversations, of /inference/v1/generate, of scores and rankings
_CARRIERS = frozenset(
    (
        *("messages", "input", "system", "content_parts"),
        *("data_1", "data_2", "text_1", "text_2", "query", "queries", "documents", "items"),
    )
)
# media that were prepared elsewhere, by modality
_FEATURES = "features"
_INNER = ("content", "output")
# a batch, its conversation, the content of a message, a tool result, its content
_MAX_DEPTH = 8

# Cheap test for bodies that may hold such a part: others need not be looked into. The second finds letters that are
# spelt with escapes.
_WORD = re.compile(rb'"(?=[iavd])(?:input_)?(?:image|audio|video|document)')
_LETTER = re.compile(rb"\\u00[4-7]")


def may_hold_media(body: Body) -> bool:
    """Whether a body is worth a look."""
    return _WORD.search(body) is not None or (b"\\u00" in body and _LETTER.search(body) is not None)


class Search:
    """Looks for the first part that needs a modality which is not taken, or, with `no_fetching`, that would have to be
    fetched. Raises NotAnObject, TooIntricate.
    """

    def __init__(self, body: Body, taken: frozenset[str], *, no_fetching: bool = False) -> None:
        self._no_fetching = no_fetching
        self._scanner = Scanner(body)
        self._body = body
        self._taken = taken

    def first(self) -> tuple[str, str] | None:
        """The top-level member that holds it, and what it is."""
        scanner = self._scanner
        for name, at in scanner.members(scanner.space(0)):
            if name in _CARRIERS:
                found = self._within(at, 0)
            elif name == _FEATURES:
                found = self._feature(at)
            else:
                continue
            if found is not None:
                return str(name), found
        return None

    def _within(self, at: int, depth: int) -> str | None:
        """Look into a value that holds parts, or is one."""
        first = self._body[at : at + 1]
        if depth > _MAX_DEPTH or first not in (b"[", b"{"):
            return None
        if first == b"{":
            return self._part(at, depth)
        for inner in self._scanner.containers(at):
            found = self._within(inner, depth + 1)
            if found is not None:
                return found
        return None

    def _part(self, at: int, depth: int) -> str | None:
        """Look at a part, and into those of a message or a tool result."""
        scanner = self._scanner
        hollow = remote = None
        typed = identified = media = False
        for name, value in scanner.members(at):
            if name == "type":
                typed = not scanner.is_null(value)
                kind = scanner.text(value)
                if kind in _TYPES and _TYPES[kind] not in self._taken:
                    return kind
                media = media or kind in _TYPES
            elif name in _KEYS and _KEYS[name] not in self._taken:
                if not scanner.is_null(value):
                    return name
                hollow = name
            elif name == "uuid":
                identified = not scanner.is_null(value)
            elif name in _INNER:
                found = self._within(value, depth + 1)
                if found is not None:
                    return found
            elif self._no_fetching and name in _URLS and self._is_remote(value):
                return REMOTE + name
            elif self._no_fetching and name in _MAYBE_URLS and self._is_remote(value):
                remote = REMOTE + name
        if media and remote is not None:
            return remote
        # nothing under such a key is an image that the engine is to remember; many clients write null into text too
        return hollow if identified or not typed else None

    def _is_remote(self, at: int) -> bool:
        """Whether a value is a URL that is to be fetched, or an object with one."""
        if self._body[at : at + 1] == b"{":
            # to the end: the scanner goes on from there
            return True in [name == "url" and self._is_url(inner) for name, inner in self._scanner.members(at)]
        return self._is_url(at)

    def _is_url(self, at: int) -> bool:
        return _REMOTE_URL.match(self._body, at) is not None

    def _feature(self, at: int) -> str | None:
        """Look at the modalities of prepared media."""
        scanner = self._scanner
        if self._body[at : at + 1] != b"{":
            return None
        for _name, value in scanner.members(at):
            if self._body[value : value + 1] != b"{":
                continue
            for modality, _at in scanner.members(value):
                if modality in MODALITIES and modality not in self._taken:
                    return f"{_FEATURES}.{modality}"
        return None
