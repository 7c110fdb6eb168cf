# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of profile and operator for a body: defaults, caps, the model's name, no images for text models."""

from __future__ import annotations

from typing import Any

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy import llm_pool
from frontdoor.policy.dialect import PLAIN, Dialect
from frontdoor.policy.document import BROKEN, ENCODING, NOT_AN_OBJECT, Document
from frontdoor.policy.llm_pool import KWARGS, Served, holds_parts
from frontdoor.policy.modality import MODALITIES, REMOTE, unwanted
from frontdoor.policy.routes import (
    BATCH,
    CHAT,
    COMPLETION,
    COMPLETIONS,
    FORM_PATHS,
    GATED_PATHS,
    GENERATE,
    JSON_PATHS,
    MESSAGES,
    PARAMETERS,
    RESPONSES,
    TOKEN_FIELDS,
)

_SAMPLED = (CHAT, COMPLETIONS, RESPONSES, MESSAGES, BATCH, COMPLETION)
_INLINE = "send a data: URL, or have the host named in the profile's engine.allowed_media_domains"
# characters of a name that an answer repeats
_MAX_TOLD = 100

# with it a stream ends with a report of tokens
_OPTIONS, _REPORTS = "stream_options", {"include_usage": True}
_REPORTING = b'"stream_options":{"include_usage":true}'

COMPRESSED = Refusal(
    415, "encoding_unsupported", "compressed request bodies are not read here; send it without Content-Encoding"
)


