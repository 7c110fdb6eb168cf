# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A resolved profile as the role renders it to the host: parsing with messages that name the key.

The contract is `roles/slot/files/schema/resolved-profile.schema.json`. What the catalogue always decides has no default
here; what may be missing is what an earlier version of this collection did not render.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .needle import Long
from .types import SlotFault

SCHEMA = 1
COMPARES = (
    "exact",
    "contains",
    "regex",
    "sha256",
    "baseline",
    "json",
    "vector",
    "order",
    "classes",
    "transcript",
)
NUMBERS = ("vector", "order", "classes")  # of texts
BARE = ("baseline", "transcript", *NUMBERS)  # compares without an expected side
BURST = "burst"  # the name of the result of what is asked at once
POOLING = ("embed", "score", "classify")  # tasks whose answers are numbers
HOWS = ("disabled", "separate", "inline")
STATUSES = ("production", "baseline", "candidate", "research", "experiment", "rejected", "blocked")


@dataclass(frozen=True)
class Reasoning:
    """How a model thinks before it answers.

    how: disabled by the template, which is given template_kwargs; separate, beside the answer as the engine's parser
    gives it; inline, in the answer between tags. budget_tokens: room for it beside a case's max_tokens.
    """

    how: str
    budget_tokens: int = 2048
    tags: tuple[str, str] = ("<think>", "</think>")
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return 0 if self.how == "disabled" else self.budget_tokens


@dataclass(frozen=True)
class CanaryCase:
    """A small deterministic request whose answer is known. expected: empty for the compares in BARE.

    texts: what a model gets that writes no text; then there is no prompt. dimension, unit_norm: of its vectors.
    labels, one_label: of its classes. audio: what a model gets that writes down speech. tool: the function whose
    call is judged in place of a text. schema: what the answer is to be built after.
    """

    name: str
    prompt: str
    max_tokens: int
    compare: str
    expected: str
    image: Mapping[str, Any] | str | None = None
    long: Long | None = None
    texts: tuple[str, ...] = ()
    dimension: int | None = None
    unit_norm: bool = True
    labels: tuple[str, ...] = ()
    one_label: bool = True
    tool: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    audio: Mapping[str, Any] | str | None = None


@dataclass(frozen=True)
class Canary:
    """burst: how many questions are asked at once, 0 or 1 for none. cached: whether there is a prefix cache."""

    cases: tuple[CanaryCase, ...]
    repeats: int
    timeout_s: float
    seed: int
    burst: int = 0
    cached: bool = False


@dataclass(frozen=True)
class Engine:
    kind: str
    served_model_name: str
    max_model_len: int | None
    backend_url: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    start_timeout_s: float
    task: str = "generate"
    directives: tuple[str, ...] = ()  # of its unit, as far as they are the profile's own
    allowed_media_domains: tuple[str, ...] | None = None  # None: it was rendered before there was such a list
    reasoning: Reasoning | None = None

    @property
    def reasoning_room(self) -> int:
        """Tokens for reasoning in front of every answer."""
        return 0 if self.reasoning is None else self.reasoning.room

    @property
    def port(self) -> int:
        parts = urlsplit(self.backend_url)
        return parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True)
class Frontdoor:
    """What the frontdoor needs to know of the profile; times in seconds."""

    max_active_generations: int
    queue_timeout_s: float
    backend_timeout_s: float
    event_log: bool
    chat_template_kwargs: Mapping[str, Any] | None = None
    max_tokens_default: int | None = None
    max_tokens_cap: int | None = None
    sampling_defaults: Mapping[str, Any] | None = None
    model_policy: str | None = None
    model_aliases: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Profile:
    name: str
    title: str
    status: str
    status_reason: str
    modalities: tuple[str, ...]
    unit: str
    stack_id: str
    stack_dir: str
    cards: int
    hf_repo: str | None
    model_path: str
    engine: Engine
    frontdoor: Frontdoor
    canary: Canary
    fingerprint: str
    unit_sha256: str | None = None  # of the unit's text as it was rendered
    accepted_rules: tuple[str, ...] = ()  # of its stack, that it breaks on purpose, in words


