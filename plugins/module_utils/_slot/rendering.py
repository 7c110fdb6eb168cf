# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes the engine of a profile what it is, as three texts: its unit, its environment, its resolved profile.

A host may have three of them. In place: what systemd starts. Pending: what the role rendered since, of a profile that
is in use; a switch puts it in place as it starts the engine. Committed: what the engine was started from that was
verified last; the way back and the boot lead there. The last two are one file each, so that none is ever half-written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from .effects import Effects, Files
from .profile import Profile, parse_profile, read_document
from .types import Layout, SlotFault

SCHEMA = 1


@dataclass(frozen=True)
class Rendering:
    """The three texts of a profile. profile: its JSON."""

    name: str
    unit: str
    env: str
    profile: str

    @property
    def texts(self) -> tuple[str, str, str]:
        """In the order of `places`."""
        return self.unit, self.env, self.profile

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **self.__dict__}, ensure_ascii=False, indent=1) + "\n"


def parse_rendering(text: str, where: str) -> Rendering:
    """The rendering in the JSON text of the file `where`. Raises SlotFault naming the file and the key."""
    read = read_document(text, where, SCHEMA)
    return Rendering(*(read.get(key, str) for key in Rendering.__dataclass_fields__))


def places(layout: Layout, name: str) -> tuple[PurePosixPath, PurePosixPath, PurePosixPath]:
    """Where the texts are in place, in the order of the fields: unit, environment, profile."""
    return layout.unit_dir / layout.unit(name), layout.profile_env(name), layout.profile_json(name)


def in_place(files: Files, layout: Layout, name: str) -> Rendering | None:
    """What systemd starts, or None where a part of it is missing."""
    texts = [files.read(path) for path in places(layout, name)]
    unit, env, profile = texts
    return None if unit is None or env is None or profile is None else Rendering(name, unit, env, profile)


def pending(files: Files, layout: Layout, name: str) -> Rendering | None:
    """What waits for a switch, or None."""
    path = layout.pending(name)
    text = files.read(path)
    return None if text is None else parse_rendering(text, str(path))


def committed(files: Files, layout: Layout) -> Rendering | None:
    """What was verified last, or None; one that can't be read is none."""
    path = layout.committed_file
    text = files.read(path)
    try:
        return None if text is None else parse_rendering(text, str(path))
    except SlotFault:
        return None


def check_profile(layout: Layout, name: str, text: str, where: str) -> Profile:
    """The profile in the JSON text of `where`, which must be that of this name and slot."""
    profile = parse_profile(text, where)
    if profile.name != name or profile.unit != layout.unit(name):
        raise SlotFault(
            f"{where} describes another profile", expected=layout.unit(name), got=f"{profile.unit} of {profile.name}"
        )
    return profile


def put_in_place(fx: Effects, layout: Layout, rendering: Rendering) -> bool:
    """Replaces what differs, and has systemd read its unit. Returns whether anything differed."""
    changed = []
    for path, text in zip(places(layout, rendering.name), rendering.texts, strict=True):
        if fx.files.read(path) != text:
            fx.files.write(path, text)
            changed.append(path.suffix)
    if ".service" in changed:
        fx.units.reload()
    return bool(changed)


def alike(one: Profile, other: Profile) -> bool:
    """Would an engine that is started from one do what one does that is started from the other?"""
    return one.fingerprint == other.fingerprint and all(
        getattr(one.engine, key) == getattr(other.engine, key) for key in ("argv", "env", "directives")
    )


def without_a_start(old: Rendering, new: Rendering, *, asked: bool) -> Rendering:
    """What becomes of the old one when the new one is taken without a start, for an engine that is alike.

    What only a start proves stays as it was: unit and environment, and the canary unless its answers are asked for.
    """
    before, after = json.loads(old.profile), json.loads(new.profile)
    kept = ("unit_sha256",) if asked else ("unit_sha256", "canary")
    after |= {key: before[key] for key in kept if key in before}
    return old if after == before else replace(old, profile=json.dumps(after, indent=2) + "\n")
