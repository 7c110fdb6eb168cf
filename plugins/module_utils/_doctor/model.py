# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's types: probes, answers, checks and findings. Immutable and without effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .._host import named
from .._slot.kinds.kind import Kind
from .._slot.kinds.table import DEFAULT, kind_of_engine

SHOWN_EVIDENCE = 12


class Level(StrEnum):
    """PASS: good. WARN: works, but needs attention. FAIL: does not work. SKIP: not checked, with the reason."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True)
class Finding:
    """The result of a check: one sentence and its evidence, and fix and source if they differ from those of the
    check."""

    level: Level
    summary: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    source: str = ""


def passed(summary: str, *evidence: str) -> Finding:
    return Finding(Level.PASS, summary, evidence)


def warned(summary: str, *evidence: str, fix: str = "", source: str = "") -> Finding:
    return Finding(Level.WARN, summary, evidence, fix, source)


def failed(summary: str, *evidence: str, fix: str = "", source: str = "") -> Finding:
    return Finding(Level.FAIL, summary, evidence, fix, source)


def skipped(summary: str) -> Finding:
    return Finding(Level.SKIP, summary)


def cards_needed(profile: Mapping[str, Any]) -> int:
    """Return how many cards the engines of a resolved profile need together."""
    return int(profile.get("cards") or 0) * len(profile["engine"].get("replicas") or (None,))


class Probe:
    """A question of a check to a host: a command, files, or an inspection. Equal probes run once."""


@dataclass(frozen=True)
class Command(Probe):
    """A program that only reads. `as_user`: run as the service user, like the engine. `owner_of`: run as the owner of
    this path. `limit_s`: seconds."""

    argv: tuple[str, ...]
    limit_s: float = 5.0
    as_user: bool = False
    owner_of: str = ""
    env: tuple[tuple[str, str], ...] = ()
    stdin: str = ""


@dataclass(frozen=True)
class Read(Probe):
    """The text of every file that matches one of the glob patterns, cut at `max_bytes` each."""

    patterns: tuple[str, ...]
    max_bytes: int = 65536


@dataclass(frozen=True)
class Look(Probe):
    """An inspection of several reads. `name` is one of the effects' inspections, the answer is plain data."""

    name: str
    argument: str = ""


@dataclass(frozen=True)
class Output:
    """The output of a command. `problem`: why there is no usable output (not installed, too late), else empty.

    `late`: it did not come in time.
    """

    code: int | None = None
    out: str = ""
    err: str = ""
    problem: str = ""
    late: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.problem

    def why(self) -> str:
        """Return why the output is not ok, as text."""
        last = (self.err.strip() or self.out.strip()).splitlines()[-1:]
        return self.problem or f"it ended with {self.code}{': ' + last[0] if last else ''}"


NOT_ASKED = Output(problem="was not answered in time", late=True)


class Answers:
    """The probes' answers. A failed inspection answers with its problem, which `look` raises as LookupError."""

    def __init__(self, answers: Mapping[Probe, Any]) -> None:
        self._answers = answers

    def output(self, command: Command) -> Output:
        answer = self._answers.get(command)
        return answer if isinstance(answer, Output) else NOT_ASKED

    def texts(self, read: Read) -> Mapping[str, str]:
        """Return the texts of the files by path, ordered by path."""
        answer = self._answers.get(read)
        return answer if isinstance(answer, Mapping) else {}

    def text(self, path: str) -> str | None:
        """Return the stripped text of the one file of `Read((path,))`; None where there is none."""
        text = self.texts(Read((path,))).get(path)
        return None if text is None else text.strip()

    def look(self, look: Look) -> Any:
        answer = self._answers.get(look, NOT_ASKED)
        if isinstance(answer, Output):
            raise LookupError(answer.problem)
        return answer

    def late(self, probes: Iterable[Probe]) -> bool:
        """Tell whether one of the probes has no answer, or one that did not come in time."""
        answers = (self._answers.get(probe, NOT_ASKED) for probe in probes)
        return any(isinstance(answer, Output) and answer.late for answer in answers)


