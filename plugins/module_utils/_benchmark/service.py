# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's part of b70_benchmark: one step of the controller, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from .._slot.words.types import SlotFault
from .._switch_job import JobError, own_archive
from . import bench, job
from .bench import BenchmarkError
from .shapes import ShapeError


def answer(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Do one step and return the result of the module, with `failed` and `msg` if it can't be done."""
    try:
        return {"changed": False, **_step(params, check_mode=check_mode)}
    except (BenchmarkError, ShapeError, SlotFault, JobError) as error:
        return {"failed": True, "msg": str(error)}


def _step(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    if not params["name"]:
        raise BenchmarkError("this module works through its action plugin: call it as a task of a play")
    if params["state"] == "foreseen":
        return job.comparable(params)
    here = job.job_of(params)
    if params["step"] == "collect":
        return here.collect()
    if params["step"] == "forget":
        here.forget()
        return {}
    if check_mode:
        return job.foresee(params)
    fx = job.effects(params, lambda text: None)
    # Report at once, and not from the unit, what can't work.
    judge = partial(bench.plan, job.wanted_of(params, fx.now()), fx)
    began = here.start(params, job.served_of(fx.info()), own_archive, judge)
    files = {"progress": str(here.file("progress")), "result": str(here.file("result.json"))}
    return {"began": began, "unit": here.unit, **files}
