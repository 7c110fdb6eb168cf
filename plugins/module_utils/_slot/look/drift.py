# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between the rendering and what runs, or what systemd would start. Reads only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ..model.profile import Profile
from ..model.state_file import SlotState
from ..words.effects import Effects
from ..words.types import Layout, SlotFault, UnitState
from .observe import changed_directives, load_profile, load_wanted, process_drift
from .strangers import named, on_port


def drift_of(fx: Effects, layout: Layout, name: str, unit: UnitState, state: SlotState | None) -> Mapping[str, str]:
    """Return the differences by their subject: rendering (its fingerprint), process, unit_file, directives, port.

    Empty without any. state: the state file where it is that of the running process.

    state: the state file where it is that of the running process.
    """
    try:
        profile, wanted = (_single(found(fx, layout, name), unit) for found in (load_profile, load_wanted))
    except SlotFault as fault:
        return {"rendering": fault.message}
    was = None if state is None else state.fingerprint
    found = {
        "rendering": "" if was in (None, wanted.fingerprint) else f"runs {was}, rendered is {wanted.fingerprint}",
        "process": (unit.main_pid and process_drift(fx, wanted, unit)) or "",
        "unit_file": _unit_file(fx, layout, profile, unit),
        "directives": "" if state is None else changed_directives(wanted, state),
        "port": _port(fx, profile),
    }
    return {key: text for key, text in found.items() if text}


def _single(profile: Profile, unit: UnitState) -> Profile:
    """Return the profile as the one engine of this unit; raise SlotFault where it has no such engine."""
    found = next((single for single in profile.on([unit.name]).singles if single.unit == unit.name), None)
    if found is None:
        raise SlotFault(f"{unit.name} runs, rendered are {', '.join(profile.units)}")
    return found


def _port(fx: Effects, profile: Profile) -> str:
    # Only root sees the owner of the process; for others an engine of ours cannot be told apart.
    seen = [holder for holder in on_port(fx, profile) if holder.pid]
    return f"shared with a process that was not verified: {named(seen)}" if seen else ""


def _unit_file(fx: Effects, layout: Layout, profile: Profile, unit: UnitState) -> str:
    path = layout.unit_dir / profile.unit
    if unit.needs_reload:
        return f"systemd has not loaded {path} as it is on disk: run `systemctl daemon-reload`"
    if profile.unit_sha256 is None:
        return ""
    text = fx.files.read(path)
    if text is None:
        return f"{path} is missing; run the role slot"
    if hashlib.sha256(text.encode()).hexdigest() != profile.unit_sha256:
        return f"{path} was changed by hand; changes belong in a drop-in (`systemctl edit {profile.unit}`)"
    return ""
