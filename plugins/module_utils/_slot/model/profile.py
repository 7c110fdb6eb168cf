# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A resolved profile as the role renders it to the host: parsing with messages that name the key.

The contract is `roles/slot/files/schema/resolved-profile.schema.json`. What the catalogue always decides has no default
here; what may be missing is what an earlier version of this collection did not render.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ..words.needle import Long
from ..words.types import SlotFault
from .liveness import MIN_PATIENCE_S, DeviceLoss, Liveness, Policy

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
STICKY = ("off", "prefer", "strict")
NODES_LIMIT_S = 600.0  # an engine waits so long for the other nodes before it is started, and begins anew then
MASK = "ZE_AFFINITY_MASK"  # the variable that names the cards which an engine may use
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
    """burst: how many questions are asked at once, 0 or 1 for none. cached: whether there is a prefix cache.
    same_answers_as: the profile whose answers this one claims to give, or empty."""

    cases: tuple[CanaryCase, ...]
    repeats: int
    timeout_s: float
    seed: int
    burst: int = 0
    cached: bool = False
    same_answers_as: str = ""


@dataclass(frozen=True)
class Shape:
    """So many requests at once, each with a prompt and an answer of so many tokens."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int = 1


@dataclass(frozen=True)
class WarmUp:
    """What an engine is sent before clients are let in. limit_s: for all shapes of one engine together."""

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
    start_after_s: float = 0.0  # so long its unit waits before the process is started
    remote: Mapping[str, Any] | None = None  # base_url, model, api_key_file, ca_file of an engine elsewhere
    version: str | None = None  # that its stack is pinned to; None: it was rendered before that was told
    settings: Mapping[str, Any] = field(default_factory=dict)  # by name, as the catalogue has them

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
    """How requests find their replica. headers, json_fields: what names a session; None for what is usual."""

    sticky: str
    prefix_affinity: bool
    headers: tuple[str, ...] | None = None
    json_fields: tuple[str, ...] | None = None


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
    routing: Routing | None = None  # only of profiles with several replicas


@dataclass(frozen=True)
class Replica:
    """What is its own of one of several engines. cards: their numbers on the host, empty where it uses none."""

    index: int
    unit: str
    unit_sha256: str | None
    cards: tuple[int, ...]
    backend_url: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    start_after_s: float


@dataclass(frozen=True)
class NodePart:
    """Which part of an engine over several hosts a host has. rank: 0 is the one with the API, which leads."""

    rank: int
    count: int


@dataclass(frozen=True)
class Runtimes:
    """What the host's compute runtime must be, for an engine that brings none.

    least: the oldest release; empty for any. refused: patterns of releases, with the reason.
    """

    least: str = ""
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Profile:
    """unit, unit_sha256, engine: with several engines, those of the first. cards: of each engine.

    frontdoor.max_active_generations: of all engines together. replicas: empty for one engine, see `singles`.
    beside: the same on its second side, as if that engine were the only one; see `sides`. numbers: the cards of this
    side by their number on the host, empty for a profile without a second one.
    """

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
    examined: str | None = None  # see production.examined; None: it was rendered before there was any
    unit_sha256: str | None = None  # of the unit's text as it was rendered
    accuracy: Accuracy | None = None  # None: it was rendered before there was any
    companions: tuple[str, ...] = ()  # directories of models beside its own
    accepted_rules: tuple[str, ...] = ()  # of its stack, that it breaks on purpose, in words
    replicas: tuple[Replica, ...] = ()
    replica: int | None = None  # which engine of several this is, in `singles`
    image: str = ""  # what its engine runs in a container of; empty: it runs on the host
    liveness: Liveness = field(default_factory=Liveness)
    user: str = ""  # whose the processes in the container are
    power_cap_w: int | None = None  # of each of its cards while an engine runs; None: whatever the cards have
    warmup: WarmUp | None = None  # None: clients send the first requests
    node: NodePart | None = None  # None: the engine is on this host alone
    beside: Profile | None = None
    numbers: tuple[int, ...] = ()
    on_cards: bool = False  # its stack computes on cards
    size_gb: float | None = None  # of its weights
    mounts: tuple[str, ...] = ()  # files of the host in its container, besides models
    runtimes: Runtimes = field(default_factory=Runtimes)

    @property
    def sides(self) -> tuple[Profile, ...]:
        """The profile once for each place where its one engine can be, the first place first."""
        return (self,) if self.beside is None else (self, self.beside)

    def on(self, units: Collection[str]) -> Profile:
        """The side whose unit is one of these, else the first."""
        return next((side for side in self.sides if side.unit in units), self)

    def meets(self, other: Profile) -> bool:
        """Would engines of these two sides get in each other's way? So does one whose cards are not known."""
        apart = self.numbers and other.numbers and not {*self.numbers} & {*other.numbers}
        return not apart or self.engine.port == other.engine.port

    @property
    def singles(self) -> tuple[Profile, ...]:
        """The profile once for each of its engines, as if that were the only one."""
        return tuple(self._single(replica) for replica in self.replicas) or (self,)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(replica.unit for replica in self.replicas) or (self.unit,)

    @property
    def turn_limit_s(self) -> float:
        """How long the unit may wait before it starts its process: for its turn, or for other nodes."""
        return self.engine.start_after_s if self.node is None else NODES_LIMIT_S

    @property
    def all_cards(self) -> int:
        """How many cards all engines use together."""
        return self.cards * len(self.units)

    def _single(self, one: Replica) -> Profile:
        engine = replace(
            self.engine, backend_url=one.backend_url, argv=one.argv, env=one.env, start_after_s=one.start_after_s
        )
        share = self.frontdoor.max_active_generations // len(self.replicas)
        return replace(
            self,
            unit=one.unit,
            unit_sha256=one.unit_sha256,
            engine=engine,
            frontdoor=replace(self.frontdoor, max_active_generations=share),
            replicas=(),
            replica=one.index,
        )


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
        same_answers_as=read.get("same_answers_as", str, ""),
    )


