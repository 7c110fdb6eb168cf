# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rendering: the three texts that define a profile's engine, its unit, its environment and its resolved profile.

Each of several engines has its own unit and environment, and so has each side of a profile with two. A host may have
three renderings. In place: what systemd starts. Pending: what the role has rendered since for a profile in use; a
switch puts it in place as it starts the engine. Committed: what the last verified engine was started from; the way back
and the boot lead there. Pending and committed are one file each, so that neither is ever half-written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ..words.decode import decode_document, document
from ..words.effects import Effects, Files
from ..words.types import BESIDE, Layout, SlotFault, Which, replica_numbers
from .production import examined
from .profile import Profile, parse_profile

SCHEMA = 1


@dataclass(frozen=True)
class Rendering:
    """The texts of a profile. profile: its JSON. unit, env: of the first engine. more: (unit, env) of each other
    engine, or of the second side."""

    name: str
    unit: str
    env: str
    profile: str
    more: tuple[tuple[str, str], ...] = ()

    @property
    def engines(self) -> tuple[tuple[str, str], ...]:
        """(unit, environment) of each engine."""
        return ((self.unit, self.env), *self.more)

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, in the order of `places`."""
        return (*(text for engine in self.engines for text in engine), self.profile)

    def to_json(self) -> str:
        return document(self, SCHEMA)


def rendering_of(name: str, texts: Sequence[str]) -> Rendering:
    """Return the rendering with these texts, which are in the order of `places`."""
    *engines, profile = texts
    pairs = tuple(zip(engines[::2], engines[1::2], strict=True))
    return Rendering(name, *pairs[0], profile, pairs[1:])


def parse_rendering(text: str, where: str) -> Rendering:
    """Return the rendering in the JSON text of the file `where`. Raise SlotFault naming the file and the key."""
    return decode_document(Rendering, text, where, SCHEMA)


def engines_in(profile: str | None) -> tuple[Which, ...]:
    """Return the engines that have a unit in the profile of this JSON text; one if it can't be read."""
    try:
        engine = json.loads(profile or "{}")["engine"]
        rows, beside = engine.get("replicas"), engine.get("beside")
    except (ValueError, LookupError, TypeError, AttributeError):
        return (None,)
    if beside:
        return None, BESIDE
    return replica_numbers(len(rows) if isinstance(rows, list) and rows else 1)


def places(layout: Layout, name: str, engines: Sequence[Which] = (None,)) -> tuple[PurePosixPath, ...]:
    """Return where the texts are in place: unit and environment of each of these engines, then the profile."""
    own = (
        path
        for which in engines
        for path in (layout.unit_dir / layout.unit(name, which), layout.profile_env(name, which))
    )
    return (*own, layout.profile_json(name))


def in_place(files: Files, layout: Layout, name: str) -> Rendering | None:
    """Return what systemd starts, or None if a part of it is missing."""
    profile = files.read(layout.profile_json(name))
    paths = places(layout, name, engines_in(profile))
    texts = [*(files.read(path) for path in paths[:-1]), profile]
    found = [text for text in texts if text is not None]
    return rendering_of(name, found) if len(found) == len(texts) else None


def pending(files: Files, layout: Layout, name: str) -> Rendering | None:
    """Return what waits for a switch, or None."""
    path = layout.pending(name)
    text = files.read(path)
    return None if text is None else parse_rendering(text, str(path))


def committed(files: Files, layout: Layout) -> Rendering | None:
    """Return what was verified last; None if there is none or it can't be read."""
    path = layout.committed_file
    text = files.read(path)
    try:
        return None if text is None else parse_rendering(text, str(path))
    except SlotFault:
        return None


def check_profile(layout: Layout, name: str, text: str, where: str) -> Profile:
    """Return the profile in the JSON text of `where`. Raise SlotFault if it is not that of this name and slot."""
    profile = parse_profile(text, where)
    known = (*profile.units, *(side.unit for side in profile.sides[1:]))
    units = tuple(layout.unit(name, which) for which in engines_in(text))
    if profile.name != name or known != units:
        raise SlotFault(
            f"{where} describes another profile",
            expected=", ".join(units),
            got=f"{', '.join(known)} of {profile.name}",
        )
    return profile


def put_in_place(
    fx: Effects, layout: Layout, rendering: Rendering, only: Collection[int] = (), *, whole: bool = True
) -> bool:
    """Replace the files that differ, and reload systemd if units changed. Return whether anything differed.

    only: the places of the engines whose units and environments to replace; empty for all. whole: replace the profile,
    too. Files of engines that the profile no longer has are removed, so the units of those must be down.
    """
    changed = []
    paths = places(layout, rendering.name, engines_in(rendering.profile))
    for number, (path, text) in enumerate(zip(paths, rendering.texts, strict=True)):
        wanted = whole if path == paths[-1] else not only or number // 2 in only
        if wanted and fx.files.read(path) != text:
            fx.files.write(path, text)
            changed.append(path.suffix)
    if changed:
        for path in stale_places(fx.files, layout, rendering.name, paths):
            fx.files.remove(path)
            changed.append(path.suffix)
    if ".service" in changed:
        fx.units.reload()
    return bool(changed)


def stale_places(files: Files, layout: Layout, name: str, wanted: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Return units and environments of the profile's engines that are not among the wanted ones."""
    found = [layout.unit_dir / file for file in files.names(layout.unit_dir) if file.startswith(layout.unit_prefix)]
    found += [layout.profiles_dir / file for file in files.names(layout.profiles_dir)]
    ours = [path for path in found if path.suffix in (".service", ".env") and layout.profile_of(path.stem) == name]
    return [path for path in ours if path not in wanted]


def alike(one: Profile, other: Profile) -> bool:
    """Return whether engines behave the same, whichever of the two profiles they are started from."""
    pairs = list(zip(one.singles, other.singles, strict=False))
    return (
        one.fingerprint == other.fingerprint
        and len(one.units) == len(other.units)
        and all(
            getattr(mine.engine, key) == getattr(theirs.engine, key)
            for mine, theirs in pairs
            for key in ("argv", "env", "directives")
        )
    )


def without_a_start(old: Rendering, new: Rendering, *, asked: bool) -> Rendering:
    """Return the old rendering with what the new one changes without a start, for an engine that is alike.

    What only a start proves stays as it was: unit and environment. So does the canary, unless it is asked now.
    """
    before, after = json.loads(old.profile), json.loads(new.profile)
    kept = ("unit_sha256",) if asked else ("unit_sha256", "canary")
    after |= {key: before[key] for key in kept if key in before}
    for mine, theirs in zip(after["engine"].get("replicas", ()), before["engine"].get("replicas", ()), strict=False):
        mine |= {key: theirs[key] for key in ("unit_sha256", "start_after_s")}
    # The texts that stay belong to the sides that the old profile had.
    after["engine"].pop("beside", None)
    if "beside" in before["engine"]:
        after["engine"]["beside"] = before["engine"]["beside"]
    after["examined"] = examined(after)
    return old if after == before else replace(old, profile=json.dumps(after, indent=2) + "\n")
