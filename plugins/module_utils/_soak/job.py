# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak as a transient unit of the host: begin or join it, look at it, and make its record when it has ended.

The unit measures and has no rights but the engine's user's: it writes `out/seen.json` in the soak's folder. The rest of
the folder, and the record, are written by the module, so a soak that was killed leaves a record too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .. import _transient
from .._evidence import host_class
from .._evidence.record import make
from .._evidence.store import Store, StoreError
from .._evidence.work import Work, engine_of
from .._slot.effects import Effects
from .._slot.host.clock import SystemClock
from .._slot.host.effects import host_effects
from .._slot.observe import load_profile
from .._slot.state_file import stamp
from .._slot.types import Layout, SlotFault, ToldToEndFault
from .._slot_module import layout_of
from .._switch_job import own_archive
from . import judging, load, watching
from .cycles import Answer, Soak, nothing_seen
from .judging import Plan

ENGINE = "engine"  # the case that stands for a canary that could not be asked
_LAYOUT = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")
_MARGIN_S = 4 * 3600  # a soak ends by itself; this bounds one that hangs
# Its own figures are to be those of the engine, not of a client that waits for a processor.
_PROPERTIES = {
    "KillMode": "mixed",
    "CollectMode": "inactive-or-failed",
    "Nice": "0",
    "CPUWeight": "100",
    "SupplementaryGroups": "systemd-journal",
    "CapabilityBoundingSet": "",
    "PrivateDevices": "yes",
    "ProtectHome": "read-only",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
}


class SoakError(Exception):
    """A soak can't be started or read."""


_SYSTEMD = _transient.Systemd(SoakError, "a soak")


def work_of(params: Mapping[str, Any]) -> Work:
    slot = params["slot"]
    return Work(Path(params["state_dir"], "soak", slot), f"b70-soak-{slot}.service", SoakError)


def plan_of(params: Mapping[str, Any], concurrency: int) -> Plan:
    """The plan that the module's options describe. concurrency: of the profile, where none is named."""
    values = {key: params[key] for key in Plan.__dataclass_fields__ if key in params}
    values["concurrency"] = values["concurrency"] or concurrency
    for key in ("duration", "interval"):
        try:
            values[f"{key}_s"] = judging.seconds_of(params[key])
        except ValueError as error:
            raise SoakError(f"{key} of the soak: {error}") from error
    least = {"request_timeout_s": 1, "baseline_cycles": 1, "prompt_words": 1, "output_tokens": 1}
    for key, value in values.items():
        if value < least.get(key, 0):
            raise SoakError(f"{key} of the soak is {value:g}: it is at least {least.get(key, 0)}")
    if values["reruns"] + values["stress"] < 1:
        raise SoakError(
            "reruns and stress of the soak are both 0: one of them is at least 1, since only later answers say what a "
            "wrong one is"
        )
    return Plan(**values)


