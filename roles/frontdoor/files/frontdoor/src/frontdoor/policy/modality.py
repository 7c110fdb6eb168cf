# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds images, audio and video in a request, where engines look for them and nowhere else.

That is: in content parts, by type or by key, and in those of tool results. What a tool is called with, what it is
called, and metadata may hold the same words.
"""

from __future__ import annotations

import re
from typing import Any

MODALITIES = frozenset(("image", "audio", "video"))
# parts without a type, or with a uuid, are told by these keys; they are types too
_KEYS = {
    **dict.fromkeys(("image_url", "image_pil", "image_embeds"), "image"),
    **dict.fromkeys(("audio_url", "input_audio", "audio_embeds"), "audio"),
    **dict.fromkeys(("video_url", "video_embeds"), "video"),
}
# other types of parts: those of the APIs that vLLM or another engine speaks
_TYPES = _KEYS | {kind: kind for kind in MODALITIES} | {"input_video": "video"}
_TYPES |= dict.fromkeys(("input_image", "document", "computer_screenshot"), "image")
# where a part has its URL, or an object with one: the first by their name alone, the others in a part of a media type
_URLS = ("image_url", "audio_url", "video_url")
_MAYBE_URLS = ("url", "source", "image", "audio", "video", "document")
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

# Cheap test for bodies that may hold such a part: others need not be parsed. The second finds letters that are spelt
# with escapes.
_WORD = re.compile(rb'"(?=[iavd])(?:input_)?(?:image|audio|video|document)')
_LETTER = re.compile(rb"\\u00[4-7]")


def may_hold_media(body: bytes | bytearray) -> bool:
    """Whether a body is worth a look."""
    return _WORD.search(body) is not None or (b"\\u00" in body and _LETTER.search(body) is not None)


def unwanted(content: dict[str, Any], taken: frozenset[str], *, no_fetching: bool = False) -> tuple[str, str] | None:
    """The member with the first part that needs a modality which is not taken, or has to be fetched, and what it is."""
    for name, value in content.items():
        if name in _CARRIERS:
            found = _within(value, 0, taken, no_fetching)
        elif name == _FEATURES:
            found = _feature(value, taken)
        else:
            continue
        if found is not None:
            return name, found
    return None


def _within(value: Any, depth: int, taken: frozenset[str], no_fetching: bool) -> str | None:
    """Look into a value that holds parts, or is one."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return _part(value, depth, taken, no_fetching)
    if isinstance(value, list):
        for inner in value:
            if (found := _within(inner, depth + 1, taken, no_fetching)) is not None:
                return found
    return None


def _part(part: dict[str, Any], depth: int, taken: frozenset[str], no_fetching: bool) -> str | None:
    """Look at a part, and into those of a message or a tool result."""
    kind = part.get("type")
    needs = _TYPES.get(kind) if isinstance(kind, str) else None
    if needs is not None and needs not in taken:
        return str(kind)
    hollow = None
    for name, value in part.items():
        if name in _KEYS and _KEYS[name] not in taken:
            if value is not None:
                return name
            hollow = name
    for name in _INNER:
        if name in part and (found := _within(part[name], depth + 1, taken, no_fetching)) is not None:
            return found
    if no_fetching:
        for name in (*_URLS, *_MAYBE_URLS) if needs else _URLS:
            if _is_remote(part.get(name)):
                return REMOTE + name
    # nothing under such a key is an image that the engine is to remember; many clients write null into text too
    return hollow if part.get("uuid") is not None or kind is None else None


def _is_remote(value: Any) -> bool:
    """Whether a value is a URL that is to be fetched, or an object with one."""
    if isinstance(value, dict):
        value = value.get("url")
    return isinstance(value, str) and value[:6].lower().startswith(("http:", "https:"))


def _feature(value: Any, taken: frozenset[str]) -> str | None:
    """Look at the modalities of prepared media."""
    inner = value.values() if isinstance(value, dict) else ()
    named = {name for one in inner if isinstance(one, dict) for name in one}
    return next((f"{_FEATURES}.{name}" for name in sorted(named & MODALITIES - taken)), None)