class PathRules:
    """The rules for the bodies of one path."""

    def __init__(self, path: str, rules: Rules, served: Served, modalities: frozenset[str]) -> None:
        self._path = path
        self._rules = rules
        self._model = served
        self._served = served.name
        self._taken = modalities or MODALITIES
        # domains are the engine's to compare: two readers of one URL may see two hosts in it
        self._no_fetching = rules.allowed_media_domains == ()
        self._looks = path not in FORM_PATHS and (self._no_fetching or not self._taken >= MODALITIES)
        self._cap = rules.max_tokens_cap
        lengths = [tokens for tokens in (rules.max_tokens_default, self._cap) if tokens]
        self._length = min(lengths, default=0)
        self._token_fields = TOKEN_FIELDS.get(path, ()) if lengths else ()
        # the engine takes the limit from there
        self._has_parameters = path == GENERATE
        self._sampling = rules.sampling_defaults if path in _SAMPLED else {}
        self._kwargs = (rules.chat_template_kwargs or {}) if path in (CHAT, BATCH) else {}
        self._checks_model = bool(served.name) and (rules.model_policy != "pass" or bool(rules.model_aliases))
        # whether a request may leave this host
        self._remote, self._asks = served.remote, rules.remote == "ask"
        edits = self._token_fields or self._sampling or self._checks_model or self._remote
        self._forces = self._looks or bool(edits)
        # an unreadable body must not pass then, nor may one name another model of an engine elsewhere
        rejects = served.remote or (self._checks_model and rules.model_policy == "reject")
        self._strict = bool(self._token_fields and self._cap) or rejects
        self._edits = bool(edits or self._kwargs)
        # of an engine elsewhere it is not known whether it takes the field; other paths report without being asked
        self._counts = path in (CHAT, COMPLETIONS) and not served.remote
        self._names = llm_pool.NAMES.get(path, frozenset())
        self._measures = bool(self._names) and rules.metrics
        self.idle = not (self._looks or self._names or self._edits or self._counts)

    def apply(self, document: Document, *, coded: bool = False) -> bytes | bytearray | Refusal:
        """Return what the engine is sent, or why it is not asked; a compressed body cannot be looked into."""
        body = document.body
        if coded:
            return COMPRESSED if self._forces else body
        if document.foreign:
            return ENCODING
        document.measured, document.hides_usage = self._measures, False
        content = document.content
        if isinstance(content, Refusal):
            # where nothing is forbidden the engine says what is wrong with it
            harmless = content is NOT_AN_OBJECT or (content is BROKEN and not self._looks)
            return body if harmless and not self._strict else content
        if self._looks and (found := unwanted(content, self._taken, no_fetching=self._no_fetching)):
            return self._unwanted_media(*found)
        given = content
        if self._remote:
            sent = llm_pool.to_remote(content, self._model, asks=self._asks)
            if isinstance(sent, Refusal):
                return sent
            content = sent
        if not self._names.isdisjoint(content) or (self._path == RESPONSES and holds_parts(content.get("input"))):
            translated = llm_pool.translate(self._path, content, self._model)
            if isinstance(translated, Refusal):
                return translated
            if translated.content != content:
                content = translated.content
            if translated.metrics is not None:
                document.measured = translated.metrics
        changes = self._changes(content) if self._edits else {}
        if isinstance(changes, Refusal):
            return changes
        reporting = _reporting(content) if self._counts else None
        document.hides_usage = reporting is not None
        if content is given and not changes and _OPTIONS not in content and reporting is not None:
            return document.begun_with(_REPORTING)
        if reporting is not None:
            changes[_OPTIONS] = reporting
        return body if content is given and not changes else document.written({**content, **changes})

    def _unwanted_media(self, member: str, kind: str) -> Refusal:
        if kind.startswith(REMOTE):
            name = kind.removeprefix(REMOTE)
            message = f"media are not fetched from elsewhere here, and {name} names a URL; {_INLINE}"
            return Refusal(400, "remote_media_refused", message, details={"param": member})
        takes = " and ".join(sorted(self._taken, reverse=True))
        message = f"{self._served or 'the model'} takes {takes} only; the request contains a part of type {kind}"
        return Refusal(400, "modality_unsupported", message, details={"param": member})

    def _changes(self, content: dict[str, Any]) -> dict[str, Any] | Refusal:
        """Return the members that the rules change, or why the engine may not be asked."""
        changes: dict[str, Any] = {}
        if self._checks_model and (name := content.get("model")) != self._served:
            if self._rules.model_policy == "rewrite" or name in self._rules.model_aliases:
                changes["model"] = self._served
            elif self._rules.model_policy == "reject":
                return self._unknown_model(name)
        if self._token_fields:
            within = content.get(PARAMETERS) if self._has_parameters else None
            if isinstance(within, dict) and (limits := self._limits(within, default=True)):
                changes[PARAMETERS] = {**within, **limits}
            changes.update(self._limits(content, default=not isinstance(within, dict)))
        for name, value in self._sampling.items():
            if content.get(name) is None:
                changes[name] = value
        if self._kwargs:
            # the client's values win, key by key
            given = content.get(KWARGS)
            if given is None:
                changes[KWARGS] = self._kwargs
            elif isinstance(given, dict) and not self._kwargs.keys() <= given.keys():
                changes[KWARGS] = {**self._kwargs, **given}
        return changes

    def _unknown_model(self, name: object) -> Refusal:
        what = "no model is named" if name is None else "the model is not named by a string"
        if isinstance(name, str):
            what = f"the model {name[:_MAX_TOLD]!r} is not served here"
        names = [self._served, *self._rules.model_aliases]
        details = {"param": "model", "models": names}
        return Refusal(404, "model_not_found", f"{what}; served: {', '.join(names)}", details=details)

    def _limits(self, holder: dict[str, Any], *, default: bool) -> dict[str, Any]:
        """Return the capped limits of the holder; where it has none, the default if it is wanted there."""
        given = [name for name in self._token_fields if holder.get(name) is not None]
        changes = {self._token_fields[0]: self._length} if default and not given else {}
        for name in given:
            value = holder[name]
            # a boolean is no number of tokens, whatever Python thinks
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                changes[name] = self._length
            elif self._cap and value > self._cap:
                changes[name] = self._cap
        return changes


def _reporting(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options with which a stream reports its tokens; None where it does already, or none could."""
    given = content.get(_OPTIONS)
    if content.get("stream") is not True or not isinstance(given, dict | None):
        return None
    given = given or {}
    # no option of a report that the client does not want may take part in it
    return None if given.get("include_usage") is True else {**given, "continuous_usage_stats": False, **_REPORTS}


def policies(rules: Rules, profile: dict[str, Any] | None, dialect: Dialect = PLAIN) -> dict[str, PathRules]:
    """Return the rules by path, without paths that need none; a silent profile is not checked against.

    `dialect` is the engine's.
    """
    profile = profile or {}
    name, known = profile.get("served_model_name") or "", frozenset(profile.get("modalities") or ())
    thinking = llm_pool.thinking_kwargs(profile.get("reasoning"))
    served = Served(name, dialect, thinking, profile.get("remote") is True)
    made = {path: PathRules(path, rules, served, known) for path in GATED_PATHS + JSON_PATHS}
    return {path: one for path, one in made.items() if not one.idle}
