# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the profile that a host serves, and of its stacks. Pure: plain data in, plain data out."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._catalogue.checking import PER_CARD, cards_needed
from .._catalogue.places import weights_path
from .._catalogue.problems import did_you_mean
from .._catalogue.stacks import stack_id
from .._slots import SlotPlace
from .._stacks import planning

# Best first.
STATUSES = ("production", "baseline", "candidate", "research", "experiment", "blocked", "rejected")
REFUSED = ("rejected", "blocked")

Profile = Mapping[str, Any]
Stacks = Mapping[str, Mapping[str, Any]]


def counted(cards: int) -> str:
    """Return a number of cards in words."""
    return {0: "no card", 1: "1 card"}.get(cards, f"{cards} cards")


def replicas(profile: Profile) -> str:
    """Return in words how many replicas a profile has; empty for one."""
    count = profile["replicas"]
    if count == PER_CARD:
        return f" for each replica, as many as there are ({PER_CARD})"
    return f" for {count} replicas" if count > 1 else ""


def against_profile(profile: Profile, refused: Sequence[str] = REFUSED) -> list[str]:
    """Return why the status of a profile forbids serving it on any host; empty if it does not."""
    if profile["status"] not in refused:
        return []
    return [f"{profile['name']} is {profile['status']}: {' '.join(profile['status_reason'].split())}"]


def against_cards(profile: Profile, cards: int, *, others: int = 0, dealt: bool = False) -> list[str]:
    """Return why a profile cannot run on this number of cards; empty if it can.

    :param others: how many cards of other models are counted with them.
    :param dealt: whether the slot decides which cards they are.
    """
    last, needed = max(profile["engine"]["devices"] or [-1]), cards_needed(profile)
    if needed > cards:
        return [f"{profile['name']} needs {counted(needed)}{replicas(profile)}, this host has {counted(cards)}."]
    if profile["cards"] and last >= cards + others and not dealt:
        there = f"the last one of this host is card {cards + others - 1}"
        return [f"{profile['name']} uses card {last} (engine.devices), {there}."]
    return []


def against_models(profile: Profile, others: Sequence[Mapping[str, Any]], *, dealt: bool = False) -> list[str]:
    """Return a sentence for each card of another model that a profile would use.

    :param others: the cards of the host that are no B70; of the slot, if that decides.
    """
    named = [card for card in others if dealt or card["number"] in (profile["engine"]["devices"] or [])]
    where = "b70_slots" if dealt else "engine.devices"
    return [
        f"{profile['name']} would use card {card['number']} ({where}), which is an {card['model']} at "
        f"{card['address']}: name B70 cards only."
        for card in named
        if profile["cards"]
    ]


def against_nodes(profile: Profile, nodes: int) -> list[str]:
    """Return why a profile cannot run on a host in a group of so many nodes; empty if it can."""
    if profile["nodes"] <= nodes:
        return []
    group = f"the group of this host has {nodes}" if nodes > 1 else "this host is in no group"
    return [f"{profile['name']} needs {profile['nodes']} nodes, and {group} (b70_nodes)."]


