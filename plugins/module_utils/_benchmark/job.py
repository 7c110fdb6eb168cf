# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark of the engine that is served, and its record.

Its unit runs as root only for the canary, which needs the slot's lock; the load comes from an unprivileged user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from .._evidence import host_class
from .._evidence.job import SlotJob, WorkOrder
from .._evidence.store import Store
from .._slot.face import api
from .._slot.host.caller import caller
from .._slot.host.clock import SystemClock
from .._slot.host.effects import host_effects
from .._slot.look.frontdoor import read_state
from .._slot.look.observe import load_standing
from .._slot.model.state_file import stamp
from .._slot.words.effects import Effects as HostEffects
from .._slot.words.types import Layout, Request, SlotFault, ToldToEndFault, layout_of
from .._work.decide import WorkState, differences
from .._work.folder import WorkError, WorkFolder
from .._work.protocol import conclude
from . import bench, draw, report, run
from .bench import BenchmarkError, BenchmarkOrder
from .comparison import Band, baseline_key, outlook
from .generators import GeneratorError
from .run import Tool
from .shapes import RequestShapeError, shape_of

_LOCK_LIMIT_S = 600.0
_STATUS_LIMIT_S = 5.0
_DRAW_LIMIT_S = 120.0
# It competes with the engine for the processors no less than clients do. The canary may have to replace the engine, as
# `b70ctl verify` may.
_PROPERTIES = {
    "KillMode": "mixed",
    "CollectMode": "inactive-or-failed",
    "Nice": "0",
    "CPUWeight": "100",
    "IOWeight": "100",
    "ProtectSystem": "no",
}
# The options that define a benchmark: with another value it is another benchmark.
_OF_THE_WORK = (
    *("shapes", "streams", "targets", "prefixes", "generator", "limit", "band", "ttft_band"),
    *("frontdoor_url", "timeout", "profile", "fail_on_regression", "fail_without_comparison"),
)


