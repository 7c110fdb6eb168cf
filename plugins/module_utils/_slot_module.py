# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the parameters of a module to a run of the slot engine on this host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ._slot.face import api
from ._slot.host.caller import caller
from ._slot.host.clock import SystemClock
from ._slot.host.effects import host_effects
from ._slot.look.frontdoor import read_state
from ._slot.model.rendering import in_place, pending
from ._slot.model.state_file import stamp
from ._slot.words.effects import Effects
from ._slot.words.types import Gate, Layout, OnFailure, Request, SlotFault, layout_of
from ._slot_overlay import PlannedFiles


def request_of(params: Mapping[str, Any], switch_id: str) -> Request:
    active = params["state"] != "stopped"
    return Request(
        slot=params["slot"],
        profile=params["profile"] if active else None,
        active=active,
        gate=Gate(params["gate"]),
        on_failure=OnFailure(params["on_failure"]),
        drain_timeout_s=max(0.0, params["drain_timeout"]),
        health_timeout_s=params["health_timeout"],
        min_serving=None if params["min_serving"] is None else max(0, params["min_serving"]),
        lock_timeout_s=max(0.0, params["lock_timeout"]),
        canary_repeats=params["canary_repeats"],
        record_baseline=active and params["record_baseline"],
        restart=params["state"] == "restarted",
        accept_status=tuple(params["accept_status"]),
        switch_id=switch_id,
        who=caller(params["requested_by"]),
        why=params["reason"],
    )


def run_switch(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the result of the module b70_model_slot, with `failed`."""
    clock = SystemClock()
    fx, layout = host_effects(clock), layout_of(params)
    if params["state"] != "stopped" and not params["profile"]:
        try:
            name, initial = api.standing(fx, layout), params["initial_profile"]
            if not name and initial and params["state"] == "active":
                # Nobody asked for it now, so no other slot is stopped for it.
                if why := api.taken(fx, layout, initial):
                    return api.nothing(layout, why)
                name = initial
        except SlotFault as fault:
            return {"failed": True, "changed": False, "msg": fault.message}
        if not name:
            return api.nothing(layout)
        params = {**params, "profile": name}
    result = _run(fx, clock, layout, params, check_mode=check_mode)
    return {"wanted": params["profile"] if params["state"] != "stopped" else None, **result}


def _run(
    fx: Effects, clock: SystemClock, layout: Layout, params: Mapping[str, Any], *, check_mode: bool
) -> dict[str, Any]:
    request = request_of(params, params["switch_id"] or api.new_switch_id(stamp(fx.clock.now())))
    if check_mode:
        files = {PurePosixPath(item["path"]): item["content"] for item in params["planned_files"]}
        fx = replace(fx, files=PlannedFiles(fx.files, fx.clock, files))
        return api.check(
            fx, layout, replace(request, planned=_planned_parts(fx, layout, request.profile or "", params))
        )
    clock.heed_signals()
    return api.switch(fx, layout, request)


def _planned_parts(fx: Effects, layout: Layout, name: str, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of unit, stack and weights of a profile the same play would have brought by now."""
    units = [PurePosixPath(item["path"]) for item in params["planned_files"] if item["path"].endswith(".service")]
    parts = ["unit"] if any(layout.profile_of(unit.name) == name for unit in units) else []
    try:
        rendering = pending(fx.files, layout, name) or in_place(fx.files, layout, name)
        profile = json.loads(rendering.profile) if rendering else {}
        stack, weights = profile["stack"]["id"], profile["model"]["path"]
    except (SlotFault, ValueError, KeyError, TypeError):
        # A fault of it is reported where it is read for the switch.
        return tuple(parts)
    parts += ["stack"] if stack in params["planned_stacks"] else []
    return (*parts, "weights") if weights in params["planned_weights"] else tuple(parts)


def run_quarantine(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the result of the module b70_quarantine."""
    fx, layout, who = host_effects(SystemClock()), layout_of(params), caller(params["requested_by"])
    if params["state"] == "present" and read_state(fx, layout) is None:
        return {
            "failed": True,
            "msg": f"slot {layout.slot} has no state file {layout.state_file} that can be read; nothing was changed. "
            "Give slot, run_dir, state_dir and frontdoor_url as they are on the host, or run "
            "`b70ctl quarantine --why TEXT` there",
        }
    try:
        change = api.isolate if params["state"] == "present" else api.release
        return change(fx, layout, who, params["reason"], check=check_mode)
    except (SlotFault, OSError) as error:
        return {"failed": True, "msg": f"the quarantine could not be set or ended: {error}"}


def run_maintenance(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the result of the module b70_maintenance."""
    fx, layout = host_effects(SystemClock()), layout_of(params)
    reason = params["reason"] if params["state"] == "present" else None
    try:
        return api.maintain(fx, layout, caller(params["requested_by"]), reason, check=check_mode)
    except OSError as error:
        return {"failed": True, "msg": f"the maintenance could not be set or ended: {error}"}


def run_info(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the module b70_model_slot_info."""
    try:
        return api.info(host_effects(SystemClock()), layout_of(params))
    except SlotFault as fault:
        return {"failed": True, "msg": fault.message}
