# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What profile and operator want of a request body: defaults, caps, the model's name, no images for text models.

A body is changed by splicing bytes; one that needs no change passes as the very bytes that came.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any

import orjson

from frontdoor.errors import Refusal
from frontdoor.routes import GATED_PATHS
from frontdoor.rules import Rules
from frontdoor.splice import Body, Edits, Member, NotAnObject, ObjectDefaults, Pieces, TooIntricate, members

CHAT = "/v1/chat/completions"
KWARGS = "chat_template_kwargs"
# the fields that limit the length of an answer; the first one is where a default goes
_TOKEN_FIELDS = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/messages": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/inference/v1/generate": ("max_tokens",),
}
# the one that older engines know too
_DEFAULT_FIELD = {CHAT: "max_tokens"}
_SAMPLED = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages")
_PART_MODALITY = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "video_url": "video",
    "input_video": "video",
}
# cheap test for bodies that may hold such a part: a body without it need not be parsed
_PART = re.compile(rb'"(?:input_)?(?:image|audio|video)')
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class PathRules:
    """The rules for the bodies of one path."""

    def __init__(self, path: str, rules: Rules, served: str, modalities: frozenset[str]) -> None:
        self._rules = rules
        self._served = served
        self._modalities = modalities
        self._limited = bool(modalities) and not modalities >= {"image", "audio", "video"}
        self._token_fields = _TOKEN_FIELDS.get(path, ()) if rules.max_tokens_default or rules.max_tokens_cap else ()
        self._token_default = _DEFAULT_FIELD.get(path) or (self._token_fields[0] if self._token_fields else "")
        self._sampling = rules.sampling_defaults if path in _SAMPLED else {}
        kwargs = rules.chat_template_kwargs if path == CHAT else None
        self._kwargs = ObjectDefaults(KWARGS, kwargs) if kwargs else None
        self._checks_model = bool(served) and (rules.model_policy != "pass" or bool(rules.model_aliases))
        self._edits = bool(self._token_fields or self._sampling or self._checks_model)
        #: set where these defaults are all there is to do
        self.only_defaults = None if self._limited or self._edits else self._kwargs
        self.idle = not (self._limited or self._kwargs or self._edits)

    def apply(self, body: Body) -> Pieces | Refusal:
        """Return what the engine is sent, or why it is not asked. A body that is no JSON object is left alone."""
        if b"\0" in body[:4] or body.startswith(_BOMS):
            # engines that guess the encoding would read past these rules
            return Refusal(
                400, "encoding_unsupported", "the request body must be JSON in UTF-8, without a byte order mark"
            )
        if self._limited and _PART.search(body):
            refusal = self._missing_modality(body)
            if refusal is not None:
                return refusal
        if self._edits:
            return self._edit(body)
        return (body,) if self._kwargs is None else self._kwargs.pieces(body)

    def _missing_modality(self, body: Body) -> Refusal | None:
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        for kind in _part_types(content):
            needed = _PART_MODALITY[kind]
            if needed not in self._modalities:
                takes = " and ".join(sorted(self._modalities, reverse=True))
                name = self._served or "the model"
                return Refusal(
                    400,
                    "modality_unsupported",
                    f"{name} takes {takes} only; the request contains a part of type {kind}",
                    details={"param": "messages" if "messages" in content else "input"},
                )
        return None

    def _edit(self, body: Body) -> Pieces | Refusal:
        try:
            found = list(members(body))
        except TooIntricate:
            return Refusal(
                400, "body_too_intricate", "the request body holds too many strings and brackets to be checked"
            )
        except NotAnObject:
            return (body,)
        edits = Edits(body)
        if self._checks_model:
            refusal = self._edit_model(body, [m for m in found if m.name == "model"], edits)
            if refusal is not None:
                return refusal
        if self._token_fields:
            self._edit_tokens(body, [m for m in found if m.name in self._token_fields], edits)
        for name, value in self._sampling.items():
            given = [m for m in found if m.name == name]
            if not given:
                edits.insert(name, value)
            elif body[given[-1].start : given[-1].end] == b"null":
                edits.replace(given[-1], value)
        if self._kwargs is not None:
            self._kwargs.edit(body, [m for m in found if m.name == KWARGS], edits)
        return edits.pieces()

    def _edit_model(self, body: Body, given: list[Member], edits: Edits) -> Refusal | None:
        policy = self._rules.model_policy
        if not given:
            if policy == "rewrite":
                edits.insert("model", self._served)
            return self._unknown_model(None) if policy == "reject" else None
        for member in given:
            try:
                name = orjson.loads(body[member.start : member.end])
            except orjson.JSONDecodeError:
                return None
            if name == self._served:
                continue
            if name in self._rules.model_aliases or policy == "rewrite":
                edits.replace(member, self._served)
            elif policy == "reject":
                return self._unknown_model(name)
        return None

    def _unknown_model(self, name: object) -> Refusal:
        names = [self._served, *self._rules.model_aliases]
        what = "no model is named" if name is None else f"the model {name!r} is not served here"
        details = {"param": "model", "models": names}
        return Refusal(404, "model_not_found", f"{what}; served: {', '.join(names)}", details=details)

    def _edit_tokens(self, body: Body, given: list[Member], edits: Edits) -> None:
        default, cap = self._rules.max_tokens_default, self._rules.max_tokens_cap
        limited = False
        for member in given:
            try:
                value = orjson.loads(body[member.start : member.end])
            except orjson.JSONDecodeError:
                continue
            if value is None:
                continue
            limited = True
            # a boolean is no number of tokens, whatever Python thinks
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or value <= 0:
                if default or cap:
                    edits.replace(member, default or cap)
            elif cap and value > cap:
                edits.replace(member, cap)
        if not limited and (default or cap):
            value = min(default or cap or 0, cap or default or 0)
            unset = next((m for m in given if m.name == self._token_default), None)
            if unset is None:
                edits.insert(self._token_default, value)
            else:
                edits.replace(unset, value)


def _part_types(content: Any) -> Iterator[str]:
    """Types of content parts that have a modality. Without recursion, since clients choose the depth."""
    todo = [content.get("messages"), content.get("input")] if isinstance(content, dict) else []
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and kind in _PART_MODALITY:
                yield kind
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)


def policies(rules: Rules, profile: dict[str, Any] | None) -> dict[str, PathRules]:
    """Rules by path; a path without any is not in it. Nothing is checked against a profile that does not say."""
    profile = profile or {}
    modalities = profile.get("modalities")
    known = frozenset(m for m in modalities if isinstance(m, str)) if isinstance(modalities, list) else frozenset()
    served = profile.get("served_model_name")
    made = {path: PathRules(path, rules, served if isinstance(served, str) else "", known) for path in GATED_PATHS}
    return {path: one for path, one in made.items() if not one.idle}