class BenchmarkJob(SlotJob):
    kind, noun = "benchmark", "benchmark"

    def asked(self, fx: HostEffects, layout: Layout) -> WorkOrder:
        here = effects(self.params, lambda text: None)
        try:
            # Report at once, and not from the unit, what can't work.
            profile = bench.plan(wanted_of(self.params, here.now()), here)[0]
        except (BenchmarkError, RequestShapeError) as error:
            raise WorkError(str(error)) from error
        params = {key: value for key, value in self.params.items() if key != "api_key"}
        given = {"params": params, "served": list(served_of(here.info()))}
        standing = load_standing(fx, layout, str(profile["name"]))
        secret = self.params["api_key"] or ""
        return WorkOrder(standing, given, int(self.params["timeout"]), _PROPERTIES, secret=secret)

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        served = list(served_of(effects(self.params, lambda text: None).info()))
        differs = differences(given["params"], {key: self.params[key] for key in _OF_THE_WORK})
        theirs, ours = ([one["id"] for one in of["baselines"]] for of in (given["params"], self.params))
        differs += differences({"baselines": theirs}, {"baselines": ours})
        return [*differs, *(["another engine process"] if given["served"] != served else ())]

    def line(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
        return f"{given['profile']} since {given['began_at']}"

    def shown(self, found: WorkState) -> dict[str, Any]:
        where = {"unit": self.unit, "progress": str(self.folder.out / "progress")}
        return {**where, **{key: found.result[key] for key in ("pictures", "failed", "msg") if key in found.result}}

    def answer(self, *, check_mode: bool) -> dict[str, Any]:
        if self.params["state"] == "foreseen":
            return {"changed": False, **comparable(self.params)}
        found = super().answer(check_mode=check_mode)
        if check_mode and not found["waits"]:
            self.allowed()
            found["foreseen"] = _foreseen(self.params)
        return found


class Ending:
    """The order to end this process. The clock tells of it once, and the canary may take that for its own end."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._told = False

    def told(self) -> None:
        self._told = True

    def heed(self) -> None:
        if self._told:
            raise ToldToEndFault


def served_of(info: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Return what figures belong to: the profile, its fingerprint, and the engine process."""
    return info["profile"], info["fingerprint"], (info.get("engine") or {}).get("invocation_id")


def wanted_of(params: Mapping[str, Any], moment: str) -> BenchmarkOrder:
    """Return what the parameters of the module ask for; raise RequestShapeError if a shape is wrong."""
    seed = int(hashlib.sha256(f"{moment} {params['host_name']} {params['slot']}".encode()).hexdigest()[:8], 16) % 2**31
    return BenchmarkOrder(
        shapes=tuple(shape_of(item) for item in params["shapes"]),
        streams=tuple(params["streams"]),
        targets=tuple(params["targets"]),
        prefixes=tuple(params["prefixes"]),
        generator=params["generator"],
        tools_python=params["tools_python"],
        user=params["user"],
        frontdoor_url=params["frontdoor_url"].rstrip("/"),
        api_key=params["api_key"] or "",
        limit_s=float(params["limit"]),
        band=Band(params["band"], params["ttft_band"]),
        name=params["host_name"],
        slot=params["slot"],
        seed=seed,
        profile=params["profile"],
        evidence=params["evidence"],
        fail_on_regression=params["fail_on_regression"],
        fail_without_comparison=params["fail_without_comparison"],
    )


def effects(
    params: Mapping[str, Any], say: Callable[[str], None], ending: Ending | None = None
) -> bench.BenchmarkEffects:
    """Return the effects on the real host. ending: that of the unit, which heeds signals."""
    ending = ending or Ending()
    clock = ending.clock
    fx, layout = host_effects(clock), layout_of(params)

    def verify(name: str) -> dict[str, Any]:
        request = Request(
            slot=layout.slot,
            profile=name,
            recheck=True,
            lock_timeout_s=_LOCK_LIMIT_S,
            switch_id=api.new_switch_id(stamp(clock.now())),
            who=caller(params["requested_by"]),
            why="benchmark",
        )
        return api.switch(fx, layout, request)

    def profile(name: str) -> Mapping[str, Any]:
        path: PurePosixPath = layout.profile_json(name)
        data = json.loads(fx.files.read(path) or "null")
        if not isinstance(data, dict):
            raise BenchmarkError(f"{path} is not there: run site.yml --tags slot")
        served = load_standing(fx, layout, name).engine
        own = {"backend_url": served.backend_url, "argv": list(served.argv), "env": dict(served.env)}
        return {**data, "engine": {**data["engine"], **own}}

    return bench.BenchmarkEffects(
        info=lambda: api.info(fx, layout),
        verify=verify,
        profile=profile,
        measure=run.measure,
        moved=partial(_moved, fx, layout),
        heed=ending.heed,
        version=_tool_version,
        engine_version=_engine_version,
        host=host_class.look,
        door=partial(_door, fx, layout),
        baseline=partial(_baseline, params["baselines"]),
        now=lambda: stamp(clock.now()),
        say=say,
    )


def _door(fx: HostEffects, layout: Layout) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError, LookupError, TypeError):
        part = json.loads(fx.http.get(f"{layout.frontdoor_url}/status", _STATUS_LIMIT_S).text)["frontdoor"]
        return part if isinstance(part, dict) else {}
    return {}


def _moved(fx: HostEffects, layout: Layout, engine: Mapping[str, Any]) -> str:
    """Return why clients no longer get this engine process; empty while they do.

    This is called again and again while the engine is measured, so it looks at little. It asks systemd for one unit: to
    find all units of a slot, systemd reads its folders.
    """
    invocation_id = engine.get("invocation_id")
    try:
        state, (unit,) = read_state(fx, layout), fx.units.show([str(engine.get("unit"))])
    except SlotFault:
        return ""  # systemd gave no answer; the next look will tell
    if not (unit.running and unit.invocation_id == invocation_id):
        return "the engine process that was measured is gone"
    if state is None or not (state.open and state.verified) or state.invocation_id != invocation_id:
        why = "nothing is known of it" if state is None else state.reason or state.phase
        return f"slot {layout.slot} is closed: {why}"
    closed = [str(row["index"]) for row in state.replicas or () if not row["open"]]
    if closed:
        return f"replica {', '.join(closed)} is not served any more"
    return ""


