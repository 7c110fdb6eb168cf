# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds images, audio and video in a request, where engines look for them and nowhere else.

That is: in content parts, by type or by key, and in those of tool results. What a tool is called with, what it is
called, and metadata may hold the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# a batch, its conversation, the content of a message, a tool result, its content
_MAX_DEPTH = 8


def unwanted(content: dict[str, Any], taken: frozenset[str], *, no_fetching: bool = False) -> tuple[str, str] | None:
    """Return the member with the first part of a modality that is not taken, or has to be fetched, and its kind."""
    for name, value in content.items():
        if name in _CARRIERS:
            for part in _parts(value, 0):
                found = _missing(part, taken) or (no_fetching and _remote(part))
                if found:
                    return name, found
        elif name == _FEATURES and isinstance(value, dict):
            named = {kind for one in value.values() if isinstance(one, dict) for kind in one}
            for kind in sorted(named & MODALITIES - taken):
                return name, f"{_FEATURES}.{kind}"
    return None


def _parts(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield all parts in a value that holds parts, or is one; a message and a tool result are parts with parts."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        yield value
        value = [value.get("content"), value.get("output")]
    if isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict | list):
                yield from _parts(inner, depth + 1)


def _missing(part: dict[str, Any], taken: frozenset[str]) -> str | None:
    """Return the type or key of a part that needs a modality which is not taken."""
    kind = part.get("type")
    if isinstance(kind, str) and _TYPES.get(kind, kind) in MODALITIES - taken:
        return kind
    # nothing under such a key is an image that the engine is to remember; many clients write null into text too
    hollow = part.get("uuid") is not None or kind is None
    for name, value in part.items():
        if name in _KEYS and _KEYS[name] not in taken and (hollow or value is not None):
            return name
    return None


def _remote(part: dict[str, Any]) -> str | None:
    """Return the name of a URL that is to be fetched, or of an object with one."""
    kind = part.get("type")
    for name in (*_URLS, *_MAYBE_URLS) if isinstance(kind, str) and kind in _TYPES else _URLS:
        value = part.get(name)
        if isinstance(value, dict):
            value = value.get("url")
        if isinstance(value, str) and value[:6].lower().startswith(("http:", "https:")):
            return REMOTE + name
    return None