def answer(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the result of the module b70_soak."""
    try:
        found = _done(params, check_mode)
    except StoreError as error:
        raise SoakError(f"the record of the soak can't be written: {error}") from error
    except (OSError, ValueError) as error:
        raise SoakError(f"the soak can't be read or written: {error}; put this right and run the same again") from error
    result, given, seen = found["result"] or {}, found["given"] or {}, found["seen"] or {}
    return {
        "changed": False,
        "state": found["state"],
        "joined": found["joined"],
        "line": found["line"],
        "profile": given.get("profile"),
        "began_at": given.get("began_at"),
        "counts": judging.counts(seen.get("anomalies", [])),
        "cycles": len(seen.get("cycles", [])),
        **{key: result.get(key) for key in ("verdict", "reasons", "record", "file")},
    }


def _done(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    if params["state"] == "shown" or check_mode:
        return {**look(params, write=not check_mode), "joined": False}
    if params["state"] == "stopped":
        return {**stop(params), "joined": False}
    return start(params) if params["step"] == "start" else {**look(params), "joined": False}


def start(params: Mapping[str, Any], archive: Path | None = None) -> dict[str, Any]:
    """Begin a soak, join the one under way, or collect one that ended while nobody watched.

    A play whose answer was lost asks again, and is told the same.
    """
    work, token = work_of(params), params["token"]
    with work.alone():
        told = work.told_to_another(token)
        found = _collect(params, work)
        if found["state"] == "running" or (found["state"] == "ended" and not told):
            return {**found, "joined": not work.begun_by(token)}
        _begin(params, work, archive)
    return {**look(params), "joined": False}


def _begin(params: Mapping[str, Any], work: Work, archive: Path | None) -> None:
    fx, layout = host_effects(SystemClock()), layout_of(params)
    try:
        served = watching.served(fx, layout)
        profile = served.profile
        plan = plan_of(params, profile.frontdoor.max_active_generations)
        version = fx.http.get(f"{profile.engine.backend_url}/version", 5.0)
    except SlotFault as fault:
        raise SoakError(f"nothing is soaked: {fault.message}") from fault
    given = {
        "layout": {key: params[key] for key in _LAYOUT},
        "plan": plan.as_dict(),
        "host_name": params["host_name"],
        "began_at": stamp(fx.clock.now()),
        "profile": profile.name,
        "fingerprint": profile.fingerprint,
        "stack": profile.stack_id,
        "engine": engine_of(profile.engine.kind, version.text),
        "invocation_id": served.invocation_id,
        "restarts": served.restarts,
        "token": params["token"],
    }
    work.prepare(given, archive or own_archive(), served.user)
    try:
        _SYSTEMD.start(task(work, plan, served.user))
    except SoakError:
        if not _SYSTEMD.state(work.unit).running:  # systemd was slow to say so
            work.remove()
            raise


def task(work: Work, plan: Plan, user: str) -> _transient.Task:
    return _transient.Task(
        unit=work.unit,
        description="Soak of the engine that is served",
        argv=work.argv(__name__),
        limit_s=int(plan.duration_s + plan.request_timeout_s + _MARGIN_S),
        directory=str(work.folder),
        user=user,
        writable=(str(work.out),),
        properties=_PROPERTIES,
    )


def stop(params: Mapping[str, Any]) -> dict[str, Any]:
    """End the soak under way; its record says that it is unfinished."""
    unit = work_of(params).unit
    if _SYSTEMD.state(unit).running:
        _SYSTEMD.stop(unit)
    return look(params)


def look(params: Mapping[str, Any], *, write: bool = True) -> dict[str, Any]:
    """``{"state": "none" | "running" | "ended", "line", "given", "seen", "result"}``.

    :param write: whether the record of a soak that has ended is made, where there is none yet.
    """
    work = work_of(params)
    found = _look(work)
    if write and _is_open(found):
        with work.alone():
            return _collect(params, work)
    return found


def _is_open(found: Mapping[str, Any]) -> bool:
    return found["state"] == "ended" and found["result"] is None


def _collect(params: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """Look, and make the record of a soak that has ended. The work is held alone."""
    found = _look(work)
    if _is_open(found):
        found["result"] = _finish(work, found["given"], found["seen"], Store(params["records_dir"]), params["token"])
    return found


def _look(work: Work) -> dict[str, Any]:
    given = work.given()
    if given is None:
        return {"state": "none", "line": "no soak is under way", "given": None, "seen": None, "result": None}
    # The unit first: one that ends between two looks has left what it saw.
    running = _SYSTEMD.state(work.unit).running
    seen = work.seen() or nothing_seen()
    plan = Plan(**given["plan"])
    line = f"{given['profile']} since {given['began_at']}: {judging.summary(plan, seen)}"
    if running:
        now = seen["now"] or "starting"
        return {"state": "running", "line": f"{line}; {now}", "given": given, "seen": seen, "result": None}
    return {"state": "ended", "line": line, "given": given, "seen": seen, "result": work.result()}


def _finish(work: Work, given: Mapping[str, Any], seen: dict[str, Any], store: Store, token: str) -> dict[str, Any]:
    if seen["ended"] is None:
        why = "the soak broke off: its process was killed, or the host restarted"
        seen["ended"] = {"how": "vanished", "why": why, "at": max(work.last_seen_at(), given["began_at"])}
    plan = Plan(**given["plan"])
    verdict, reasons = judging.judge(plan, seen)
    try:
        record = make(
            "soak",
            **{key: given[key] for key in ("profile", "fingerprint", "stack", "engine", "began_at")},
            slot=given["layout"]["slot"],
            host={"name": given["host_name"], **host_class.look()},
            # The clock may have been set back since.
            ended_at=max(seen["ended"]["at"], given["began_at"]),
            verdict=verdict,
            reasons=reasons,
            canary={"before": seen["first"], "after": seen["last"]},
            data={
                "summary": judging.summary(plan, seen),
                "plan": given["plan"],
                "reference_tok_s": judging.reference(seen["cycles"], plan.baseline_cycles),
                "cycles": seen["cycles"],
                "anomalies": seen["anomalies"],
                "ended": {key: seen["ended"][key] for key in ("how", "why")},
            },
        )
    except ValueError as error:
        raise SoakError(
            f"no record can be made of what the soak saw: {error}; remove {work.folder} to give it up"
        ) from error
    path = store.write(record)
    result = {"record": record["id"], "file": str(path), "verdict": verdict, "reasons": reasons, "collected_by": token}
    work.save_result(result)
    return result


class SlotHost:
    """What a soak does on this host: see cycles.Host."""

    def __init__(self, fx: Effects, layout: Layout, watched: watching.Served, plan: Plan, work: Work) -> None:
        self._fx, self._layout, self._watched, self._plan, self._work = fx, layout, watched, plan, work

    def monotonic(self) -> float:
        return self._fx.clock.monotonic()

    def now(self) -> datetime:
        return self._fx.clock.now()

    def sleep(self, seconds: float) -> None:
        self._fx.clock.sleep(seconds)

    def gone(self) -> tuple[str, str] | None:
        try:
            found = watching.gone(self._fx, self._layout, self._watched)
        except SlotFault:
            return None  # systemd gave no answer: the next look tells
        return None if found is None else (found.how, found.why)

    def ask(self, only: Collection[str] = (), repeats: int | None = None) -> Sequence[Answer]:
        only = () if ENGINE in only else only
        results, problem = watching.ask(self._fx, self._layout, self._watched, only=only, repeats=repeats)
        answers = [Answer(row.name, row.passed, row.expected, row.got, row.sha256, row.problem) for row in results]
        if problem and all(answer.right for answer in answers):
            answers.append(Answer(ENGINE, right=False, problem=problem))
        return answers

    def load(self, number: int) -> Mapping[str, Any] | None:
        return load.send(self._fx, self._watched.profile, self._plan, number)

    def save(self, seen: Mapping[str, Any]) -> None:
        self._work.save_seen(seen)


def main(folder: str) -> None:
    """Soak as the folder's file says. Runs in the unit."""
    work = Work(Path(folder), "", SoakError)
    given = work.given()
    if given is None:
        raise SoakError(f"{folder} does not say what to soak")
    clock = SystemClock()
    clock.heed_signals()
    fx, layout, plan = host_effects(clock), layout_of(given["layout"]), Plan(**given["plan"])
    profile = load_profile(fx, layout, given["profile"])
    watched = watching.Served(profile, given["invocation_id"], given["restarts"], "")
    soak = Soak(SlotHost(fx, layout, watched, plan, work), plan)
    try:
        soak.run()
    except ToldToEndFault as fault:
        soak.break_off("told", f"somebody ended the soak ({fault.message})")
    except Exception as error:
        soak.break_off("broken", f"the soak broke off: {type(error).__name__}: {error}")
        raise
