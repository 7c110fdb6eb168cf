# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What profile and operator want of a request body: defaults, caps, the model's name, no images for text models.

A body is changed by splicing bytes; one that needs no change passes as the very bytes that came.
"""

from __future__ import annotations

import codecs
from typing import Any

import orjson

from frontdoor.errors import Refusal, too_many_generations
from frontdoor.policy.asked import ONE, asked
from frontdoor.policy.modality import MODALITIES, REMOTE, Search, may_hold_media
from frontdoor.policy.routes import GATED_PATHS, JSON_PATHS
from frontdoor.policy.rules import Rules
from frontdoor.policy.splice import (
    Body,
    Edits,
    Member,
    NotAnObject,
    ObjectDefaults,
    Pieces,
    Scanner,
    TooIntricate,
    members,
)

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
# where the engine takes the limit from an object of parameters instead
_TOKENS_WITHIN = {"/inference/v1/generate": "sampling_params"}
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_INLINE = "send a data: URL, or have the host named in the profile's engine.allowed_media_domains"
# how many bytes a name or a number may take, and how much of a name is told back
_MAX_VALUE = 4096
_MAX_TOLD = 100

ENCODING = Refusal(400, "encoding_unsupported", "the request body must be JSON in UTF-8, without a byte order mark")
COMPRESSED = Refusal(
    415, "encoding_unsupported", "compressed request bodies are not read here; send it without Content-Encoding"
)
INTRICATE = Refusal(
    400, "body_too_intricate", "the request body holds too many strings, escapes and brackets to be checked"
)
NOT_AN_OBJECT = Refusal(400, "invalid_json", "the request body must be a JSON object")


class PathRules:
    """The rules for the bodies of one path."""

    def __init__(self, path: str, rules: Rules, served: str, modalities: frozenset[str]) -> None:
        self._rules = rules
        self._served = served
        self._modalities = modalities
        self._limited = bool(modalities) and not modalities >= MODALITIES
        # domains are the engine's to compare: two readers of one URL may see two hosts in it
        self._no_fetching = rules.allowed_media_domains == ()
        self._looks = self._limited or self._no_fetching
        self._token_fields = _TOKEN_FIELDS.get(path, ()) if rules.max_tokens_default or rules.max_tokens_cap else ()
        self._token_default = _DEFAULT_FIELD.get(path) or (self._token_fields[0] if self._token_fields else "")
        self._tokens_within = _TOKENS_WITHIN.get(path, "") if self._token_fields else ""
        self._sampling = rules.sampling_defaults if path in _SAMPLED else {}
        kwargs = rules.chat_template_kwargs if path == CHAT else None
        self._kwargs = ObjectDefaults(KWARGS, kwargs) if kwargs else None
        self._checks_model = bool(served) and (rules.model_policy != "pass" or bool(rules.model_aliases))
        self._edits = bool(self._token_fields or self._sampling or self._checks_model)
        # what cannot be read must not pass then
        self._strict = bool(self._token_fields and rules.max_tokens_cap) or (
            self._checks_model and rules.model_policy == "reject"
        )
        self._names = frozenset(
            (*self._token_fields, self._tokens_within, *self._sampling, *(("model",) if self._checks_model else ()))
            + ((KWARGS,) if self._kwargs else ())
        )
        #: set where these defaults are all there is to do
        self.only_defaults = None if self._looks or self._edits else self._kwargs
        self.idle = not (self._looks or self._kwargs or self._edits)

    def apply(self, body: Body, *, coded: bool = False) -> Pieces | Refusal:
        """Return what the engine is sent, or why it is not asked; a compressed body cannot be looked into."""
        if coded:
            return COMPRESSED if self.only_defaults is None else (body,)
        if _other_encoding(body):
            return ENCODING
        try:
            if self._looks and may_hold_media(body):
                refusal = self._unwanted_media(body)
                if refusal is not None:
                    return refusal
            if self._edits:
                return self._edit(body)
            return (body,) if self._kwargs is None else self._kwargs.pieces(body)
        except TooIntricate:
            return INTRICATE
        except NotAnObject:
            return NOT_AN_OBJECT

    def _unwanted_media(self, body: Body) -> Refusal | None:
        taken = self._modalities if self._limited else MODALITIES
        found = Search(body, taken, no_fetching=self._no_fetching).first()
        if found is None:
            return None
        member, kind = found
        if kind.startswith(REMOTE):
            message = (
                f"media are not fetched from elsewhere here, and {kind.removeprefix(REMOTE)} names a URL; {_INLINE}"
            )
            return Refusal(400, "remote_media_refused", message, details={"param": member})
        takes = " and ".join(sorted(self._modalities, reverse=True))
        name = self._served or "the model"
        message = f"{name} takes {takes} only; the request contains a part of type {kind}"
        return Refusal(400, "modality_unsupported", message, details={"param": member})

    def _edit(self, body: Body) -> Pieces | Refusal:
        try:
            found = members(body, self._names)
        except TooIntricate:
            raise
        except NotAnObject:
            if self._strict:
                raise
            return (body,)
        edits = Edits(body)
        if self._checks_model:
            refusal = self._edit_model(body, [m for m in found if m.name == "model"], edits)
            if refusal is not None:
                return refusal
        if self._token_fields:
            within = [m for m in found if m.name == self._tokens_within and body[m.start : m.start + 1] == b"{"]
            for holder in within:
                self._edit_tokens(body, Scanner(body).found(holder.start, self._token_fields), edits, holder)
            self._edit_tokens(body, [m for m in found if m.name in self._token_fields], edits, complete=bool(within))
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
            name = _decoded(body, member)
            if name == self._served:
                continue
            if name in self._rules.model_aliases or policy == "rewrite":
                edits.replace(member, self._served)
            elif policy == "reject":
                return self._unknown_model(name)
        return None

    def _unknown_model(self, name: object) -> Refusal:
        if isinstance(name, bytes) and name.startswith(b'"'):
            name = name[1 : _MAX_TOLD + 1].decode(errors="replace")
        if isinstance(name, str):
            what = f"the model {name[:_MAX_TOLD]!r} is not served here"
        else:
            what = "no model is named" if name is None else "the model is not named by a string"
        names = [self._served, *self._rules.model_aliases]
        details = {"param": "model", "models": names}
        return Refusal(404, "model_not_found", f"{what}; served: {', '.join(names)}", details=details)

    def _edit_tokens(
        self,
        body: Body,
        given: list[Member],
        edits: Edits,
        holder: Member | None = None,
        *,
        complete: bool = False,
    ) -> None:
        """Cap what is given; where nothing is, put the default into the holder, or else the body, unless `complete`."""
        default, cap = self._rules.max_tokens_default, self._rules.max_tokens_cap
        usual = min(default or cap or 0, cap or default or 0)
        if not usual:
            return
        # of members with the same name the last one counts
        counting = {member.name: member for member in given}
        limited = complete
        for member in given:
            value = _decoded(body, member)
            if value is None:
                continue
            limited = limited or member is counting[member.name]
            # a boolean is no number of tokens, whatever Python thinks
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or value <= 0:
                edits.replace(member, usual)
            elif cap and value > cap:
                edits.replace(member, cap)
        unset = counting.get(self._token_default)
        if limited:
            return
        if unset is not None:
            edits.replace(unset, usual)
        elif holder is not None:
            edits.prepend(holder, b"%b:%d" % (orjson.dumps(self._token_default), usual))
        else:
            edits.insert(self._token_default, usual)


def _decoded(body: Body, member: Member) -> Any:
    """A value; what is too long, or what no strict reader takes, such as NaN, comes as the bytes that stand there."""
    raw = bytes(body[member.start : member.end])
    try:
        return orjson.loads(raw) if len(raw) <= _MAX_VALUE else raw
    except orjson.JSONDecodeError:
        return raw


def _other_encoding(body: Body) -> bool:
    """Whether a body is not plain UTF-8: engines that guess the encoding would read past what is looked for here."""
    return b"\0" in body[:4] or body.startswith(_BOMS)


def places_of(path: str, body: Body, limit: int) -> int | Refusal:
    """How many slots a generation takes, or why it can never have them."""
    # nearly every body begins like this
    if body[:2] != b'{"' and _other_encoding(body):
        return ENCODING
    try:
        wanted = asked(path, body)
    except TooIntricate:
        return INTRICATE
    if wanted is ONE:
        return 1
    places = wanted.prompts * wanted.each
    return places if places <= limit else too_many_generations(places, limit, "n" if wanted.each > 1 else "prompt")


def policies(rules: Rules, profile: dict[str, Any] | None) -> dict[str, PathRules]:
    """Rules by path; a path without any is not in it. Nothing is checked against a profile that does not say."""
    profile = profile or {}
    modalities = profile.get("modalities")
    known = frozenset(m for m in modalities if isinstance(m, str)) if isinstance(modalities, list) else frozenset()
    served = profile.get("served_model_name")
    made = {
        path: PathRules(path, rules, served if isinstance(served, str) else "", known)
        for path in GATED_PATHS + JSON_PATHS
    }
    return {path: one for path, one in made.items() if not one.idle}
