# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine over several hosts: what each node reports about itself, and what follows from it. Pure.

The leader's engine decides. While its unit runs a process, or waits to start one, the leader wishes for parts of
exactly that process, which systemd names by its invocation id. A follower runs the part that the leader wishes for and
no other; a leader ends an engine that lost a part. So no node sends commands, or relies on what it was told before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words.decode import decode_document, document
from ..words.types import SlotFault, UnitState
from .network import Floor, LinkMeasurement
from .profile import NODES_LIMIT_S, Profile

SCHEMA = 1
LEADER_GRACE_S = 10.0  # a follower that is silent for this long is lost
FOLLOWER_GRACE_S = 30.0  # a leader that is silent for this long is lost; longer, so that the leader closes first
STALE_S = 10.0  # a node whose service has not looked for this long counts as silent, unless it announced a task
RETRY_S = 15.0  # a follower tries a refused or ended part again after this time, while the leader still waits
SKEW_S = 60.0  # if clocks differ by more, journals and evidence of the nodes can't be read together
MEASURE = "playbooks/evaluate.yml measures it"
RUNS, REFUSED, ENDED = "runs", "refused", "ended"


@dataclass(frozen=True)
class Node:
    name: str
    address: str


@dataclass(frozen=True)
class Group:
    """The nodes of the slot, the leader first.

    rank: the index of this host. interface: its network device to the others. floor: what the network must reach.
    """

    rank: int
    port: int
    hosts: tuple[Node, ...]
    floor: Floor = field(default_factory=Floor)
    interface: str = ""

    @property
    def leader(self) -> Node:
        return self.hosts[0]

    @property
    def own(self) -> Node:
        return self.hosts[self.rank]

    @property
    def others(self) -> tuple[Node, ...]:
        return tuple(node for node in self.hosts if node != self.own)

    @property
    def rendezvous_port(self) -> int:
        """The port on the leader where the parts of an engine meet."""
        return self.port + 1

    def followers(self, count: int) -> tuple[Node, ...]:
        """Return the followers of an engine over this many nodes."""
        return self.hosts[1:count]

    def url(self, node: Node) -> str:
        address = f"[{node.address}]" if ":" in node.address else node.address
        return f"http://{address}:{self.port}"


@dataclass(frozen=True)
class Wish:
    """The engine process whose parts a leader wants its followers to run.

    epoch: the invocation id of its engine's unit. waits: the engine itself has not started yet.
    """

    profile: str
    fingerprint: str
    count: int
    epoch: str
    waits: bool = False


@dataclass(frozen=True)
class FollowerPart:
    """The answer of a follower to a wish: the part runs, was refused, or has ended, and why."""

    profile: str
    epoch: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Offer:
    """A host's version of a profile over several nodes.

    lacks: what is missing for a start; empty: nothing. weights: a digest of its weights; empty: they have no record.
    """

    fingerprint: str
    lacks: str = ""
    weights: str = ""


@dataclass(frozen=True)
class NodeReport:
    """The report of a node.

    at: its last look, in seconds since the epoch by its clock. age: seconds from that look to this answer. busy: the
    task that holds up the next look. settled: of a leader; no unit of a profile over several nodes runs, waits or is
    enabled, and no switch is under way. hears: the other nodes that answer it.
    """

    name: str
    at: float
    hosts: tuple[str, ...] = ()
    wish: Wish | None = None
    part: FollowerPart | None = None
    offers: Mapping[str, Offer] = field(default_factory=dict)
    settled: bool = False
    hears: tuple[str, ...] = ()
    age: float = 0.0
    busy: str = ""

    @property
    def stale(self) -> bool:
        """Return whether its service has stopped looking."""
        return self.age > (NODES_LIMIT_S if self.busy else STALE_S)

    def to_json(self) -> str:
        return document(self, SCHEMA)


def parse_report(text: str, where: str) -> NodeReport:
    """Return the report in the answer of the node `where`. Raise SlotFault if the answer is not a report."""
    return decode_document(NodeReport, text, f"the report of {where}", SCHEMA, "run site.yml for both")


def wish_of(profile: Profile, unit: UnitState) -> Wish | None:
    """Return what this unit's engine needs from other nodes while it runs, or while it waits for them; else None."""
    node = profile.node
    waits = unit.active == "activating" and unit.sub.startswith("start")
    if node is None or node.rank or not unit.invocation_id or not (waits or unit.settled):
        return None
    return Wish(profile.name, profile.fingerprint, node.count, unit.invocation_id, waits=not unit.settled)


@dataclass(frozen=True)
class Act:
    """The next step of a follower. start: the wish to serve. stop: why the slot's engine is stopped. Neither:
    nothing."""

    start: Wish | None = None
    stop: str = ""


