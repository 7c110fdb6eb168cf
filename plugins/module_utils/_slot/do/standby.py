# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts engines to sleep and wakes them, and chooses which sleepers end.

An engine counts as asleep from the moment at which its file is written until just before it is asked to wake. A run
that is killed in between leaves an engine that counts as awake. The next run stops it, or finds that it sleeps before
it asks it anything, and loads it anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter

from ..decide.machine import sleep_action, wake_action
from ..kinds.kind import Posts, Sleep
from ..kinds.table import kind_of
from ..look.memory import MEMINFO, SPARED_BYTES, bytes_of, gib, kept_asleep, needed_awake
from ..look.observe import load_profile, slot_units
from ..model.profile import Profile
from ..model.slot_file import read_slot_file
from ..model.standby import Sleeper, read_sleeper, room
from ..model.state_file import stamp
from ..words.effects import text_of
from ..words.types import Direction, SlotFault, UnitState
from .run import Run

ASKED_LIMIT_S = 120.0  # a card is filled, or emptied, in seconds
TOLD_LIMIT_S = 15.0  # vLLM may answer before its workers have ended
_INTERVAL_S = 0.2


def sleepers(run: Run) -> tuple[UnitState, ...]:
    """Return the units whose engine sleeps, or has ended asleep. Nobody but this run puts any to sleep meanwhile."""
    if not run.slept and not any(unit.asleep for unit in run.seen.units):
        return ()
    return tuple(unit for unit in slot_units(run.fx, run.layout)[0] if unit.asleep)


def ending(run: Run, falls: Sequence[UnitState]) -> tuple[tuple[UnitState, ...], int]:
    """Return (the sleepers that end now, the level at which `falls` may sleep, 0 for not at all).

    All end where a profile without standby is served, or nothing, unless what was served falls asleep. Others end that
    can't be woken any more, and the oldest ones where memory has no room for all, or there are too many.
    """
    there, target = sleepers(run), run.profile if run.request.active else None
    if run.direction is Direction.HALT or not (run.plan.sleeps if target is None else target.standby):
        return there, 0
    units = () if target is None else target.units
    known = {unit.name: read_sleeper(run.fx.files, run.layout, unit.name) for unit in there}
    living = [
        found
        for unit in there
        if (found := known[unit.name]) and unit.settled and found.invocation_id == unit.invocation_id
    ]
    stays = [sleeper for sleeper in living if run.wakes or sleeper.unit not in units]
    others = sorted((one for one in stays if one.unit not in units), key=attrgetter("since"))
    needed = SPARED_BYTES if target is None else needed_awake(run.fx, target, asleep=bool(run.wakes))
    ends, level = _room(run, needed, others, [_profile_of(run, unit) for unit in falls])
    gone = {*known} - {one.unit for one in stays} | {others[place].unit for place in ends}
    return tuple(unit for unit in there if unit.name in gone), level


def _profile_of(run: Run, unit: UnitState) -> Profile:
    return load_profile(run.fx, run.layout, run.layout.profile_of(unit.name))


def _room(run: Run, spared: int, others: Sequence[Sleeper], more: Sequence[Profile]) -> tuple[Sequence[int], int]:
    """Return (the places of the others that end; the level that has room then). more: whose engines fall asleep."""
    free = bytes_of(text_of(run.fx, MEMINFO), "MemAvailable")
    most = read_slot_file(run.fx, run.layout).standby
    levels = (1, 2) if all(kind_of(one.engine.kind).rereads(one.engine.settings) for one in more) else (1,)
    needed = {level: spared + sum(kept_asleep(run.fx, one, level) for one in more) for level in levels}
    ends, level = room(free, needed, [one.bytes for one in others], most if more else len(others) + 1)
    if not level and more:
        least = gib(min(needed.values()))
        run.warn(f"the host's memory has {gib(free)} free, so nothing is put to sleep (it takes {least})")
    return ends, level


