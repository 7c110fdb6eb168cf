# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which host downloads a model and which hosts take it from others, from what all hosts found. Pure.

Hosts take a model in rounds. In each round, as many hosts take it as already have it: 32 hosts need five rounds, and no
host gives more than about one copy at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Rounds beyond those that are needed if nothing fails.
SPARE_ROUNDS = 1
_TAKERS_OF_A_SOURCE = 1

Record = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Copy:
    """One wanted model on one host.

    :param name: the model's directory there.
    :param has: it is complete. Without a record nobody knows what it is, so nobody takes it.
    :param record: its files with size and SHA-256.
    :param downloaded: it came from the source outside in this play, so its record is the truth.
    :param wrong: a host got wrong bytes from here.
    :param running: a download is under way.
    :param begun: bytes that an interrupted download left.
    :param failed: an earlier round could not bring it.
    """

    host: str
    name: str
    has: bool = False
    record: Record | None = None
    downloaded: bool = False
    wrong: bool = False
    running: bool = False
    begun: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Turn:
    """One round of one model. The first taker goes to the source outside if no host gives it the model.

    :param sources: the copies to take from; all have the same record.
    :param conflict: hosts whose records differ, so that none of them is a source.
    """

    sources: tuple[Copy, ...]
    takers: tuple[Copy, ...]
    waiting: tuple[Copy, ...]
    conflict: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        """Return what the takers must get."""
        return self.sources[0].record or {}


def turn(copies: Sequence[Copy]) -> Turn:
    """Return the next round of a model; ``copies`` are in the order of the play."""
    able = [copy for copy in copies if copy.has and copy.record and not copy.wrong]
    told = [copy for copy in able if copy.downloaded] or able
    sources = tuple(copy for copy in able if told and copy.record == told[0].record)
    conflict: tuple[str, ...] = ()
    if any(copy.record != told[0].record for copy in told):
        sources, conflict = (), tuple(copy.host for copy in told)
    lacking = [copy for copy in copies if not copy.has]
    lacking.sort(key=lambda copy: (copy.failed, not copy.running, -copy.begun))
    count = max(1, len(sources) * _TAKERS_OF_A_SOURCE)
    return Turn(sources, tuple(lacking[:count]), tuple(lacking[count:]), conflict)


def rounds(copies: Sequence[Copy]) -> list[Turn]:
    """Return all rounds of a model, if nothing fails; none if hosts have nothing to take from each other."""
    found: list[Turn] = []
    left = list(copies)
    while (now := turn(left)).takers:
        found.append(now)
        takers = {copy.host for copy in now.takers}
        record = now.record if now.sources else {"": []}
        fresh = not now.sources
        left = [
            replace(copy, has=True, record=record, downloaded=fresh, wrong=False) if copy.host in takers else copy
            for copy in left
        ]
    return found if any(one.sources for one in found) else []


def key_of(identity: Mapping[str, Any], recorded: str, pinned: str) -> str:
    """Return the key of a model, which is the same on all hosts.

    If nobody names a revision, it is the pinned one, else that of the host's own record.
    """
    revision = identity.get("revision") or pinned or recorded
    return json.dumps({**identity, **({"revision": revision} if identity["kind"] == "hub" else {})}, sort_keys=True)


def copies_of(found: Mapping[str, Mapping[str, Mapping[str, Any]]], pinned: Mapping[str, str]) -> dict[str, list[Copy]]:
    """Return the copies of each model by its key.

    ``found`` is what every host registered: by host and name, the ``identity``, the ``revision`` of its record and what
    a `Copy` has; ``wrong_hosts`` are those that gave it wrong.
    """
    copies: dict[str, list[Copy]] = {}
    wrong: dict[str, set[str]] = {}
    for host, models in found.items():
        for name, model in models.items():
            pin = pinned.get(str(model["identity"].get("repository")), "")
            key = key_of(model["identity"], str(model.get("revision") or ""), pin)
            kept = ("has", "record", "downloaded", "running", "begun", "failed")
            copy = Copy(host, name, **{word: model[word] for word in kept if word in model})
            copies.setdefault(key, []).append(copy)
            wrong.setdefault(key, set()).update(model.get("wrong_hosts", ()))
    return {key: [replace(copy, wrong=copy.host in wrong[key]) for copy in held] for key, held in copies.items()}


def lookup(copies: Mapping[str, Sequence[Copy]], host: str) -> dict[str, list[Copy]]:
    """Return the copies of each model that a host wants, by the name it has there."""
    return {copy.name: list(held) for held in copies.values() for copy in held if copy.host == host}


@dataclass(frozen=True)
class TransferPart:
    """One host's part in the transfers of a play.

    :param rounds: how many rounds all hosts go through; the same for every host.
    :param gives: names of models that it serves before the first round.
    :param serves: it serves at some time.
    :param takes: it takes something from other hosts.
    :param downloads: names of models that it gets from the source outside.
    :param sources: for each model that it takes, the hosts that have it then.
    """

    rounds: int
    gives: tuple[str, ...]
    serves: bool
    takes: bool
    downloads: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]


def part(copies: Mapping[str, Sequence[Copy]], host: str) -> TransferPart:
    """Return the part of a host."""
    plans = [rounds(held) for held in copies.values()]
    needed = max((len(plan) for plan in plans), default=0)
    sources, downloads, gives = {}, [], []
    serves = False
    for plan in plans:
        serves = serves or any(copy.host == host for one in plan for copy in one.sources)
        gives += [copy.name for one in plan[:1] for copy in one.sources if copy.host == host]
        for one in plan:
            for copy in one.takers:
                if copy.host == host and one.sources:
                    sources[copy.name] = tuple(source.host for source in one.sources)
                elif copy.host == host:
                    downloads.append(copy.name)
    for name, held in lookup(copies, host).items():
        if not rounds(held) and any(copy.host == host and not copy.has for copy in held):
            downloads.append(name)
    return TransferPart(
        rounds=needed + SPARE_ROUNDS if needed else 0,
        gives=tuple(gives),
        serves=serves,
        takes=bool(sources),
        downloads=tuple(downloads),
        sources=sources,
    )


def conflicts(copies: Mapping[str, Sequence[Copy]], host: str) -> list[str]:
    """Return one sentence for each model of a host whose records on several hosts differ."""
    said = []
    for name, held in lookup(copies, host).items():
        hosts = turn(held).conflict
        if host in hosts:
            said.append(
                f"{name} has other digests on {', '.join(hosts)}, although all record the same source. No host takes "
                "it from them. Compare them with model_weights_verify=checksum, and remove the wrong directory"
            )
    return said


def usable(sources: Sequence[Copy], urls: Mapping[str, str]) -> list[dict[str, str]]:
    """Return where a model can be taken from: hosts that serve, with the address of the model there."""
    return [{"host": copy.host, "url": f"{urls[copy.host]}/{copy.name}"} for copy in sources if copy.host in urls]