@dataclass(frozen=True)
class Here:
    """One host: what decides which profiles it can serve."""

    stacks: Stacks
    host: Mapping[str, Any]  # what b70_host_info returned, with the slot
    stack_root: str
    models_dir: str
    refused: Sequence[str] = REFUSED
    dealt: bool = False  # the cards are those of one of several slots
    nodes: int = 1  # how many hosts its group has

    def of_slot(self, place: SlotPlace | None) -> Here:
        """Return the host as a slot with these cards sees it."""
        if place is None or place.cards is None:
            return self
        cards = {card.get("number", index): card for index, card in enumerate(self.host["cards"])}
        own = {
            "cards": [cards[number] for number in place.cards if number in cards],
            "other_cards": [card for card in self._others if card["number"] in place.cards],
        }
        return dataclasses.replace(self, host={**self.host, **own}, dealt=True)

    @property
    def _others(self) -> Sequence[Mapping[str, Any]]:
        return self.host.get("other_cards") or []

    def against(self, profile: Profile) -> list[str]:
        """Return why the host cannot serve a profile; empty if it can."""
        count = len(self.host["cards"])
        cards = against_models(profile, self._others, dealt=self.dealt)
        cards += against_cards(profile, count, others=len(self._others), dealt=self.dealt)
        by_profile = [*against_profile(profile, self.refused), *against_nodes(profile, self.nodes), *cards]
        return [*self.host["problems"], *by_profile, *self.against_stack(profile["stack"]), *self._space(profile)]

    def against_stack(self, name: str) -> list[str]:
        """Return why a stack cannot be installed on the host; empty if it can, or already is."""
        known = stack_id(self.stacks[name])
        if any(item["id"] == known and item["complete"] for item in self.host["stacks"]):
            return []
        return planning.problems(self.stacks[name], self.host, self.stack_root)

    def _space(self, profile: Profile) -> list[str]:
        path, size = weights_path(profile, self.models_dir), profile["model"]["size_gb"]
        there, by_hand = (self.host["paths"].get(one) for one in (path, path.rpartition("@")[0]))
        if not size or there is None or there["exists"] or there["free_mib"] * 2**20 >= size * 1e9:
            return []
        if by_hand is not None and by_hand["exists"]:
            return []
        free = there["free_mib"] * 2**20 / 1e9
        text = f"The weights of {profile['name']} take {size:g} GB, and {free:.0f} GB are free for {path}"
        return [f"{text}: free some, or set host_data_dir to a larger disk."]


def nearest(wanted: Profile, others: Iterable[Profile]) -> Profile | None:
    """Return the profile that resembles the wanted one most: same weights, then similar model, then better status."""

    def likeness(other: Profile) -> tuple[Any, ...]:
        ours, theirs = (str(item["model"]["hf_repo"] or item["name"]).lower() for item in (wanted, other))
        return (
            wanted["model"]["hf_repo"] is not None and wanted["model"]["hf_repo"] == other["model"]["hf_repo"],
            wanted["engine"]["task"] == other["engine"]["task"],
            set(wanted["modalities"]) <= set(other["modalities"]),
            round(difflib.SequenceMatcher(None, ours, theirs).ratio(), 1),
            -STATUSES.index(other["status"]),
            other["cards"],
            other["name"],
        )

    return max((other for other in others if other["name"] != wanted["name"]), key=likeness, default=None)


def recommended(profiles: Iterable[Profile], cards: int) -> list[Profile]:
    """Return the profiles that are recommended for a number of cards, best first.

    Those for exactly this number precede those for fewer. A host with cards never gets one that needs none.
    """
    ranked = []
    for profile in profiles:
        counts = (profile["recommended"] or {}).get("cards", [])
        fitting = [count for count in counts if count <= cards and bool(count) == bool(cards)]
        if fitting:
            ranked.append((-max(fitting), STATUSES.index(profile["status"]), profile["name"], profile))
    return [item[-1] for item in sorted(ranked, key=lambda item: item[:-1])]


def choose(
    profiles: Mapping[str, Profile],
    here: Here,
    requested: str = "",
    default: str = "",
    slots: Mapping[str, SlotPlace] | None = None,
    only: str = "main",
) -> dict[str, Any]:
    """Return `profile` (or ""), `reason`, `stacks` (names), `compiles`, `cards`, `notes` and `problems` for a host.

    The profile that the slot serves, or served last, stays unless another one is `requested`. An empty slot gets
    `default`, else what is recommended for its cards. Of several `slots`, this is about the slot main, but `stacks`
    also has those of the profiles that the others name. `slots` lists all: `name`, what is `requested`, and `initial`
    for an empty one; without several it is the `only` one. A request for what runs or boots now is never refused. If
    there are `problems`, nothing may be changed, and `advice` says what to do.
    """
    whole, places = here, dict(slots or {})
    here = whole.of_slot(places.pop("main", None))
    others = {name: place for name, place in places.items() if place.profile}
    cards = len(here.host["cards"])
    slot = here.host["slot"] or {"profile": None, "profiles": []}
    present = {item["name"] for item in slot["profiles"]}
    stays = (requested if requested in present else "") if requested else slot["profile"] or ""
    if requested:
        name, reason = requested, "it was asked for"
    elif stays:
        name, reason = stays, "the slot serves it, or served it last; -e profile=NAME serves another"
    elif default:
        name, reason = default, "the slot is empty, and b70_profile in the inventory names it"
    else:
        name, reason = _recommendation(profiles.values(), here, cards)
    taken = "" if stays else name
    problems = here.against(profiles[taken]) if taken else []
    for other, place in others.items():
        if place.profile not in profiles:
            near = did_you_mean(place.profile, profiles)
            problems.append(f'b70_slots.{other}: there is no profile "{place.profile}"{near}.')
            continue
        problems += [f"b70_slots.{other}: {text}" for text in whole.of_slot(place).against(profiles[place.profile])]
    problems += _shared(profiles, taken, slots or {}, others)
    beside = [place.profile for place in others.values() if place.profile in profiles]
    stacks, notes = _stacks(profiles, here, [*([taken] if taken else []), *beside], slot["profiles"])
    return {
        "profile": name,
        "profiles": [*([name] if name else []), *beside],
        # The slot main comes last, because what it is asked for is what a play ends with.
        "slots": [
            *({"name": other, "requested": "", "initial": place.profile} for other, place in places.items()),
            {"name": "main" if slots else only, "requested": requested, "initial": name},
        ],
        "reason": reason,
        "stacks": stacks,
        "compiles": any(here.stacks[stack].get("oneapi") for stack in stacks),
        "cards": cards,
        "notes": notes,
        "problems": problems,
        "advice": _advice(profiles[taken], profiles.values(), here, cards) if problems and taken else "",
    }