def forget(run: Run, units: Sequence[str]) -> None:
    """Let these units start engines again."""
    for unit in units:
        run.fx.files.remove(run.layout.standby_file(unit))


def put_to_sleep(run: Run, unit: UnitState, level: int) -> bool:
    """Put the engine of the unit to sleep; return whether it sleeps. If it does not, it has to be stopped."""
    try:
        profile = _profile_of(run, unit)
        _ask(run, profile, _requests(profile).fall[level])
        _await(run, profile, asleep=True)
        since = stamp(run.fx.clock.now())
        kept = kept_asleep(run.fx, profile, level)
        known = Sleeper(unit.name, profile.name, profile.fingerprint, unit.invocation_id, since, kept, level)
        run.fx.files.write(run.layout.standby_file(unit.name), known.to_json())
    except (SlotFault, OSError) as fault:
        run.warn(f"{unit.name} did not go to sleep, and is stopped: {fault}")
        return False
    run.slept[unit.name] = level
    run.did(sleep_action(unit.name, level))
    return True


def wake(run: Run, single: Profile) -> None:
    """Wake the engine of this profile. From now on it counts as awake. Raise SlotFault if it does not wake."""
    run.woken = True
    unit = run.unit(single.unit)
    known = read_sleeper(run.fx.files, run.layout, unit.name)
    if known is None or not unit.settled or known.invocation_id != unit.invocation_id:
        raise SlotFault(f"{unit.name} has ended while it slept", expected="active", got=unit.describe())
    needed = needed_awake(run.fx, single, asleep=True)
    free = bytes_of(text_of(run.fx, MEMINFO), "MemAvailable")
    if free < needed:
        raise SlotFault(
            f"the host's memory has no room to wake {unit.name}", expected=f"{gib(needed)} free", got=gib(free)
        )
    forget(run, [unit.name])
    _ask(run, single, _requests(single).rise[known.level])
    _await(run, single, asleep=False)
    run.did(wake_action(unit.name, known.level))


def _requests(profile: Profile) -> Sleep:
    found = kind_of(profile.engine.kind).sleep
    if found is None:
        raise SlotFault(f"the engine of {profile.name} has no requests for sleep")
    return found


def _ask(run: Run, profile: Profile, posts: Posts) -> None:
    """Make these requests one after the other. One with a body reads the weights, and takes as long as a load may."""
    for path, body in posts:
        limit_s = profile.engine.start_timeout_s if body else ASKED_LIMIT_S
        reply = run.fx.http.post(f"{profile.engine.backend_url}{path}", body, limit_s)
        if reply.status != 200:
            raise SlotFault(
                f"POST {profile.engine.backend_url}{path} failed",
                expected="200",
                got=reply.error or f"{reply.status} {reply.text[:200]}".strip(),
            )


def _await(run: Run, profile: Profile, *, asleep: bool) -> None:
    """Wait until the engine says that it sleeps, or that it does not."""
    got = ""
    for _waited in run.poll(TOLD_LIMIT_S, _INTERVAL_S):
        said, got = says_asleep(run, profile)
        if said is asleep:
            return
    raise SlotFault(f"{profile.unit} does not {'sleep' if asleep else 'wake'}", expected=str(asleep), got=got)


def says_asleep(run: Run, profile: Profile) -> tuple[bool | None, str]:
    """Return (whether the engine says that it sleeps, None if it tells nothing; the request and its answer)."""
    path, key = _requests(profile).asks
    reply = run.fx.http.get(f"{profile.engine.backend_url}{path}", TOLD_LIMIT_S)
    got = f"GET {profile.engine.backend_url}{path}: {reply.error or f'{reply.status} {reply.text[:200]}'.strip()}"
    try:
        said = json.loads(reply.text)[key] if reply.status == 200 else None
    except (ValueError, LookupError, TypeError):
        said = None
    return (said if isinstance(said, bool) else None), got