def follow(
    wish: Wish | None,
    silence_s: float,
    part: FollowerPart | None,
    *,
    part_runs: bool,
    rank: int,
    part_age_s: float = 0.0,
) -> Act:
    """Return how a follower reacts to the leader's wish.

    silence_s: how long the leader has not answered; 0 while it does. part: what this host did last, on this boot.
    part_runs: whether a unit of a part runs. part_age_s: seconds since the last change of the part.
    """
    if silence_s:
        lost = part_runs and silence_s >= FOLLOWER_GRACE_S
        return Act(stop=f"the leader has not answered for {silence_s:.0f} s") if lost else Act()
    if wish is None or rank >= wish.count:
        return Act(stop="the leader needs no part of an engine") if part_runs else Act()
    if part is not None and part.epoch == wish.epoch:
        # An engine that still waits has no process that could have met the failed part.
        again = part.state != RUNS and not part_runs and wish.waits and part_age_s >= RETRY_S
        return Act(start=wish) if again else Act()
    # A part of an earlier engine can't join this one.
    return Act(stop="the leader restarts its engine") if part_runs else Act(start=wish)


def lost(group: Group, wish: Wish, reports: Mapping[str, NodeReport], silence_s: Mapping[str, float]) -> str:
    """Return why a running engine can't go on; empty while it can. silence_s: of each node that does not answer."""
    for node in group.followers(wish.count):
        silent, report = silence_s.get(node.name, 0.0), reports.get(node.name)
        if silent >= LEADER_GRACE_S:
            return f"node {node.name} has not answered for {silent:.0f} s"
        if report is None:
            continue
        part = report.part
        if part is not None and part.epoch == wish.epoch and part.state == RUNS:
            continue
        why = "it runs no part of this engine" if part is None or part.epoch != wish.epoch else part.reason
        return f"node {node.name} is gone from the engine: {why}"
    return ""


def for_clients(why: str) -> str:
    """Return the reason for clients after a node was lost. It only names the node."""
    return f"{why.partition(':')[0]}; the model is served again when all nodes are back"


def awaited(group: Group, wish: Wish, reports: Mapping[str, NodeReport], *, urgent: bool) -> str:
    """Return the node that an engine still waits for before its start, and why; empty if there is none.

    urgent: a switch waits and would rather go back, so raise SlotFault if a node has refused.
    """
    waits = ""
    for node in group.followers(wish.count):
        part = None if node.name not in reports else reports[node.name].part
        if part is None or part.epoch != wish.epoch:
            waits = waits or f"node {node.name}"
        elif part.state != RUNS:
            why = f"node {node.name}, which runs no part of {wish.profile}: {part.reason}"
            if urgent:
                raise SlotFault(why.replace(", which", "", 1))
            waits = why
    return waits


def check_others(
    group: Group, profile: Profile, reports: Mapping[str, NodeReport | str], now: float, weights: str = ""
) -> None:
    """Raise SlotFault for the first node that cannot take part.

    reports: by name; a text says why there is none. weights: the digest of the weights of this host.
    """
    count = 0 if profile.node is None else profile.node.count
    names = tuple(host.name for host in group.hosts)
    for node in group.followers(count):
        report = reports[node.name]
        where = f"node {node.name} ({node.address})"
        if isinstance(report, str):
            raise SlotFault(f"{where} of {profile.name} does not answer: {report}; its b70-node unit says why")
        if (report.name, report.hosts) != (node.name, names):
            raise SlotFault(
                f"{where} is in another group than this host (b70_nodes); run site.yml for all of them",
                expected=", ".join(names),
                got=f"{', '.join(report.hosts)}, and it is {report.name}",
            )
        offer = report.offers.get(profile.name)
        if offer is None:
            raise SlotFault(f"{where} does not have {profile.name}; run site.yml -e profile={profile.name} for it")
        if weights and offer.weights and weights != offer.weights:
            raise SlotFault(
                f"{where} has other weights of {profile.name}, by what is recorded of them; run site.yml for both",
                expected=weights,
                got=offer.weights,
            )
        if offer.fingerprint != profile.fingerprint:
            raise SlotFault(
                f"{where} has another {profile.name}: other settings, weights or stack; run site.yml for all nodes",
                expected=profile.fingerprint,
                got=offer.fingerprint,
            )
        if report.busy:
            raise SlotFault(f"{where} is at work: {report.busy}; wait for its end")
        if offer.lacks:
            raise SlotFault(f"{where} can't run its part of {profile.name}: {offer.lacks}")
        deaf = [other.name for other in group.hosts[:count] if other != node and other.name not in report.hears]
        if deaf:
            raise SlotFault(
                f"{where} does not hear node {deaf[0]}, with which its part of {profile.name} would speak; let both "
                "reach each other on that network"
            )
        if abs(report.at - now) > SKEW_S:
            raise SlotFault(f"the clock of {where} is {report.at - now:+.0f} s off; synchronise both clocks")


def check_network(group: Group, profile: Profile, links: Mapping[str, LinkMeasurement]) -> list[str]:
    """Return warnings about followers to which the network was not measured. Raise SlotFault if it is too slow to one.

    links: by name of the follower.
    """
    warnings = []
    for node in group.followers(0 if profile.node is None else profile.node.count) if group.floor else ():
        link, where = links.get(node.name), f"the network to node {node.name} ({node.address})"
        if link is None or link.between != (group.leader.address, node.address):
            warnings.append(f"{where} was not measured, so nothing says that it is fast enough; {MEASURE}")
        elif faults := link.faults(group.floor):
            raise SlotFault(
                f"{where} is too slow for {profile.name}. {'; '.join(faults)}; measured {link.at}. Repair it and "
                f"measure it again ({MEASURE}), or set the floor lower and run site.yml"
            )
    return warnings
