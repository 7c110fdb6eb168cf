# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards: what must hold before anything is touched. Each raises SlotFault; none changes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from .. import power
from ..caches import DPKG_STATUS, RUNTIME, runtime
from ..decide.machine import RunKind, SlotSeen, SwitchPlan
from ..kinds.kind import Weights
from ..kinds.table import kind_of
from ..model.peer_access import MEASURE, PeerAccessScope, parse_proof, unproven
from ..model.profile import Profile
from ..model.slot_file import read_slot_file
from ..words.card_memory import numbers
from ..words.effects import NFT, PODMAN, Effects, text_of
from ..words.firmware import guc_version
from ..words.types import Layout, Mode, Request, SlotFault, UnitState
from . import memory, node_link, strangers
from .observe import wanted_elsewhere

WARNED = ("experiment", "research")
NEED_RUN_BYTES = 2**20  # state and progress
NEED_STATE_BYTES = 16 * 2**20  # journal, progress and identity files
NEED_CACHE_BYTES = 512 * 2**20  # compile caches of the engine
_PARTIAL = (".incomplete", ".part", ".partial", ".aria2", ".tmp", ".lock")


def check_quarantine(request: Request, seen: SlotSeen, plan: SwitchPlan) -> None:
    """Check that in quarantine only a verified profile is verified again or comes back by itself."""
    if seen.quarantine is None or request.mode is not Mode.SWITCH:
        return
    if seen.quarantine.reason:
        raise SlotFault(f"{seen.quarantine.describe()}; until then it serves nothing")
    if plan.kind is RunKind.FINISH:
        return
    same = seen.verified is not None and seen.verified.profile == seen.target_name
    if not (plan.kind is RunKind.VERIFY and same):
        raise SlotFault(f"{seen.quarantine.describe()}; until then it takes no profile")


def check_status(request: Request, profile: Profile, refused: Sequence[str]) -> str | None:
    """Return a warning or None; raise SlotFault for a refused status that the caller does not accept by name."""
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
    """Check that the directories of the model, and of those beside it, hold the files that the engine needs."""
    if kind_of(profile.engine.kind).remote:
        return
    for path in (profile.model.path, *profile.model.companions):
        _check_weights(fx, profile, PurePosixPath(path))


def _check_weights(fx: Effects, profile: Profile, path: PurePosixPath) -> None:
    # A file that the command line names may be in a folder below.
    named = {PurePosixPath(word).parent for word in profile.engine.argv if word.startswith(f"{path}/")}
    below = [
        f"{folder.relative_to(path)}/{name}" for folder in sorted(named - {path}) for name in fx.files.names(folder)
    ]
    names = (*fx.files.names(path), *below)
    if not names:
        raise SlotFault(f"the weights of {profile.name} are missing: {path} is empty or not there; {_install(profile)}")
    partial = [name for name in names if name.endswith(_PARTIAL)]
    if partial:
        raise SlotFault(f"the weights of {profile.name} are incomplete: {path / partial[0]} is a broken-off download")
    kind_of(profile.engine.kind).check_weights(Weights(profile.name, path, names, profile.engine.argv, fx.files.read))


def check_record(fx: Effects, profile: Profile) -> None:
    """Check that the files of the model are those of the rendered profile; files without a record may be any."""
    got = node_link.weights_of(fx, profile)
    if profile.model.record and got and got != profile.model.record:
        raise SlotFault(
            f"the weights of {profile.name} are not those that it was rendered for: the files in {profile.model.path} "
            f"have changed since; {_install(profile)}",
            expected=profile.model.record[:12],
            got=got[:12],
        )


def check_stack(fx: Effects, profile: Profile) -> None:
    """Check that the stack is installed and is the rendered one, and that its executable can be run."""
    program = PurePosixPath(PODMAN if profile.stack.image else profile.engine.argv[0])
    recorded: Any = {}
    if profile.stack.dir:
        record = PurePosixPath(profile.stack.dir) / "fingerprint.json"
        text = fx.files.read(record)
        if text is None:
            raise SlotFault(f"the stack {profile.stack.id} is not installed: {record} is missing; {_install(profile)}")
        try:
            recorded = json.loads(text)
        except ValueError as error:
            raise SlotFault(f"{record} is not JSON ({error}); install the stack again") from error
        got = recorded.get("stack_id") if isinstance(recorded, dict) else None
        if got != profile.stack.id:
            raise SlotFault(
                f"{record} does not record the stack that {profile.name} was rendered for; install the stack again",
                expected=profile.stack.id,
                got=str(got),
            )
    if not fx.files.executable(program):
        raise SlotFault(f"the engine's program {program} is missing or can't be run; run the role stack")
    if profile.stack.image:
        _check_image(fx, profile, recorded)