def _baseline(chosen: Sequence[Mapping[str, Any]], name: str, kind: str, generator: str) -> Mapping[str, Any] | None:
    """Return the baseline of a profile on a class of host by a generator. There is at most one."""
    wanted = name, kind, generator
    return next((one for one in chosen if baseline_key(one) == wanted), None)


def _foreseen(params: Mapping[str, Any]) -> list[str]:
    """Return what would be measured now. Change nothing."""
    fx = effects(params, lambda text: None)
    profile, kept, streams, out = bench.plan(wanted_of(params, fx.now()), fx)
    names = ", ".join(shape.name for shape in kept)
    left = [f"left out: {item.get('shape') or str(item['streams']) + ' streams'}: {item['reason']}" for item in out]
    return [f"would measure {profile['name']}: {names} with {', '.join(map(str, streams))} streams", *left]


def comparable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what figures of a profile would be compared with here, whether it is served now or not."""
    name, kind = params["profile"], host_class.look()["class"]
    wanted = wanted_of(params, "")
    # In check mode the file may not exist yet; then everything known could be measured.
    profile = _read(Path(layout_of(params).profile_json(name)))
    kept, streams, _out = bench.fitting(wanted, profile) if profile else (wanted.shapes, wanted.streams, [])
    baseline = _baseline(params["baselines"], name, kind, params["generator"])
    if baseline is None:
        return {"comparable": False, "summary": [bench.no_baseline(name, kind)]}
    lines, missing = outlook(kept, streams, wanted.targets, baseline)
    return {"comparable": not missing, "summary": bench.not_covered(baseline["id"], missing) or lines}


def main(folder: str) -> None:
    """Measure what the folder asks for, and save the record and what was found. Called in the unit."""
    work = WorkFolder(Path(folder))
    params = {**(work.given() or {})["params"], "api_key": work.secret()}

    def say(text: str) -> None:
        work.save_seen({"now": text, "ended": None})
        with (work.out / "progress").open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")

    ending = Ending()
    ending.clock.heed_signals(ending.told)

    def measured() -> dict[str, Any]:
        try:
            fx = effects(params, say, ending)
            record = bench.run(wanted_of(params, fx.now()), fx)
            Store(params["records_dir"]).write(record)
        except (BenchmarkError, GeneratorError, RequestShapeError, SlotFault) as error:
            return {"failed": True, "msg": str(error)}
        kept = {key: record[key] for key in ("verdict", "reasons")}
        return {"record": record, "pictures": _pictures(params, record), **kept}

    conclude(work, BenchmarkJob.noun, measured)


def _pictures(params: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, str]:
    """Return pictures in base64 by file name; none if the tools that draw are not on this host."""
    drawn = report.plots(record)
    if not drawn or not os.path.exists(params["tools_python"]):
        return {}
    loader: Any = draw.__loader__
    try:
        done = subprocess.run(
            [params["tools_python"], "-c", loader.get_source(draw.__name__)],
            input=json.dumps(drawn),
            env={"PATH": "/usr/bin:/bin", "MPLCONFIGDIR": "/tmp", "MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            timeout=_DRAW_LIMIT_S,
            check=True,
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        traceback.print_exception(error)
        return {}
    return found


def _tool_version(tool: Tool) -> str:
    """Return the version of a generator, from the packages beside its Python; a question mark if it is unknown."""
    folder = Path(tool.program).parent.parent
    found = sorted(folder.glob(f"lib/python3*/site-packages/{tool.kind}-*.dist-info"))
    return found[0].name.removeprefix(f"{tool.kind}-").removesuffix(".dist-info") if found else "?"


def _engine_version(stack: str, engine: str) -> str:
    data = _read(Path(stack) / "fingerprint.json") or {}
    # The version of an engine that was built is in no distribution.
    own = data.get("engine") or {}
    if own.get("kind") == engine and own.get("version"):
        return str(own["version"])
    versions = {item.get("name"): item.get("version") for item in data.get("distributions") or []}
    return str(versions.get(engine) or "?")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