def _shared(
    profiles: Mapping[str, Profile], taken: str, slots: Mapping[str, SlotPlace], others: Mapping[str, SlotPlace]
) -> list[str]:
    """Return a sentence for each two profiles of empty slots that would use the same card."""
    wanted = {"main": taken, **{name: place.profile for name, place in others.items()}}
    used = {
        name: (slots[name].cards or ())[: cards_needed(profiles[profile])]
        for name, profile in wanted.items()
        if name in slots and profile in profiles
    }
    return [
        f"b70_slots: {wanted[one]} in {one} and {wanted[other]} in {other} both use card {min(both)}; one slot at a "
        "time has a card, so leave the profile of one of them out."
        for one, other in itertools.combinations(used, 2)
        if (both := {*used[one]} & {*used[other]})
    ]


def _recommendation(profiles: Iterable[Profile], here: Here, cards: int) -> tuple[str, str]:
    """Return the profile for an empty slot if nobody chose one, and the reason."""
    lists = f"ansible-playbook arcpro.b70.show_models -e cards={cards}"
    instead = f"-e profile=NAME, or b70_profile in the inventory; {lists} lists all"
    hindered: list[str] = []
    for profile in recommended(profiles, cards):
        against = here.against(profile)
        if not against:
            reason = " ".join(profile["recommended"]["reason"].split())
            why = f"nobody chose, and it is recommended for {counted(cards)}: {reason}"
            return profile["name"], f"{why} To choose another: {instead}"
        hindered += against
    why = "can be served here" if hindered else "is in the catalogue"
    said = f"nothing that is recommended for {counted(cards)} {why}; choose with {instead}."
    return "", " ".join([said, *hindered]).rstrip(".")


def _stacks(
    profiles: Mapping[str, Profile], here: Here, taken: Iterable[str], present: Iterable[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return the stacks of the new profiles and of those that run or boot now, and a note for each that is left out."""
    needed: list[str] = list(dict.fromkeys(profiles[name]["stack"] for name in taken))
    notes: list[str] = []
    for item in present:
        stack = profiles[item["name"]]["stack"] if item["name"] in profiles else item["stack"]
        if stack in needed or stack not in here.stacks:
            continue
        lacking = here.against_stack(stack)
        if lacking:
            notes.append(f"{item['name']} keeps the stack that it runs on ({item['stack_id']}): {' '.join(lacking)}")
        else:
            needed.append(stack)
    return needed, notes


def _advice(wanted: Profile, profiles: Iterable[Profile], here: Here, cards: int) -> str:
    near = nearest(wanted, [profile for profile in profiles if not here.against(profile)])
    models = f"ansible-playbook arcpro.b70.show_models -e cards={cards}"
    if near is None:
        return f"No profile of the catalogue can be served here; {models} says why."
    every = f"{models} lists all that {counted(cards)} can serve"
    return f"Nearest that can be served here: {near['name']} ({near['title']}); {every}."