def check_filter(fx: Effects, profile: Profile) -> None:
    """Check that the unit can keep other users from the engine's requests for sleep."""
    if kind_of(profile.engine.kind).sleeps(profile.engine.settings) and not fx.files.executable(PurePosixPath(NFT)):
        raise SlotFault(
            f"{NFT} is missing, which keeps other users from the requests for sleep of {profile.name}; set "
            "slot_standby and run site.yml, or install the package nftables"
        )


def check_mounts(fx: Effects, profile: Profile) -> None:
    """Check that the host has the files that the engine's container mounts."""
    for path in map(PurePosixPath, profile.engine.mounts):
        if fx.files.size(path) is None and not fx.files.names(path):
            raise SlotFault(f"{path}, which engine.mounts of {profile.name} names, is not on this host")


def check_runtime(fx: Effects, profile: Profile) -> None:
    """Check that the host's compute runtime is not known to fail with the profile; an unknown one is not judged."""
    version = runtime(text_of(fx, PurePosixPath(DPKG_STATUS)))
    if not version:
        return
    if numbers(version) < numbers(profile.runtimes.least):
        raise SlotFault(
            f"profile {profile.name} needs a newer compute runtime on this host ({RUNTIME}); run the role gpu_driver",
            expected=f"{profile.runtimes.least} or newer",
            got=version,
        )
    for one in profile.runtimes.refused:
        if re.search(one.matches, version):
            raise SlotFault(f"profile {profile.name} on compute runtime {version} of this host: {one.reason}")


def unproven_peers(fx: Effects, layout: Layout, profile: Profile) -> str:
    """Return why the profile's cards may not open each other's memory: nothing proves that it works with them, the
    driver and the firmware of now. Empty if it is proven, not used, or accepted."""
    if not profile.peer_access:
        return ""
    debug, cards = PurePosixPath("/sys/kernel/debug/dri"), {}
    for node, address in strangers.addresses_of(fx, profile).items():
        names = (address, *fx.files.names(PurePosixPath("/sys/bus/pci/devices", address, "drm"))) if address else ()
        cards[address or node] = guc_version(lambda path: text_of(fx, debug / path), names)[0]
    kernel = (text_of(fx, PurePosixPath("/proc/sys/kernel/osrelease")) or "").strip()
    now = PeerAccessScope(cards, kernel, runtime(text_of(fx, PurePosixPath(DPKG_STATUS))))
    why = unproven(parse_proof(text_of(fx, layout.peer_access_file)), now)
    if not why:
        return ""
    return (
        f"profile {profile.name} has direct access between cards, which {why}. Stop the slot (b70ctl stop) and run "
        f"{MEASURE}, which may cost the cards until a reboot. {profile.peer_access}"
    )


def _check_image(fx: Effects, profile: Profile, recorded: Mapping[str, Any]) -> None:
    """Check that the host's storage has the verified image: a start pulls nothing."""
    got, image = fx.images.id_of(profile.stack.image), recorded.get("image")
    wanted = image.get("id") if isinstance(image, Mapping) else None
    if not got:
        raise SlotFault(f"the image of {profile.name} is not on this host: {profile.stack.image}; {_install(profile)}")
    if got != wanted:
        raise SlotFault(
            f"the image {profile.stack.image} is not the one that was verified; remove {profile.stack.dir} and run the "
            "role stack",
            expected=str(wanted),
            got=got,
        )


def check_credentials(fx: Effects, profile: Profile) -> None:
    """Check that the files with credentials of a remote engine are there."""
    remote = profile.engine.remote or {}
    for key, what in (("api_key_file", "API key"), ("ca_file", "certificates")):
        path = remote.get(key)
        if path and not fx.files.read(PurePosixPath(path)):
            raise SlotFault(f"the {what} for the remote engine of {profile.name}: {path} is missing or empty")


def lacking(fx: Effects, profile: Profile, planned: Sequence[str]) -> str:
    """Return what a start of the profile would lack, or nothing. planned: what is taken to be there."""
    try:
        if "weights" not in planned:
            check_weights(fx, profile)
        if "stack" not in planned:
            check_stack(fx, profile)
        if "unit" not in planned:
            check_filter(fx, profile)
            check_credentials(fx, profile)
    except SlotFault as fault:
        return fault.message
    return ""