def _accuracy(read: _Reader, where: str) -> Accuracy:
    rows = [
        _Reader(row, where, f"accuracy.questions[{index}]") for index, row in enumerate(read.get("questions", list, []))
    ]
    return Accuracy(
        threshold=float(read.get("threshold", (int, float))),
        limit_s=float(read.get("limit_s", (int, float))),
        questions=tuple(Question(*(row.get(key, str) for key in ("task", "prompt", "answer"))) for row in rows),
    )


def _warmup(read: _Reader, where: str) -> WarmUp:
    rows = [_Reader(row, where, f"warmup.shapes[{index}]") for index, row in enumerate(read.get("shapes", list))]
    return WarmUp(
        shapes=tuple(
            Shape(*(row.get(key, int) for key in ("prompt_tokens", "output_tokens", "concurrency"))) for row in rows
        ),
        limit_s=float(read.get("limit_s", (int, float))),
    )


def _liveness(read: _Reader) -> Liveness:
    policy, loss = read.get("policy", str), read.get("device_loss", str)
    if policy not in list(Policy):
        raise read.fault("policy", f"is {policy!r}, wanted one of {', '.join(Policy)}")
    if loss not in list(DeviceLoss):
        raise read.fault("device_loss", f"is {loss!r}, wanted one of {', '.join(DeviceLoss)}")
    patience, ask, verify = (
        float(read.get(key, (int, float))) for key in ("patience_s", "ask_every_s", "verify_every_s")
    )
    return Liveness(Policy(policy), max(MIN_PATIENCE_S, patience), ask, verify, DeviceLoss(loss))


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
        remote=read.get("remote", Mapping, None),
        version=read.get("version", str, None),
        settings=read.get("settings", Mapping, {}),
    )


def _runtimes(read: _Reader) -> Runtimes:
    rows = [(str(row["matches"]), str(row["reason"])) for row in read.get("refused", list, [])]
    return Runtimes(least=read.get("least", str, ""), refused=tuple(rows))


def _node(read: _Reader) -> NodePart:
    part = NodePart(read.get("rank", int), read.get("count", int))
    if not 0 <= part.rank < part.count:
        raise read.fault("rank", f"is {part.rank} of {part.count}")
    return part


def _replicas(read: _Reader, where: str) -> tuple[Replica, ...]:
    rows = [
        _Reader(row, where, f"engine.replicas[{index}]") for index, row in enumerate(read.get("replicas", list, []))
    ]
    return tuple(
        Replica(
            index=index,
            unit=row.get("unit", str),
            unit_sha256=row.get("unit_sha256", str, None),
            cards=tuple(row.get("cards", list)),
            backend_url=row.get("backend_url", str).rstrip("/"),
            argv=row.strings("argv"),
            env={str(key): str(value) for key, value in row.get("env", Mapping).items()},
            start_after_s=float(row.get("start_after_s", (int, float))),
        )
        for index, row in enumerate(rows)
    )


def _with_sides(profile: Profile, read: _Reader) -> Profile:
    """The profile with its second side. An engine without a mask takes the first cards."""
    mask, numbers = profile.engine.env.get(MASK, "").split(","), read.get("cards", list)
    own = map(int, mask) if all(map(str.isdecimal, mask)) else range(len(numbers))
    beside = replace(
        profile,
        unit=read.get("unit", str),
        unit_sha256=read.get("unit_sha256", str, None),
        engine=replace(
            profile.engine,
            backend_url=read.get("backend_url", str).rstrip("/"),
            argv=read.strings("argv"),
            env={str(key): str(value) for key, value in read.get("env", Mapping).items()},
        ),
        numbers=tuple(numbers),
    )
    return replace(profile, beside=beside, numbers=tuple(own))


def _routing(read: _Reader) -> Routing:
    sticky = read.get("sticky", str)
    if sticky not in STICKY:
        raise read.fault("sticky", f"is {sticky!r}, wanted one of {', '.join(STICKY)}")
    return Routing(
        sticky=sticky,
        prefix_affinity=read.get("prefix_affinity", bool),
        headers=read.strings("headers") if read.has("headers") else None,
        json_fields=read.strings("json_fields") if read.has("json_fields") else None,
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
        routing=_routing(read.section("routing")) if read.has("routing") else None,
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
    profile = Profile(
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
        examined=read.get("examined", str, None),
        unit_sha256=read.get("unit_sha256", str, None),
        accuracy=_accuracy(read.section("accuracy"), where) if read.has("accuracy") else None,
        companions=model.strings("companions", []),
        accepted_rules=read.strings("accepted_rules", []),
        replicas=_replicas(read.section("engine"), where),
        image=stack.get("image", str, ""),
        user=stack.get("user", str, ""),
        power_cap_w=read.get("power_cap_w", int, None),
        warmup=_warmup(read.section("warmup"), where) if read.has("warmup") else None,
        node=_node(read.section("node")) if read.has("node") else None,
        liveness=_liveness(read.section("liveness")) if read.has("liveness") else Liveness(),
        on_cards=stack.get("device", str, "") == "xpu",
        size_gb=model.get("size_gb", (int, float), None),
        mounts=tuple(read.section("engine").get("mounts", Mapping, {})),
        runtimes=_runtimes(read.section("runtimes")) if read.has("runtimes") else Runtimes(),
    )
    engine = read.section("engine")
    return _with_sides(profile, engine.section("beside")) if engine.has("beside") else profile
