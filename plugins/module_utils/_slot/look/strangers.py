# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The others that use what an engine needs: the cards of its profile, and its port. Nobody is ended here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.profile import MASK, Profile
from ..words.effects import Effects, poll
from ..words.types import ExposedFault, Holder, SlotFault

PATIENCE_S = 3.0  # who only looks at a card is gone by then
_INTERVAL_S = 0.2


def nodes_of(profile: Profile, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the device files of the cards that the profile's engines may use.

    nodes: those of the host, in the order of their addresses, in which a mask counts. A mask that can't be understood,
    and none, leave out no card.
    """
    if profile.cards <= 0:
        return ()
    used = {number for single in profile.singles for number in _numbers(single, len(nodes))}
    return tuple(nodes[number] for number in sorted(used))


def _numbers(single: Profile, count: int) -> Sequence[int]:
    words = [word.strip().partition(".")[0] for word in single.engine.env.get(MASK, "").split(",")]
    if all(word.isdigit() and int(word) < count for word in words):
        return [int(word) for word in words]
    return range(count)


def cards_of(fx: Effects, profile: Profile) -> tuple[str, ...]:
    """Return the device files of this host's cards that the profile's engines may use."""
    return nodes_of(profile, fx.processes.render_nodes()) if profile.cards > 0 else ()


def addresses_of(fx: Effects, profile: Profile) -> dict[str, str]:
    """Return the PCI addresses of the cards by their device files; empty where the kernel does not tell one."""
    return {node: fx.processes.pci_address(node) for node in cards_of(fx, profile)}


def on_cards(fx: Effects, profile: Profile, ours: Collection[str]) -> tuple[Holder, ...]:
    """Return who holds a card of the profile and belongs to none of our units."""
    return tuple(holder for holder in fx.processes.device_holders(cards_of(fx, profile)) if holder.unit not in ours)


def staying(fx: Effects, profile: Profile, ours: Collection[str]) -> tuple[Holder, ...]:
    """Return the strangers on the profile's cards that still hold one after a short wait."""
    found: tuple[Holder, ...] = ()
    for _waited in poll(fx.clock, PATIENCE_S, _INTERVAL_S):
        found = on_cards(fx, profile, ours)
        if not found:
            break
    return found


def check_cards(fx: Effects, profile: Profile, ours: Collection[str]) -> None:
    """Raise SlotFault when a stranger keeps a card of the profile."""
    found = staying(fx, profile, ours)
    if not found:
        return
    raise SlotFault(
        f"a card of profile {profile.name} is held by a process that is not ours to end; end it, or wait for its end",
        expected="free cards",
        got=named(found),
    )


def on_port(fx: Effects, profile: Profile) -> tuple[Holder, ...]:
    """Return who but the unit of an engine of the profile listens on its port.

    Linux lets processes of one user share a port, which vLLM asks for: each then gets a part of the connections.
    """
    return tuple(
        holder
        for single in profile.singles
        for holder in fx.processes.port_holders(single.engine.port)
        if holder.unit != single.unit
    )


def check_port(fx: Effects, profile: Profile) -> None:
    """Raise ExposedFault when anybody but the profile's unit listens on its port. profile: of `Profile.singles`."""
    others = on_port(fx, profile)
    if others:
        raise ExposedFault(
            f"the port of {profile.name} is shared with a process that was not verified; end it, or wait for its end",
            expected=f"only {profile.unit} on port {profile.engine.port}",
            got=named(others),
        )


def named(holders: Sequence[Holder]) -> str:
    """Return some of the holders in words, for a message."""
    return "; ".join(holder.describe() for holder in holders[:4])
