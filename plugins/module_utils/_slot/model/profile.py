# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A resolved profile as the role renders it to the host: parsing with messages that name the key.

The contract is `roles/slot/files/schema/resolved-profile.schema.json`. What the catalogue always decides has no default
here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from ..words.decode import ShapeError, decode_document
from ..words.needle import Long
from .liveness import Liveness

SCHEMA = 1
Compare = Literal[
    "exact", "contains", "regex", "sha256", "baseline", "json", "vector", "order", "classes", "transcript"
]
NUMBERS = ("vector", "order", "classes")  # of texts
BARE = ("baseline", "transcript", *NUMBERS)  # compares without an expected side
BURST = "burst"  # the name of the result of what is asked at once
POOLING = ("embed", "score", "classify")  # tasks whose answers are numbers
NODES_LIMIT_S = 600.0  # an engine waits so long for the other nodes before it is started, and begins anew then
MASK = "ZE_AFFINITY_MASK"  # the variable that names the cards which an engine may use
STATUSES = ("production", "baseline", "candidate", "research", "experiment", "rejected", "blocked")


@dataclass(frozen=True)
class Reasoning:
    """The thoughts of a model before it answers.

    how: disabled by the template, which is given template_kwargs; separate, beside the answer as the engine's parser
    gives it; inline, in the answer between tags. budget_tokens: room for it beside a case's max_tokens.
    """

    how: Literal["disabled", "separate", "inline"]
    budget_tokens: int = 2048
    tags: tuple[str, str] = ("<think>", "</think>")
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        if not all(self.tags):
            raise ShapeError("tags", f"is {list(self.tags)!r}, wanted where it begins and where it ends")

    @property
    def room(self) -> int:
        return 0 if self.how == "disabled" else self.budget_tokens


@dataclass(frozen=True)
class CanaryCase:
    """A small deterministic request whose answer is known. expected: empty for the compares in BARE.

    texts: what a model gets that writes no text; then there is no prompt. dimension, unit_norm: of its vectors.
    labels, one_label: of its classes. audio: what a model gets that writes down speech. tool: the function whose
    call is judged in place of a text. schema: what the answer is to be built after.

    messages: the conversation before the prompt, as the API has it. Each of its questions is asked too, and its answer
    must be the one that follows. sampling: temperature, top_p and top_k in place of greedy decoding. stream: every
    second repeat is streamed.
    """

    name: str
    prompt: str = ""
    max_tokens: int = 0
    compare: Compare = "exact"
    expected: str = ""
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
    messages: tuple[Mapping[str, str], ...] = ()
    sampling: Mapping[str, Any] | None = None
    stream: bool = False

    def check(self) -> None:
        if bool(self.texts) != (self.compare in NUMBERS):
            raise ShapeError("texts", f"belongs to compare {', '.join(NUMBERS)}, and these need it")
        bare = bool(self.texts or self.audio)
        needed = ("audio",) if self.compare == "transcript" else () if bare else ("prompt", "max_tokens")
        for key in (*needed, *(() if self.compare in BARE else ("expected",))):
            if not getattr(self, key):
                raise ShapeError(key, "is missing")
        if self.tool is not None and not {"name", "parameters"} <= {*self.tool}:
            raise ShapeError("tool", "needs a name and parameters")


@dataclass(frozen=True)
class Canary:
    """burst: how many questions are asked at once, 0 or 1 for none. cached: whether there is a prefix cache.
    same_answers_as: the profile whose answers this one claims to give, or empty."""

    cases: tuple[CanaryCase, ...]
    repeats: int
    timeout_s: float
    seed: int
    burst: int = 0
    cached: bool = False
    same_answers_as: str = ""

    def check(self) -> None:
        if not self.cases:
            raise ShapeError("cases", "is empty; a profile without a known answer can't be verified")