def check_space(fx: Effects, layout: Layout, profile: Profile, plan: SwitchPlan, seen: SlotSeen) -> None:
    """Check that what will be written can be written, and that there is room. What only verifies in place needs less of
    it."""
    wants = layout.unit_dir / "multi-user.target.wants"
    replaces = plan.kind is RunKind.SWITCH
    boots = sorted(unit.name for unit in (*seen.units, *seen.legacy) if unit.enabled)
    places = [layout.slot_run_dir]
    if replaces or boots != sorted(profile.units) or not seen.current_env_matches:
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
    if replaces:
        needs += [(layout.state_dir, NEED_STATE_BYTES), *_for_cache(profile)]
    _check_room(fx, needs)


def _for_cache(profile: Profile) -> list[tuple[PurePosixPath, int]]:
    cache = kind_of(profile.engine.kind).cache_folder(profile.engine.env)
    return [(PurePosixPath(cache), NEED_CACHE_BYTES)] if cache else []


def _check_room(fx: Effects, needs: Sequence[tuple[PurePosixPath, int]]) -> None:
    for path, need in needs:
        free = fx.files.free_bytes(path)
        if free < need:
            raise SlotFault(
                f"too little space for {path}", expected=f"{need // 2**20} MiB free", got=f"{free // 2**20} MiB free"
            )


def check_port(fx: Effects, profile: Profile, ours: Sequence[str]) -> None:
    """Check that the port of each engine is free, or held by a unit that the switch will stop."""
    for single in profile.singles:
        for holder in fx.processes.port_holders(single.engine.port):
            if holder.unit not in ours:
                raise SlotFault(f"the engine's port is held by a process that is not ours: {holder.describe()}")


def check_cards(fx: Effects, layout: Layout, profile: Profile) -> None:
    if profile.cards > 0:
        nodes = fx.processes.render_nodes()
        several = f" ({len(profile.units)} replicas of {profile.cards})" if profile.replicas else ""
        own = read_slot_file(fx, layout).cards
        if own is not None and len(own) < profile.all_cards:
            raise SlotFault(
                f"profile {profile.name} needs more cards than slot {layout.slot} has (b70_slots)",
                expected=f"{profile.all_cards} cards{several}",
                got=f"{len(own)} ({', '.join(map(str, own)) or 'none'})",
            )
        if own is not None and max(own, default=-1) >= len(nodes):
            raise SlotFault(
                f"slot {layout.slot} has a card that this host does not show (b70_slots)",
                expected=f"card {max(own)}",
                got=f"{len(nodes)} cards, counted from 0 ({', '.join(nodes) or 'none'})",
            )
        if len(nodes) < profile.all_cards:
            raise SlotFault(
                f"profile {profile.name} needs more cards than this host shows",
                expected=f"{profile.all_cards} cards{several}",
                got=f"{len(nodes)} ({', '.join(nodes) or 'none'})",
            )
        for node in strangers.nodes_of(profile, nodes):
            if model_of(fx, node) not in ("", power.B70):
                raise SlotFault(
                    f"profile {profile.name} may use {node}, which it was not made for; name the B70 cards "
                    "(engine.devices in the profile, or cards in b70_slots)",
                    expected=power.B70,
                    got=f"card {nodes.index(node)} is an {model_of(fx, node)}",
                )


def model_of(fx: Effects, node: str) -> str:
    """Return the model of a card; empty where the kernel does not tell."""
    device = fx.files.read(PurePosixPath("/sys/class/drm", PurePosixPath(node).name, "device/device"))
    return power.MODELS.get((device or "").strip().lower(), "")


def power_of(fx: Effects, node: str, name: str = power.CAP) -> int | None:
    """Return the microwatts in a file of the card's sensors, None where there is no such number."""
    sensors = PurePosixPath("/sys/class/drm", PurePosixPath(node).name, "device/hwmon")
    found = (power.number(fx.files.read(sensors / folder / name)) for folder in fx.files.names(sensors))
    return next((number for number in found if number is not None), None)


def check_power(fx: Effects, profile: Profile) -> None:
    """Check that each card of the profile takes its power cap.

    Otherwise the unit of the engine, which sets the cap, would fail the start.
    """
    if profile.power_cap_w is None:
        return
    for node in strangers.cards_of(fx, profile):
        if power_of(fx, node) is None:
            raise SlotFault(f"{node} can't be capped at {profile.power_cap_w} W: {power.NO_CAP}")
        try:
            power.check(node, profile.power_cap_w, power_of(fx, node, power.RATED))
        except power.PowerError as error:
            raise SlotFault(str(error)) from error


