# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part in a group of nodes: what it reports about itself, and how it reacts to the others' reports.

`nodes` decides; this module looks and acts. It acts only on what it has just seen, so it may be killed at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import PurePosixPath

from ..decide.unit_checks import came_up
from ..do.phases import ALIVE_LIMIT_S
from ..face import api
from ..look import guards, strangers
from ..look.frontdoor import FrontdoorLink, read_state
from ..look.journal import read_memory
from ..look.node_link import ask, heard, mapping, read_part, weights_of
from ..look.observe import installed_profiles, load_profile, load_wanted, slot_units
from ..model import nodes, quarantine
from ..model.nodes import ENDED, REFUSED, RUNS, FollowerPart, Group, Node, NodeReport, Offer, Wish
from ..model.profile import Profile
from ..model.rendering import pending, put_in_place
from ..model.slot_file import read_slot_file
from ..model.state_file import stamp
from ..words.decode import document, plain
from ..words.effects import Effects, poll
from ..words.types import Fault, Layout, Request, SlotFault, UnitState

SETTLED_EVERY_S = 30.0
ALL_EVERY_S = 5.0  # the interval of looks at what is not urgent
GIVE_BACK_AFTER_S, GIVE_BACK_MOST_S = 60.0, 3600.0  # from one try to the next; twice as long each time
PATIENCE_S = 20.0  # a part that is told to stop may wait for nodes that are gone; it is killed after this time
END_LIMIT_S = 30.0
WHO = "b70-node"
SETTLES = "systemd"  # the caller of runs that settle an interrupted switch, in the journal