@dataclass(frozen=True)
class Shape:
    """So many requests at once, each with a prompt and an answer of so many tokens."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int = 1


@dataclass(frozen=True)
class WarmUp:
    """The requests that an engine is sent before clients are let in. limit_s: for all shapes of one engine together."""

    shapes: tuple[Shape, ...]
    limit_s: float


@dataclass(frozen=True)
class Question:
    """task: the name under which answers are counted together. answer: the text that is right."""

    task: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Accuracy:
    """threshold: the share of right answers that is enough for production. questions: empty for the usual ones."""

    threshold: float
    limit_s: float
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Side:
    """The second place of an engine. cards: their numbers on the host, empty where it uses none."""

    unit: str
    unit_sha256: str | None
    cards: tuple[int, ...]
    backend_url: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Replica(Side):
    """One of several engines, as far as it differs from the others."""

    index: int
    start_after_s: float


@dataclass(frozen=True)
class Engine:
    """replicas: empty for one engine. beside: its second place."""

    kind: str
    served_model_name: str
    max_model_len: int | None
    backend_url: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    start_timeout_s: float
    task: str = "generate"
    directives: tuple[str, ...] = ()  # of its unit, as far as they are the profile's own
    allowed_media_domains: tuple[str, ...] = ()
    reasoning: Reasoning | None = None
    start_after_s: float = 0.0  # so long its unit waits before the process is started
    remote: Mapping[str, Any] | None = None  # base_url, model, api_key_file, ca_file of an engine elsewhere
    version: str | None = None  # that its stack is pinned to
    settings: Mapping[str, Any] = field(default_factory=dict)  # by name, as the catalogue has them
    replicas: tuple[Replica, ...] = ()
    beside: Side | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)  # files of the host, besides models, in its container

    def check(self) -> None:
        if not self.argv:
            raise ShapeError("argv", "is empty")

    @property
    def reasoning_room(self) -> int:
        """Tokens for reasoning in front of every answer."""
        return 0 if self.reasoning is None else self.reasoning.room

    @property
    def port(self) -> int:
        parts = urlsplit(self.backend_url)
        return parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True)
class Routing:
    """The way of requests to a replica. headers, json_fields: name a session; None for the usual ones."""

    sticky: Literal["off", "prefer", "strict"]
    prefix_affinity: bool
    headers: tuple[str, ...] | None = None
    json_fields: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Frontdoor:
    """The part of the profile that the frontdoor needs; times in seconds."""

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
    routing: Routing | None = None  # only of profiles with several replicas


@dataclass(frozen=True)
class NodePart:
    """The part of an engine over several hosts that a host has. rank: 0 is the one with the API, which leads."""

    rank: int
    count: int

    def check(self) -> None:
        if not 0 <= self.rank < self.count:
            raise ShapeError("rank", f"is {self.rank} of {self.count}")


@dataclass(frozen=True)
class Stack:
    """The place of the engine's program. image: that of its container, empty where it runs on the host; user:
    whose the processes in the container are."""

    id: str
    dir: str
    device: str | None = None
    image: str = ""
    user: str = ""


@dataclass(frozen=True)
class Model:
    """companions: directories of models beside its own. record: the digest of the records of all of them (see
    weights.together), empty if one has none."""

    path: str
    hf_repo: str | None = None
    companions: tuple[str, ...] = ()
    record: str = ""
    size_gb: float | None = None


@dataclass(frozen=True)
class RefusedRuntime:
    """Releases of the compute runtime that an engine must not run with. matches: a pattern of their versions."""

    matches: str
    reason: str


@dataclass(frozen=True)
class Runtimes:
    """The compute runtimes of the host for an engine that brings none. least: the oldest release; empty for any."""

    least: str = ""
    refused: tuple[RefusedRuntime, ...] = ()


@dataclass(frozen=True)
class Profile:
    """unit, unit_sha256, engine: with several engines, those of the first. cards: of each engine.

    frontdoor.max_active_generations: of all engines together. beside: the same on its second side, as if that engine
    were the only one; see `sides`. numbers: the cards of this side by their number on the host, empty for a profile
    without a second one.
    """

    name: str
    title: str
    status: str
    status_reason: str
    modalities: tuple[str, ...]
    unit: str
    stack: Stack
    model: Model
    cards: int
    engine: Engine
    frontdoor: Frontdoor
    canary: Canary
    fingerprint: str
    examined: str  # see production.examined
    accuracy: Accuracy
    unit_sha256: str | None = None  # of the unit's text as it was rendered
    accepted_rules: tuple[str, ...] = ()  # of its stack, that it breaks on purpose, in words
    replica: int | None = None  # which engine of several this is, in `singles`
    liveness: Liveness = field(default_factory=Liveness)
    power_cap_w: int | None = None  # of each of its cards while an engine runs; None: whatever the cards have
    warmup: WarmUp | None = None  # None: clients send the first requests
    node: NodePart | None = None  # None: the engine is on this host alone
    beside: Profile | None = None
    numbers: tuple[int, ...] = ()
    runtimes: Runtimes = field(default_factory=Runtimes)
    standby: bool = False  # its engine may sleep while another one serves
    peer_access: str = ""  # the rule against direct access between cards, unless it is proven on the host; empty: none

    def check(self) -> None:
        if self.status not in STATUSES:
            raise ShapeError("status", f"is {self.status!r}, wanted one of {', '.join(STATUSES)}")

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return self.engine.replicas

    @property
    def sides(self) -> tuple[Profile, ...]:
        """The profile once for each place where its one engine can be, the first place first."""
        return (self,) if self.beside is None else (self, self.beside)

    def on(self, units: Collection[str]) -> Profile:
        """Return the side whose unit is one of these, else the first."""
        return next((side for side in self.sides if side.unit in units), self)

    def meets(self, other: Profile) -> bool:
        """Tell whether engines of these two sides would get in each other's way; unknown cards do."""
        apart = self.numbers and other.numbers and not {*self.numbers} & {*other.numbers}
        return not apart or self.engine.port == other.engine.port

    @cached_property
    def singles(self) -> tuple[Profile, ...]:
        """The profile once for each of its engines, as if that were the only one."""
        return tuple(self._single(replica) for replica in self.replicas) or (self,)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(replica.unit for replica in self.replicas) or (self.unit,)

    @property
    def turn_limit_s(self) -> float:
        """Return how long the unit may wait before it starts its process: for its turn, or for other nodes."""
        return self.engine.start_after_s if self.node is None else NODES_LIMIT_S

    @property
    def all_cards(self) -> int:
        """Return how many cards all engines use together."""
        return self.cards * len(self.units)

    def _single(self, one: Replica) -> Profile:
        engine = replace(
            self.engine,
            backend_url=one.backend_url,
            argv=one.argv,
            env=one.env,
            start_after_s=one.start_after_s,
            replicas=(),
        )
        share = self.frontdoor.max_active_generations // len(self.replicas)
        return replace(
            self,
            unit=one.unit,
            unit_sha256=one.unit_sha256,
            engine=engine,
            frontdoor=replace(self.frontdoor, max_active_generations=share),
            replica=one.index,
        )


def _with_sides(profile: Profile) -> Profile:
    """Return the profile with its second side. An engine without a mask takes the first cards."""
    side = profile.engine.beside
    if side is None:
        return profile
    mask = profile.engine.env.get(MASK, "").split(",")
    own = map(int, mask) if all(map(str.isdecimal, mask)) else range(len(side.cards))
    engine = replace(profile.engine, backend_url=side.backend_url, argv=side.argv, env=side.env)
    beside = replace(profile, unit=side.unit, unit_sha256=side.unit_sha256, engine=engine, numbers=side.cards)
    return replace(profile, beside=beside, numbers=tuple(own))


@lru_cache(maxsize=32)  # the controller asks at each look
def parse_profile(text: str, where: str) -> Profile:
    """Return the profile in the JSON text of the file `where`. Raise SlotFault naming the file and the key."""
    return _with_sides(decode_document(Profile, text, where, SCHEMA))