class _Reader:
    """Typed access to a mapping; every error names the file and the dotted key."""

    def __init__(self, data: Any, where: str, path: str = "") -> None:
        self._where, self._path = where, path
        if not isinstance(data, Mapping):
            raise self.fault("", f"is {type(data).__name__}, not a mapping")
        self._data = data

    def fault(self, key: str, problem: str) -> SlotFault:
        dotted = ".".join(part for part in (self._path, key) if part) or "the document"
        return SlotFault(f"{self._where}: {dotted} {problem}; render it again with the role slot")

    def get(self, key: str, kinds: type | tuple[type, ...], default: Any = ...) -> Any:
        value = self._data.get(key)
        if value is None:
            if default is ...:
                raise self.fault(key, "is missing")
            return default
        names = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, names) or (isinstance(value, bool) and bool not in names):
            raise self.fault(key, f"is {value!r}, wanted {' or '.join(kind.__name__ for kind in names)}")
        return value

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def section(self, key: str) -> _Reader:
        dotted = f"{self._path}.{key}" if self._path else key
        return _Reader(self.get(key, Mapping), self._where, dotted)

    def strings(self, key: str, default: Any = ...) -> tuple[str, ...]:
        values = self.get(key, list, default)
        if not all(isinstance(value, str) for value in values):
            raise self.fault(key, "holds something that is not a string")
        return tuple(values)


def _case(data: Any, where: str, index: int) -> CanaryCase:
    read = _Reader(data, where, f"canary.cases[{index}]")
    compare = read.get("compare", str, "exact")
    if compare not in COMPARES:
        raise read.fault("compare", f"is {compare!r}, wanted one of {', '.join(COMPARES)}")
    texts, heard = read.strings("texts", []), read.get("audio", (Mapping, str), None)
    if bool(texts) != (compare in NUMBERS):
        raise read.fault("texts", f"belongs to compare {', '.join(NUMBERS)}, and these need it")
    if compare == "transcript" and heard is None:
        raise read.fault("audio", "is missing")
    bare = bool(texts) or heard is not None
    return CanaryCase(
        name=read.get("name", str),
        prompt=read.get("prompt", str, "" if bare else ...),
        max_tokens=read.get("max_tokens", int, 0 if bare else ...),
        compare=compare,
        expected=read.get("expected", str, "" if compare in BARE else ...),
        image=read.get("image", (Mapping, str), None),
        long=None if read.get("long", Mapping, None) is None else _long(read.section("long")),
        texts=texts,
        dimension=read.get("dimension", int, None),
        unit_norm=read.get("unit_norm", bool, True),
        labels=read.strings("labels", []),
        one_label=read.get("one_label", bool, True),
        tool=_tool(read),
        schema=read.get("schema", Mapping, None),
        audio=heard,
    )


def _tool(read: _Reader) -> Mapping[str, Any] | None:
    tool: Mapping[str, Any] | None = read.get("tool", Mapping, None)
    if tool is not None:
        read.section("tool").get("name", str)
        read.section("tool").get("parameters", Mapping)
    return tool


def _long(read: _Reader) -> Long:
    depth = float(read.get("depth", (int, float), Long.depth))
    if not 0 <= depth <= 1:
        raise read.fault("depth", f"is {depth:g}, wanted 0 to 1")
    return Long(note=read.get("note", str), tokens=read.get("tokens", int, Long.tokens), depth=depth)


def _canary(read: _Reader, where: str) -> Canary:
    cases = read.get("cases", list)
    if not cases:
        raise read.fault("cases", "is empty; a profile without a known answer can't be verified")
    return Canary(
        cases=tuple(_case(case, where, index) for index, case in enumerate(cases)),
        repeats=max(1, read.get("repeats", int)),
        timeout_s=float(read.get("timeout_s", (int, float))),
        seed=read.get("seed", int),
        burst=read.get("burst", int, 0),
        cached=read.get("cached", bool, False),
    )