@dataclass(frozen=True)
class Site:
    """The facts about the host before any check, and the operator's settings.

    `cards`, `others`: as of `_host.cards` and `_host.other_cards`. `stacks`: as of `_host.stacks`. `wanted`: resolved
    profiles that are served, boot, or were named. `serving`: the profile that the state file says is served, verified.
    `manifests`: stack manifests by name. `account`: as of `_host.account_facts`. `settings`: the module's parameters.
    """

    settings: Mapping[str, Any]
    cards: Sequence[Mapping[str, Any]] = ()
    others: Sequence[Mapping[str, Any]] = ()
    stacks: Sequence[Mapping[str, Any]] = ()
    wanted: Sequence[Mapping[str, Any]] = ()
    manifests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    account: Mapping[str, Any] | None = None
    system: Mapping[str, Any] = field(default_factory=dict)
    installed: bool = False
    serving: str = ""

    @property
    def cards_wanted(self) -> int:
        """The expected number of cards: as set, else the most that a wanted profile needs."""
        told = self.settings.get("cards")
        return int(told) if told is not None else max((cards_needed(profile) for profile in self.wanted), default=0)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(str(card["address"]) for card in self.cards)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the cards, as masks, xpu-smi and Level Zero count them."""
        return tuple(int(card.get("number", index)) for index, card in enumerate(self.cards))

    @property
    def beside(self) -> str:
        """The cards of other models in words, to follow a sentence; empty without one."""
        return f"; beside them {', '.join(named(card) for card in self.others)}" if self.others else ""

    @property
    def used_stacks(self) -> tuple[Mapping[str, Any], ...]:
        """The complete stacks of the wanted profiles. Without such a profile all complete ones."""
        complete = [stack for stack in self.stacks if stack["complete"]]
        ids = {profile.get("stack", {}).get("id") for profile in self.wanted}
        return tuple(stack for stack in complete if stack["id"] in ids or not self.wanted)

    @property
    def environments(self) -> tuple[Mapping[str, Any], ...]:
        """The used stacks that are environments on the host. An image cannot be inspected from outside."""
        return tuple(stack for stack in self.used_stacks if "image" not in self.manifest_of(stack))

    @property
    def torch_stacks(self) -> tuple[Mapping[str, Any], ...]:
        """The environments whose engine computes with torch."""
        return tuple(stack for stack in self.environments if self.kind_of(stack) is DEFAULT)

    @property
    def other_stacks(self) -> tuple[Mapping[str, Any], ...]:
        """The environments whose engine is a program of its own."""
        return tuple(stack for stack in self.environments if self.kind_of(stack) is not DEFAULT)

    def kind_of(self, stack: Mapping[str, Any]) -> Kind:
        return kind_of_engine(self.manifest_of(stack).get("engine") or {})

    def serves(self, stack: Mapping[str, Any]) -> bool:
        """Tell whether the serving engine runs from this stack."""
        return any(
            profile["name"] == self.serving and profile.get("stack", {}).get("id") == stack["id"]
            for profile in self.wanted
        )

    def manifest_of(self, stack: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.manifests.get(str(stack.get("name")), {})

    @property
    def card_manifests(self) -> tuple[Mapping[str, Any], ...]:
        """The manifests that a host with cards is compared with: those of its stacks for cards, else the default."""
        used = [self.manifest_of(stack) for stack in self.used_stacks]
        named = [manifest for manifest in used if manifest.get("device") == "xpu"]
        default = self.manifests.get(str(self.settings.get("default_stack", "")))
        return tuple(named) or ((default,) if default else ())


@dataclass(frozen=True)
class Check:
    """One question to the host.

    id: stable. what, meaning, fix: for people, the last two about a finding that is not PASS. probes: what to collect.
    judge: pure. source: the origin of its criteria. needs_cards, needs_product, needs_stack: without them it
    is skipped with the reason.
    """

    id: str
    group: str
    what: str
    meaning: str
    fix: str
    probes: Callable[[Site], Sequence[Probe]]
    judge: Callable[[Site, Answers], Finding]
    needs_cards: bool = False
    needs_product: bool = False
    needs_stack: bool = False
    source: str = ""
    captured_only: bool = False  # tested only with captured output, never on a real card

    def waived(self, site: Site) -> str:
        """Return why the check does not apply to the host, else empty."""
        if self.needs_cards and not site.cards:
            return (
                "there is no Arc Pro B70 in this host (see the check card-count)"
                if site.cards_wanted
                else f"this host has no Arc Pro B70, and nothing that it serves needs one{site.beside}"
            )
        if self.needs_product and not site.installed:
            return "nothing of arcpro.b70 is installed here; site.yml does it"
        if self.needs_stack and not site.used_stacks:
            return "no complete stack is installed (see the check stacks)"
        if self.needs_stack and not site.environments:
            return "every stack that is used is a container image"
        return ""