def check_unit(unit: UnitState) -> None:
    if unit.load != "loaded":
        raise SlotFault(
            f"systemd can't use {unit.name}; run the role slot",
            expected="LoadState loaded",
            got=f"LoadState {unit.load}",
        )


def for_part(fx: Effects, layout: Layout, profile: Profile) -> str:
    """Return what a part of another node's engine would lack on this host, or nothing. Our own units end before it
    starts."""
    missing = lacking(fx, profile, ())
    if missing:
        return missing
    try:
        check_unit(fx.units.show([profile.unit])[0])
        check_cards(fx, layout, profile)
        strangers.check_cards(fx, profile, [unit.name for unit in fx.units.running(layout.unit_prefix)])
        check_power(fx, profile)
        check_runtime(fx, profile)
        if unproven_access := unproven_peers(fx, layout, profile):
            return unproven_access
        memory.check(fx, profile)
        _check_room(fx, [(layout.slot_run_dir, NEED_RUN_BYTES), *_for_cache(profile)])
        check_interface(fx, layout)
    except SlotFault as fault:
        return f"{fault.message} (expected {fault.expected}, got {fault.got})" if fault.expected else fault.message
    return ""


def check_interface(fx: Effects, layout: Layout) -> None:
    """Check that the network device between the nodes is there and has this host's address."""
    group = read_slot_file(fx, layout).nodes
    if group is None or not group.interface:
        return
    found = fx.processes.addresses(group.interface)
    if found is None:
        raise SlotFault(f"this host has no network device {group.interface} (b70_nodes.interface)")
    if group.own.address not in found:
        raise SlotFault(
            f"{group.interface} does not have the address of this node (b70_nodes)",
            expected=group.own.address,
            got=", ".join(found) or "no address",
        )


def check_all(
    fx: Effects, layout: Layout, request: Request, seen: SlotSeen, plan: SwitchPlan, profile: Profile
) -> list[str]:
    """Check all guards, in the order in which a person wants to hear of them, and return warnings."""
    check_quarantine(request, seen, plan)
    warning = check_status(request, profile, read_slot_file(fx, layout).refused_statuses)
    if "unit" not in request.planned:
        for unit in fx.units.show(profile.units):
            check_unit(unit)
    if "weights" not in request.planned:
        check_weights(fx, profile)
        if request.mode is Mode.SWITCH:
            check_record(fx, profile)
    if "stack" not in request.planned:
        check_stack(fx, profile)
    if "unit" not in request.planned:
        # The play that renders a unit writes its keys, too, and installs what the unit calls.
        check_filter(fx, profile)
        check_credentials(fx, profile)
    if plan.kind is RunKind.SWITCH:
        check_mounts(fx, profile)
        check_runtime(fx, profile)
    unmeasured: list[str] = []
    if request.mode is Mode.SWITCH and profile.node is None:
        node_link.check_free(fx, layout)
    elif request.mode is Mode.SWITCH and "unit" not in request.planned:
        check_interface(fx, layout)
        unmeasured = node_link.check_group(fx, layout, profile)
    check_space(fx, layout, profile, plan, seen)
    check_cards(fx, layout, profile)
    unproven_access = unproven_peers(fx, layout, profile)
    if plan.kind is RunKind.SWITCH:
        check_power(fx, profile)
        # An engine that runs already, such as after a boot with another kernel, goes on, with a warning.
        if unproven_access:
            raise SlotFault(unproven_access)
    ours = [unit.name for unit in (*seen.units, *seen.legacy) if unit.at_work]
    check_port(fx, profile, ours)
    if plan.kind is RunKind.SWITCH and request.mode is Mode.SWITCH:
        memory.check(fx, profile, wanted_elsewhere(fx, layout, plan.clears))
        # An engine that the host serves by itself ran beside that holder before, and in that memory.
        strangers.check_cards(fx, profile, [*ours, *(name for neighbour in plan.clears for name in neighbour.units)])
    broken = [
        f"profile {profile.name} breaks a rule of its stack on purpose: {rule}" for rule in profile.accepted_rules
    ]
    return [*(text for text in (warning, unproven_access) if text), *unmeasured, *broken]
