# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards: what must hold before anything is touched. Each raises SlotFault; none changes anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from . import strangers
from .effects import Effects
from .machine import Kind, Plan, Seen
from .profile import Profile
from .slot_file import read_slot_file
from .types import Layout, Mode, Request, SlotFault, UnitState

WARNED = ("experiment", "research")
NEED_RUN_BYTES = 2**20  # state and progress
NEED_STATE_BYTES = 16 * 2**20  # journal, progress and identity files
NEED_CACHE_BYTES = 512 * 2**20  # compile caches of the engine
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
_PARTIAL = (".incomplete", ".part", ".partial", ".aria2", ".tmp", ".lock")


def check_quarantine(request: Request, seen: Seen, plan: Plan) -> None:
    """While the host is in quarantine, only what was verified before may be verified again or come back by itself."""
    if seen.quarantine is None or request.mode is not Mode.SWITCH:
        return
    if seen.quarantine.reason:
        raise SlotFault(f"{seen.quarantine.describe()}; until then it serves nothing")
    if plan.kind is Kind.FINISH:
        return
    same = seen.verified is not None and seen.verified.profile == seen.target_name
    if not (plan.kind is Kind.VERIFY and same):
        raise SlotFault(f"{seen.quarantine.describe()}; until then it takes no profile")


def check_status(request: Request, profile: Profile, refused: Sequence[str]) -> str | None:
    """A warning, or None. Raises SlotFault for a refused status unless the caller accepts it by name."""
    if profile.status in refused and profile.status not in request.accept_status:
        reason = profile.status_reason or "no reason recorded"
        raise SlotFault(
            f"profile {profile.name} is {profile.status}: {reason}; "
            f"to run it nevertheless, accept the status {profile.status!r} by name"
        )
    if profile.status in WARNED:
        return f"profile {profile.name} has the status {profile.status}"
    return None


def _install(profile: Profile) -> str:
    return f"ansible-playbook site.yml -e profile={profile.name} installs and serves it"


def check_weights(fx: Effects, profile: Profile) -> None:
    """The model's directory is there and holds what its index names."""
    path = PurePosixPath(profile.model_path)
    names = fx.files.names(path)
    if not names:
        raise SlotFault(f"the weights of {profile.name} are missing: {path} is empty or not there; {_install(profile)}")
    partial = [name for name in names if name.endswith(_PARTIAL)]
    if partial:
        raise SlotFault(f"the weights of {profile.name} are incomplete: {path / partial[0]} is a broken-off download")
    if profile.engine.kind != "vllm":
        return
    if "config.json" not in names:
        raise SlotFault(f"the weights of {profile.name} are incomplete: {path} has no config.json")
    index = fx.files.read(path / "model.safetensors.index.json")
    if index is not None:
        try:
            wanted = set(json.loads(index)["weight_map"].values())
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise SlotFault(f"{path / 'model.safetensors.index.json'} can't be read: {error}") from error
        lacking = sorted(wanted - set(names))
        if lacking:
            raise SlotFault(
                f"the weights of {profile.name} are incomplete in {path}",
                expected=f"{len(wanted)} files of the index",
                got=f"{len(lacking)} missing, the first is {lacking[0]}",
            )
    elif not any(name.endswith(WEIGHTS) for name in names):
        raise SlotFault(f"the weights of {profile.name} are incomplete: no weight file in {path}")


def check_stack(fx: Effects, profile: Profile) -> None:
    """The stack is installed, is the one that was rendered, and its executable can be run."""
    program = PurePosixPath(profile.engine.argv[0])
    if profile.stack_dir:
        record = PurePosixPath(profile.stack_dir) / "fingerprint.json"
        text = fx.files.read(record)
        if text is None:
            raise SlotFault(f"the stack {profile.stack_id} is not installed: {record} is missing; {_install(profile)}")
        try:
            recorded = json.loads(text)
        except ValueError as error:
            raise SlotFault(f"{record} is not JSON ({error}); install the stack again") from error
        got = recorded.get("stack_id") if isinstance(recorded, dict) else None
        if got != profile.stack_id:
            raise SlotFault(
                f"{record} does not record the stack that {profile.name} was rendered for; install the stack again",
                expected=profile.stack_id,
                got=str(got),
            )
    if not fx.files.executable(program):
        raise SlotFault(f"the engine's program {program} is missing or can't be run; run the role stack")


