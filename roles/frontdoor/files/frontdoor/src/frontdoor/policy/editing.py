# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What profile and operator want of a request body: defaults, caps, the model's name, no images for text models."""

from __future__ import annotations

from typing import Any

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy.document import ENCODING, NOT_AN_OBJECT, Document
from frontdoor.policy.modality import MODALITIES, REMOTE, may_hold_media, unwanted
from frontdoor.policy.routes import (
    CHAT,
    COMPLETIONS,
    GATED_PATHS,
    GENERATE,
    JSON_PATHS,
    MESSAGES,
    PARAMETERS,
    RESPONSES,
)

KWARGS = "chat_template_kwargs"
# the fields that limit the length of an answer; the first, which older engines know too, is where a default goes
_TOKEN_FIELDS = {
    CHAT: ("max_tokens", "max_completion_tokens"),
    COMPLETIONS: ("max_tokens",),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
    GENERATE: ("max_tokens",),
}
_SAMPLED = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
_INLINE = "send a data: URL, or have the host named in the profile's engine.allowed_media_domains"
# how much of a name is told back
_MAX_TOLD = 100

COMPRESSED = Refusal(
    415, "encoding_unsupported", "compressed request bodies are not read here; send it without Content-Encoding"
)


class PathRules:
    """The rules for the bodies of one path."""

    def __init__(self, path: str, rules: Rules, served: str, modalities: frozenset[str]) -> None:
        self._rules = rules
        self._served = served
        self._modalities = modalities
        limited = bool(modalities) and not modalities >= MODALITIES
        self._taken = modalities if limited else MODALITIES
        # domains are the engine's to compare: two readers of one URL may see two hosts in it
        self._no_fetching = rules.allowed_media_domains == ()
        self._looks = limited or self._no_fetching
        self._token_fields = _TOKEN_FIELDS.get(path, ()) if rules.max_tokens_default or rules.max_tokens_cap else ()
        # where the engine takes the limit from an object of parameters instead
        self._tokens_within = PARAMETERS if path == GENERATE else ""
        self._sampling = rules.sampling_defaults if path in _SAMPLED else {}
        self._kwargs = (rules.chat_template_kwargs or {}) if path == CHAT else {}
        self._checks_model = bool(served) and (rules.model_policy != "pass" or bool(rules.model_aliases))
        self._forces = self._looks or bool(self._token_fields or self._sampling or self._checks_model)
        # what cannot be read must not pass then
        self._strict = bool(self._token_fields and rules.max_tokens_cap) or (
            self._checks_model and rules.model_policy == "reject"
        )
        self._edits = bool(self._token_fields or self._sampling or self._checks_model or self._kwargs)
        self.idle = not (self._looks or self._edits)

    def apply(self, document: Document, *, coded: bool = False) -> bytes | bytearray | Refusal:
        """Return what the engine is sent, or why it is not asked; a compressed body cannot be looked into."""
        body = document.body
        if coded:
            return COMPRESSED if self._forces else body
        if document.foreign:
            return ENCODING
        looks = self._looks and may_hold_media(body)
        if not (looks or self._edits):
            return body
        content = document.content
        if isinstance(content, Refusal):
            # where nothing is forbidden the engine says what is wrong with it
            return body if content is NOT_AN_OBJECT and not (looks or self._strict) else content
        if looks and (refusal := self._unwanted_media(content)) is not None:
            return refusal
        changed = self._edit(content) if self._edits else False
        if isinstance(changed, Refusal):
            return changed
        return document.written() if changed else body

    def _unwanted_media(self, content: dict[str, Any]) -> Refusal | None:
        found = unwanted(content, self._taken, no_fetching=self._no_fetching)
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

    def _edit(self, content: dict[str, Any]) -> bool | Refusal:
        """Change the content as the rules want it; return whether anything changed, or why it may not be asked."""
        changed = False
        if self._checks_model:
            name, policy = content.get("model"), self._rules.model_policy
            if name != self._served:
                if name in self._rules.model_aliases or (policy == "rewrite"):
                    content["model"] = self._served
                    changed = True
                elif policy == "reject":
                    return self._unknown_model(name)
        if self._token_fields:
            within = content.get(self._tokens_within)
            if isinstance(within, dict):
                changed |= self._limit(within, default=True)
            changed |= self._limit(content, default=not isinstance(within, dict))
        for name, value in self._sampling.items():
            if content.get(name) is None:
                content[name] = value
                changed = True
        if self._kwargs:
            # what the client sets wins, key by key
            given = content.get(KWARGS)
            merged = self._kwargs if given is None else {**self._kwargs, **given} if isinstance(given, dict) else given
            if merged != given:
                content[KWARGS] = merged
                changed = True
        return changed

    def _unknown_model(self, name: object) -> Refusal:
        if isinstance(name, str):
            what = f"the model {name[:_MAX_TOLD]!r} is not served here"
        else:
            what = "no model is named" if name is None else "the model is not named by a string"
        names = [self._served, *self._rules.model_aliases]
        details = {"param": "model", "models": names}
        return Refusal(404, "model_not_found", f"{what}; served: {', '.join(names)}", details=details)

    def _limit(self, holder: dict[str, Any], *, default: bool) -> bool:
        """Cap what is given in the holder; where nothing is, put the default there if told to. True when it changed."""
        cap = self._rules.max_tokens_cap
        usual = min(self._rules.max_tokens_default or cap or 0, cap or self._rules.max_tokens_default or 0)
        changes = {}
        given = {name: holder[name] for name in self._token_fields if holder.get(name) is not None}
        for name, value in given.items():
            # a boolean is no number of tokens, whatever Python thinks
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or value <= 0:
                changes[name] = usual
            elif cap and value > cap:
                changes[name] = cap
        if default and not given:
            changes[self._token_fields[0]] = usual
        holder.update(changes)
        return bool(changes)


def policies(rules: Rules, profile: dict[str, Any] | None) -> dict[str, PathRules]:
    """Rules by path; a path without any is not in it. Nothing is checked against a profile that does not say."""
    profile = profile or {}
    served, known = profile.get("served_model_name") or "", frozenset(profile.get("modalities") or ())
    made = {path: PathRules(path, rules, served, known) for path in GATED_PATHS + JSON_PATHS}
    return {path: one for path, one in made.items() if not one.idle}