def _reasoning(read: _Reader) -> Reasoning:
    how = read.get("how", str)
    if how not in HOWS:
        raise read.fault("how", f"is {how!r}, wanted one of {', '.join(HOWS)}")
    tags = read.strings("tags", list(Reasoning.tags))
    if len(tags) != 2 or not all(tags):
        raise read.fault("tags", f"is {list(tags)!r}, wanted where it begins and where it ends")
    return Reasoning(
        how=how,
        budget_tokens=read.get("budget_tokens", int, Reasoning.budget_tokens),
        tags=(tags[0], tags[1]),
        template_kwargs=read.get("template_kwargs", Mapping, {}),
    )


def _engine(read: _Reader) -> Engine:
    argv = read.strings("argv")
    if not argv:
        raise read.fault("argv", "is empty")
    env = read.get("env", Mapping)
    return Engine(
        kind=read.get("kind", str),
        served_model_name=read.get("served_model_name", str),
        max_model_len=read.get("max_model_len", int, None),
        backend_url=read.get("backend_url", str).rstrip("/"),
        argv=argv,
        env={str(key): str(value) for key, value in env.items()},
        start_timeout_s=float(read.get("start_timeout_s", (int, float))),
        task=read.get("task", str, "generate"),
        directives=read.strings("directives", []),
        allowed_media_domains=read.strings("allowed_media_domains", []) if read.has("allowed_media_domains") else None,
        reasoning=_reasoning(read.section("reasoning")) if read.has("reasoning") else None,
    )


def _frontdoor(read: _Reader) -> Frontdoor:
    # none of its own is not the same as an empty list: the operator's count then
    aliases = read.get("model_aliases", list, None)
    return Frontdoor(
        max_active_generations=read.get("max_active_generations", int),
        queue_timeout_s=float(read.get("queue_timeout_s", (int, float))),
        backend_timeout_s=float(read.get("backend_timeout_s", (int, float))),
        chat_template_kwargs=read.get("chat_template_kwargs", Mapping, None),
        max_tokens_default=read.get("max_tokens_default", int, None),
        max_tokens_cap=read.get("max_tokens_cap", int, None),
        sampling_defaults=read.get("sampling_defaults", Mapping, None),
        model_policy=read.get("model_policy", str, None),
        model_aliases=None if aliases is None else read.strings("model_aliases"),
        event_log=read.get("event_log", bool),
    )


def read_document(text: str, where: str, wanted: int) -> _Reader:
    """Access to the rendered JSON text of the file `where`. SlotFault when it is none, or of another schema."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SlotFault(f"{where} is not JSON ({error}); render it again with the role slot") from error
    read = _Reader(data, where)
    schema = read.get("schema", int)
    if schema != wanted:
        raise read.fault("schema", f"is {schema}, this version reads {wanted}")
    return read


def parse_profile(text: str, where: str) -> Profile:
    """Profile from the JSON text of the file `where`. Raises SlotFault naming the file and the key."""
    read = read_document(text, where, SCHEMA)
    stack, model = read.section("stack"), read.section("model")
    status = read.get("status", str)
    if status not in STATUSES:
        raise read.fault("status", f"is {status!r}, wanted one of {', '.join(STATUSES)}")
    return Profile(
        name=read.get("name", str),
        title=read.get("title", str),
        status=status,
        status_reason=read.get("status_reason", str),
        modalities=read.strings("modalities"),
        unit=read.get("unit", str),
        stack_id=stack.get("id", str),
        stack_dir=stack.get("dir", str),
        cards=read.get("cards", int),
        hf_repo=model.get("hf_repo", str, None),
        model_path=model.get("path", str),
        engine=_engine(read.section("engine")),
        frontdoor=_frontdoor(read.section("frontdoor")),
        canary=_canary(read.section("canary"), where),
        fingerprint=read.get("fingerprint", str),
        unit_sha256=read.get("unit_sha256", str, None),
        accepted_rules=read.strings("accepted_rules", []),
    )