def lacking(fx: Effects, profile: Profile, planned: Sequence[str]) -> str:
    """What a start of the profile would lack, or nothing. planned: what is taken to be there."""
    try:
        if "weights" not in planned:
            check_weights(fx, profile)
        if "stack" not in planned:
            check_stack(fx, profile)
    except SlotFault as fault:
        return fault.message
    return ""


def check_space(fx: Effects, layout: Layout, profile: Profile, plan: Plan, seen: Seen) -> None:
    """What will be written can be written, and there is room. What only verifies in place needs less of it."""
    wants = layout.unit_dir / "multi-user.target.wants"
    replaces = plan.kind is Kind.SWITCH
    boots = [unit.name for unit in (*seen.units, *seen.legacy) if unit.enabled]
    places = [layout.slot_run_dir]
    if replaces or boots != [profile.unit] or not seen.current_env_matches:
        places += [layout.config_dir, wants]
    if replaces:
        places.append(layout.state_dir)
    if replaces and seen.rendering != seen.live:
        places += [layout.unit_dir, layout.profiles_dir]
    for path in places:
        problem = fx.files.writable(path)
        if problem is not None:
            raise SlotFault(f"{path} can't be written to ({problem}), so a switch could not be recorded")
    needs = [(layout.slot_run_dir, NEED_RUN_BYTES)]
    cache = profile.engine.env.get("VLLM_CACHE_ROOT")
    if replaces:
        needs.append((layout.state_dir, NEED_STATE_BYTES))
    if replaces and cache:
        needs.append((PurePosixPath(cache), NEED_CACHE_BYTES))
    for path, need in needs:
        free = fx.files.free_bytes(path)
        if free < need:
            raise SlotFault(
                f"too little space for {path}", expected=f"{need // 2**20} MiB free", got=f"{free // 2**20} MiB free"
            )


def check_port(fx: Effects, profile: Profile, ours: Sequence[str]) -> None:
    """The engine's port is free, or held by a unit which the switch will stop."""
    for holder in fx.processes.port_holders(profile.engine.port):
        if holder.unit not in ours:
            raise SlotFault(f"the engine's port is held by a process that is not ours: {holder.describe()}")


def check_cards(fx: Effects, profile: Profile) -> None:
    if profile.cards > 0:
        nodes = fx.processes.render_nodes()
        if len(nodes) < profile.cards:
            raise SlotFault(
                f"profile {profile.name} needs more cards than this host shows",
                expected=f"{profile.cards} cards",
                got=f"{len(nodes)} ({', '.join(nodes) or 'none'})",
            )


def check_unit(unit: UnitState) -> None:
    if unit.load != "loaded":
        raise SlotFault(
            f"systemd can't use {unit.name}; run the role slot",
            expected="LoadState loaded",
            got=f"LoadState {unit.load}",
        )


def check_all(fx: Effects, layout: Layout, request: Request, seen: Seen, plan: Plan, profile: Profile) -> list[str]:
    """All guards in the order in which a person would want to hear of them. Returns warnings."""
    check_quarantine(request, seen, plan)
    warning = check_status(request, profile, read_slot_file(fx, layout).refused)
    if "unit" not in request.planned:
        check_unit(next((unit for unit in seen.units if unit.name == profile.unit), UnitState(profile.unit)))
    if "weights" not in request.planned:
        check_weights(fx, profile)
    if "stack" not in request.planned:
        check_stack(fx, profile)
    check_space(fx, layout, profile, plan, seen)
    check_cards(fx, profile)
    ours = [unit.name for unit in (*seen.units, *seen.legacy) if unit.running]
    check_port(fx, profile, ours)
    if plan.kind is Kind.SWITCH and request.mode is Mode.SWITCH:
        # What the host serves by itself ran beside that holder before.
        strangers.check_cards(fx, profile, ours)
    broken = [
        f"profile {profile.name} breaks a rule of its stack on purpose: {rule}" for rule in profile.accepted_rules
    ]
    return [*([warning] if warning else []), *broken]