class NodeService:
    """Takes part in the group of this host, one look after the other.

    say: gets each action and its reason. key_file: the key of the group. aside: runs a task that takes minutes, while
    the looks go on.
    """

    def __init__(
        self,
        fx: Effects,
        layout: Layout,
        say: Callable[[str], object],
        key_file: PurePosixPath | None = None,
        aside: Callable[[Callable[[], None]], object] = lambda work: work(),
    ) -> None:
        self._fx, self._layout, self._say, self._aside = fx, layout, say, aside
        self._key_file = key_file or layout.node_key_file
        self._silent_since: dict[str, float] = {}
        self._answers: dict[str, NodeReport | str] = {}
        self._asked_all_at: float | None = None
        self._offers: dict[str, Offer] = {}
        self._offers_at: float | None = None
        self._profiles: dict[str, tuple[object, Profile]] = {}  # each with the times of the files it was read from
        self._settled: tuple[float, bool] | None = None  # when that was last found out, and the result
        self._part_at = fx.clock.monotonic()  # the last change of the part
        self._giving_back = False
        self._give_back_at, self._give_back_after_s = 0.0, GIVE_BACK_AFTER_S
        self._told = ""
        self.busy = ""  # the task that holds up the next look

    def look(self) -> NodeReport | None:
        """Look once and act on it. Return the report of this node; None if it is in no group."""
        fx, layout = self._fx, self._layout
        group = read_slot_file(fx, layout).nodes
        if group is None:
            self._end_part("the host left its group")
            return None
        at, wishes = fx.clock.now().timestamp(), [] if group.rank else self._wishes()
        self._ask(group, group.followers(max((wish.count for wish, _unit in wishes), default=1)))
        wish = self._lead(group, wishes) if not group.rank else None
        if group.rank:
            self._follow(group, self._answers[group.leader.name])
        report = NodeReport(
            name=group.own.name,
            at=at,
            hosts=tuple(node.name for node in group.hosts),
            wish=wish,
            part=read_part(fx, layout),
            offers=self._offered(),
            settled=not group.rank and not wishes and self._is_settled(),
            hears=tuple(heard(self._answers)),
        )
        self._tell(report)
        return report

    def _ask(self, group: Group, followers: Sequence[Node]) -> None:
        """Ask the nodes that matter now, and all from time to time. Remember since when each has been silent."""
        now = self._fx.clock.monotonic()
        needed = [group.leader] if group.rank else list(followers)
        if self._asked_all_at is None or now - self._asked_all_at >= ALL_EVERY_S:
            self._asked_all_at, needed = now, list(group.others)
        known = {name: self._answers.get(name) for name in (node.name for node in group.others)}
        answers = {name: answer for name, answer in known.items() if answer is not None}
        self._answers = answers | ask(self._fx, self._key_file, group, needed)
        now = self._fx.clock.monotonic()
        silent = {name for name, answer in self._answers.items() if isinstance(answer, str)}
        self._silent_since = {name: self._silent_since.get(name, now) for name in silent}

    def _silence(self, name: str) -> float:
        """Return the seconds of silence; above 0 for a silent node."""
        since = self._silent_since.get(name)
        return 0.0 if since is None else max(0.001, self._fx.clock.monotonic() - since)

    def _offered(self) -> Mapping[str, Offer]:
        """Return the host's own versions of the profiles over several nodes, read again from time to time."""
        now = self._fx.clock.monotonic()
        if self._offers_at is None or now - self._offers_at >= ALL_EVERY_S:
            self._offers_at, self._offers = now, {}
            for name in installed_profiles(self._fx, self._layout):
                with suppress(SlotFault, OSError):
                    profile = self._known(name)
                    if profile.node is not None:
                        lacks = self._at_work_words() or self._lacks(profile)
                        self._offers[name] = Offer(profile.fingerprint, lacks, weights_of(self._fx, profile))
        return self._offers

    def _known(self, name: str) -> Profile:
        """Return the profile as a switch would take it, read again only if its files have changed.

        A host has dozens of profiles.
        """
        paths = (self._layout.profile_json(name), self._layout.pending(name))
        times = tuple(self._fx.files.modified(path) for path in paths)
        known = self._profiles.get(name)
        if known is None or known[0] != times:
            known = self._profiles[name] = (times, load_wanted(self._fx, self._layout, name))
        return known[1]

    def _lacks(self, profile: Profile) -> str:
        held = quarantine.read(self._fx, self._layout)
        return held.describe() if held is not None else guards.for_part(self._fx, self._layout, profile)

    def _at_work_words(self) -> str:
        note = api.at_work(self._fx, self._layout)
        return "" if note is None else f"its slot is at work: {note}"

    def _running(self) -> tuple[UnitState, ...]:
        return self._fx.units.running(self._layout.unit_prefix)

    @contextmanager
    def _announced(self, words: str) -> Iterator[None]:
        self.busy = words
        try:
            yield
        finally:
            self.busy = ""

    def _tell(self, report: NodeReport) -> None:
        """Write what `b70ctl status` shows, if it has changed."""
        answers = self._answers
        own, *others = (
            plain(replace(said, at=0.0, age=0.0)) if isinstance(said, NodeReport) else said
            for said in (report, *answers.values())
        )
        text = json.dumps({"own": own, "others": dict(zip(answers, others, strict=True))})
        if text != self._told:
            with suppress(OSError):
                self._fx.files.write(self._layout.node_file, text)
                self._told = text

    # --- the leader

    def _wishes(self) -> list[tuple[Wish, UnitState]]:
        """Return what the engines of this host need from other nodes, with their units."""
        found = []
        for unit in self._running():
            with suppress(SlotFault, OSError):
                wish = nodes.wish_of(load_profile(self._fx, self._layout, self._layout.profile_of(unit.name)), unit)
                if wish is not None:
                    found.append((wish, unit))
        return found

    def _lead(self, group: Group, wishes: Sequence[tuple[Wish, UnitState]]) -> Wish | None:
        """Stop an engine that lost a part. Return what the followers are to run."""
        reports = heard(self._answers)
        silence = {node.name: self._silence(node.name) for node in group.others if self._silence(node.name)}
        for wish, unit in wishes:
            why = nodes.lost(group, wish, reports, silence) if unit.settled else ""
            if not why:
                self._tell_wait(group, wish, unit, reports)
                return wish
            self._say(f"{unit.name} is stopped because {why}")
            # Nothing can rejoin the process group. systemd starts a new engine, which waits for all nodes.
            self._fx.units.kill(unit.name)
            self._close(nodes.for_clients(why))
        return None

    def _is_settled(self) -> bool:
        """Return whether no engine over several nodes is served, starts or is to start again.

        The enabled units and the journal are read from time to time: only a switch changes them.
        """
        if self._at_work() or any(self._spans_nodes(unit.name) for unit in self._running()):
            self._settled = None
            return False
        now = self._fx.clock.monotonic()
        if self._settled is None or now - self._settled[0] >= SETTLED_EVERY_S:
            enabled = [unit for unit in self._fx.units.survey(self._layout.unit_prefix, ()) if unit.enabled]
            begun = read_memory(self._fx, self._layout).interrupted is not None
            self._settled = (now, not begun and not any(self._spans_nodes(unit.name) for unit in enabled))
        return self._settled[1]

    def _spans_nodes(self, unit: str) -> bool:
        try:
            return load_profile(self._fx, self._layout, self._layout.profile_of(unit)).node is not None
        except (SlotFault, OSError):
            return True  # it can't be ruled out

    def _tell_wait(self, group: Group, wish: Wish, unit: UnitState, reports: Mapping[str, NodeReport]) -> None:
        """Tell clients which node the engine waits for, if nothing has told them since the boot."""
        if unit.settled or read_state(self._fx, self._layout) is not None:
            return
        waits = nodes.awaited(group, wish, reports, urgent=False)
        if waits:
            self._close(f"{wish.profile} waits for {waits.partition(',')[0]}; it is served when all nodes are there")

    def _close(self, why: str) -> None:
        """Write the reason, unless the slot engine is at work. The frontdoor closes when the process ends."""
        if self._at_work():
            return
        with suppress(Fault, OSError), self._fx.locks.hold(self._layout.lock_file, f"{WHO}: a node is lost", 0.0):
            self._publish("failed", why)

    def _at_work(self) -> bool:
        return api.at_work(self._fx, self._layout) is not None

    def _publish(self, phase: str, reason: str) -> None:
        link = FrontdoorLink(self._fx, self._layout)
        state = link.current()
        if state is None or (state.phase, state.reason) != (phase, reason):
            link.publish({"phase": phase, "reason": reason})

    # --- a follower

    def _follow(self, group: Group, leader: NodeReport | str) -> None:
        part, wish = read_part(self._fx, self._layout), leader.wish if isinstance(leader, NodeReport) else None
        running = {unit.name: unit for unit in self._running()}
        theirs = None if part is None else running.get(self._layout.unit(part.profile))
        if part is not None and part.state == RUNS and (theirs is None or not theirs.settled):
            unit = self._fx.units.show([self._layout.unit(part.profile)])[0]
            part = self._keep(replace(part, state=ENDED, reason=f"{unit.name} is {unit.describe()}"))
            with suppress(Fault, OSError):
                self._publish("stopped", f"its part of {part.profile}, which {group.leader.name} leads, has ended")
        act = nodes.follow(
            wish,
            self._silence(group.leader.name),
            part,
            part_runs=theirs is not None,
            rank=group.rank,
            part_age_s=self._fx.clock.monotonic() - self._part_at,
        )
        if act.stop:
            with self._announced(f"it ends its part of {'an engine' if part is None else part.profile}"):
                self._end_part(act.stop)
        elif act.start is not None:
            with self._announced(f"it begins its part of {act.start.profile}"):
                self._begin(group, act.start)
        elif isinstance(leader, NodeReport) and (leader.settled or (wish is not None and group.rank >= wish.count)):
            self._give_back(running)

    def _keep(self, part: FollowerPart) -> FollowerPart:
        self._say(f"the part of {part.profile} {part.state}{': ' * bool(part.reason)}{part.reason}")
        self._part_at = self._fx.clock.monotonic()
        self._fx.files.write(self._layout.part_file, document(part, nodes.SCHEMA))
        return part

    def _end_part(self, why: str) -> None:
        """Stop the part that runs, and forget it."""
        part = read_part(self._fx, self._layout)
        if part is None:
            return
        name = self._layout.unit(part.profile)
        if self._fx.units.show([name])[0].running:
            self._say(f"{name} is stopped: {why}")
            self._fx.units.stop(name)
            if not self._is_down(name, PATIENCE_S):
                self._fx.units.kill(name)
                if not self._is_down(name, END_LIMIT_S):
                    self._say(f"{name} still runs {PATIENCE_S + END_LIMIT_S:.0f} s after it was told to stop")
                    return
        self._fx.files.remove(self._layout.part_file)
        with suppress(Fault, OSError):
            self._publish("stopped", "")

    def _is_down(self, name: str, limit_s: float) -> bool:
        for _waited in poll(self._fx.clock, limit_s, 0.2):
            unit = self._fx.units.show([name])[0]
            if unit.active == "failed":
                self._fx.units.forget_failure(name)
            if not unit.running:
                return True
        return False

    def _begin(self, group: Group, wish: Wish) -> None:
        """Run a part of the leader's engine, or report why it can't run."""
        try:
            profile = load_wanted(self._fx, self._layout, wish.profile)
            if profile.node is None or profile.node.rank != group.rank or profile.fingerprint != wish.fingerprint:
                raise SlotFault(f"this node has another {wish.profile} than {group.leader.name}; run site.yml for both")
            lacks = self._lacks(profile)
            if lacks:
                raise SlotFault(lacks)
            self._clear(profile)
            self._start(profile)
        except (SlotFault, OSError) as fault:
            self._keep(FollowerPart(wish.profile, wish.epoch, REFUSED, str(fault)))
            return
        self._keep(FollowerPart(wish.profile, wish.epoch, RUNS))
        with suppress(Fault, OSError):
            words = f"part of {wish.profile}, led by {group.leader.name} (node {group.rank} of {wish.count})"
            self._publish("stopped", words)

    def _clear(self, profile: Profile) -> None:
        """Stop the slot's own engine, as `b70ctl stop` does, and remember its profile."""
        units = sorted(slot_units(self._fx, self._layout)[0], key=attrgetter("asleep"))
        own = [unit.name for unit in units if (unit.at_work or unit.enabled) and unit.name != profile.unit]
        if not own:
            return
        before = self._layout.profile_of(own[0])
        self._fx.files.write(self._layout.before_file, json.dumps({"profile": before}))
        result = self._switch(Request(active=False, why=f"the slot takes part in {profile.name}"))
        if result["failed"]:
            raise SlotFault(f"{before} could not be stopped: {result['msg']}")

    def _give_back(self, running: Mapping[str, UnitState]) -> None:
        """Serve what the slot served before it became part of an engine, unless another profile was chosen since."""
        before = mapping(self._fx.files.read(self._layout.before_file)).get("profile")
        if not before or self._giving_back or self._fx.clock.monotonic() < self._give_back_at or self._at_work():
            return
        if running or self._was_decided():
            self._fx.files.remove(self._layout.before_file)
            return
        self._giving_back = True
        self._aside(lambda: self._serve_again(str(before)))

    def _was_decided(self) -> bool:
        """Return whether another caller has switched the slot since it became part of an engine."""
        last = next(reversed(read_memory(self._fx, self._layout).attempts), None)
        return last is not None and last.who not in (WHO, SETTLES)

    def _serve_again(self, before: str) -> None:
        why = "the slot is no longer part of another node's engine"
        try:
            if not self._switch(Request(profile=before, why=why))["failed"]:
                self._fx.files.remove(self._layout.before_file)
                self._give_back_after_s = GIVE_BACK_AFTER_S
                return
            self._say(f"{before} is started again in {self._give_back_after_s:.0f} s")
        except (Fault, OSError) as fault:
            self._say(f"{before} could not be served again: {fault}")
        finally:
            self._giving_back = False
        self._give_back_at = self._fx.clock.monotonic() + self._give_back_after_s
        self._give_back_after_s = min(GIVE_BACK_MOST_S, 2 * self._give_back_after_s)

    def _switch(self, request: Request) -> Mapping[str, object]:
        number = api.new_switch_id(stamp(self._fx.clock.now()))
        request = replace(request, slot=self._layout.slot, switch_id=number, who=WHO, lock_timeout_s=END_LIMIT_S)
        result = api.switch(self._fx, self._layout, request)
        self._say(str(result["msg"]))
        return result

    def _start(self, profile: Profile) -> None:
        fx, layout = self._fx, self._layout
        with fx.locks.hold(layout.lock_file, f"{WHO}: a part of {profile.name}", END_LIMIT_S):
            strangers.check_cards(fx, profile, ())
            new = pending(fx.files, layout, profile.name)
            if new is not None:
                put_in_place(fx, layout, new)
            fx.units.start(profile.unit)
            for _waited in poll(fx.clock, ALIVE_LIMIT_S, 0.2):
                if came_up(fx.units.show([profile.unit])[0], 0):
                    return
        raise SlotFault(f"{profile.unit} did not come up within {ALIVE_LIMIT_S:g} s")
