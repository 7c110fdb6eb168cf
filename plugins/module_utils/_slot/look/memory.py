# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's memory, and how much of it a profile needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from ..kinds.kind import Weights
from ..kinds.table import kind_of
from ..model.profile import Profile
from ..words.card_memory import WITHOUT_MIRROR, mirror_bytes
from ..words.effects import Effects
from ..words.types import SlotFault

SPARED_BYTES = 4 * 2**30  # for the host, and for the engine's own processes
MEMINFO = PurePosixPath("/proc/meminfo")


def bytes_of(meminfo: str | None, name: str) -> int:
    """Return the value of that name (MemTotal, MemAvailable) in the text of /proc/meminfo; 0 where it has none."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", meminfo or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def weight_sizes(fx: Effects, profile: Profile) -> dict[PurePosixPath, int]:
    """Return the files of weights that the profile's engine loads, companions included, with their bytes."""
    files, kind = fx.files, kind_of(profile.engine.kind)
    paths: list[PurePosixPath] = []
    for folder in map(PurePosixPath, (profile.model.path, *profile.model.companions)):
        weights = Weights(profile.name, folder, files.names(folder), profile.engine.argv, files.read)
        paths += [folder / name for name in kind.weight_files(weights)]
    return {path: files.size(path) or 0 for path in paths}


def _caches(profile: Profile) -> int:
    """Return the bytes that the caches of all its engines take in the host's memory."""
    return kind_of(profile.engine.kind).host_cache_bytes(profile.engine.settings) * len(profile.units)


def _mirrors(fx: Effects, profile: Profile) -> int:
    """Return the bytes of the host's memory that mirror what the profile's engines hold of their cards."""
    if profile.stack.device != "xpu" or not profile.cards:
        return 0
    engine, shown = profile.engine, len(fx.processes.render_nodes())
    settings, version, size = engine.settings, engine.version or "", profile.model.size_gb
    return sum(mirror_bytes(profile.cards, settings, one.engine.env, version, size, shown) for one in profile.singles)


def check(fx: Effects, profile: Profile, others: Sequence[Profile] = ()) -> None:
    """Raise SlotFault if the host has too little memory for what the engines keep there: caches, and mirrors of cards.

    Such memory can't be swapped, so with too little the host itself comes to a stand. The weights are counted because
    each start reads them through it. A host that does not report its memory is not judged.

    :param others: the profiles of other slots, which keep theirs.
    """
    caches, taken = _caches(profile), sum(map(_caches, others))
    total = bytes_of(fx.files.read(MEMINFO), "MemTotal")
    mirrors = sum(_mirrors(fx, other) for other in others)
    _check_mirrors(profile, _mirrors(fx, profile), mirrors + caches + taken, total)
    if not caches or not total:
        return
    weights, count = sum(weight_sizes(fx, profile).values()), len(profile.units)
    needed = caches + weights + SPARED_BYTES + taken
    if needed <= total:
        return
    each = f" ({count} replicas with {gib(caches // count)} each)" if profile.replicas else ""
    theirs = f", {gib(taken)} that other slots keep there" if taken else ""
    most = max(0, (total - (needed - caches)) // count)
    raise SlotFault(
        f"the host's memory has no room for what {profile.name} keeps of its KV cache there{each}: with the weights "
        f"({gib(weights)}){theirs} and {gib(SPARED_BYTES)} for everything else, an engine can have up to {gib(most)}",
        expected=f"{gib(needed)} of memory",
        got=gib(total),
    )


def _check_mirrors(profile: Profile, own: int, kept: int, total: int) -> None:
    """Raise SlotFault if the mirrors of the profile's cards have no room beside what else is kept."""
    needed = own + kept + SPARED_BYTES
    if not own or not total or needed <= total:
        return
    more = f", {gib(kept)} for caches and other slots" if kept else ""
    raise SlotFault(
        f"the host's memory has no room for the mirror that the driver keeps there of the cards of {profile.name}, "
        f"whose engine sees several: {gib(own)}{more} and {gib(SPARED_BYTES)} for everything else. Set "
        f"engine.host_mirror to {' or '.join(WITHOUT_MIRROR)}, which owners report to end it, or serve on one card",
        expected=f"{gib(needed)} of memory",
        got=gib(total),
    )


def lacks_beside(fx: Effects, profile: Profile) -> str:
    """Return why the caches and the mirror that the profile's engine has in the host's memory have no room beside what
    is loaded already; empty where they have, or it has none."""
    own = kind_of(profile.engine.kind).host_cache_bytes(profile.engine.settings) + _mirrors(fx, profile)
    free = bytes_of(fx.files.read(MEMINFO), "MemAvailable") if own else 0
    needed = own + SPARED_BYTES
    return (
        f"the host's memory has {gib(free)} free, and a second engine needs {gib(needed)}" if 0 < free < needed else ""
    )


def kept_asleep(fx: Effects, profile: Profile, level: int) -> int:
    """Return the bytes that the profile's engine keeps in the host's memory while it sleeps at this level."""
    return (sum(weight_sizes(fx, profile).values()) if level == 1 else 0) + _caches(profile)


def needed_awake(fx: Effects, profile: Profile, *, asleep: bool) -> int:
    """Return the bytes that the profile's engine needs there besides, with what is spared. asleep: it is loaded
    already, and has its caches."""
    return _mirrors(fx, profile) + (0 if asleep else _caches(profile)) + SPARED_BYTES


def gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
