# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quarantine: a host that lost a card takes no other profile until it was rebooted or a person clears it.

What was verified before may come back, because a restart of the engine is the recorded remedy and the canary judges it.
A person or a rollout that does not trust a host can set it too: then nothing comes back, because the canary has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ..kinds import kernel
from ..kinds.symptoms import Match, diagnose
from ..kinds.table import kind_of_engine
from ..words.decode import decode_written, document, plain
from ..words.effects import Effects
from ..words.types import Failure, Layout, SlotFault, UnitState
from .journal import failure_data
from .state_file import SlotState, stamp

SCHEMA = 1
BOOT_ID = PurePosixPath("/proc/sys/kernel/random/boot_id")
LOG_LINES = 2000  # what failed first stands hundreds of lines before the end: each process above it reports it anew
_LINE_CHARS = 300
WAY_OUT = "it ends with `b70ctl clear-quarantine`, and `b70ctl verify` then opens the frontdoor"


@dataclass(frozen=True)
class Quarantine:
    """The record of a quarantine.

    boot_id: the boot it lasts for; empty where that is unknown, then it lasts until it is cleared. evidence: the
    directory with the logs, empty where they could not be kept. reason: why a person or a rollout has set it, and who:
    which; both empty where a log is the reason.
    """

    slot: str = ""
    since: str = "an unknown time"
    boot_id: str = ""
    symptom: str = "unknown"
    line: str = ""
    switch_id: str = ""
    profile: str | None = None
    evidence: str = ""
    reason: str = ""
    who: str = ""

    def describe(self) -> str:
        """Return one sentence without its full stop.

        The log's own words stay in the record: here they would be diagnosed again.
        """
        if self.reason:
            return f"this host is in quarantine since {self.since}, set by {self.who}: {self.reason}; {WAY_OUT}"
        whose = f" of {self.profile}" if self.profile else ""
        kept = f"; evidence is in {self.evidence}" if self.evidence else ""
        return (
            f"this host is in quarantine since {self.since}, symptom {self.symptom} of the engine{whose}"
            f"{kept}; it ends with a reboot, or with `b70ctl clear-quarantine`"
        )

    def published(self) -> str:
        """Return the sentence for everybody, without evidence and way out, which are for people on the host."""
        return f"this host is in quarantine since {self.since}{'' if self.reason else f', symptom {self.symptom}'}"


def parse(text: str) -> Quarantine:
    """Return the record. One that can't be read stands for a quarantine of which nothing else is known."""
    return decode_written(Quarantine, text, SCHEMA) or Quarantine()


def boot_id(fx: Effects) -> str:
    """Return the running boot's id, or an empty text where the kernel does not tell."""
    return (fx.files.read(BOOT_ID) or "").strip()


def read(fx: Effects, layout: Layout) -> Quarantine | None:
    """Return the quarantine that holds now, or None."""
    found = _on_disk(fx, layout)
    return found if found is not None and found.boot_id in ("", boot_id(fx)) else None


def _on_disk(fx: Effects, layout: Layout) -> Quarantine | None:
    try:
        text = fx.files.read(layout.quarantine_file)
    except OSError:
        text = ""
    return None if text is None else parse(text)


def lost_while_serving(fx: Effects, state: SlotState | None, units: Sequence[UnitState]) -> Match | None:
    """Return what the logs say of an engine that was served, when its process is gone and they name a lost card."""
    found = _lost_engine(fx, state, units)
    return None if found is None else found[0]


def _lost_engine(fx: Effects, state: SlotState | None, units: Sequence[UnitState]) -> tuple[Match, UnitState] | None:
    if state is None or state.phase != "serving":
        return None
    live = {unit.invocation_id for unit in units if unit.settled}
    for engine in state.engines:
        unit = UnitState(str(engine.get("unit") or ""), invocation_id=str(engine.get("invocation_id") or ""))
        if unit.invocation_id not in state.passed or unit.invocation_id in live:
            continue
        kind = kind_of_engine(engine)
        said = () if kind.remote else _kernel_lines(fx, str(engine.get("started_at") or ""))
        match = diagnose(fx.units.log(unit, LOG_LINES), kind=kind, kernel=said)
        if match is not None and match.symptom.quarantines:
            return match, unit
    return None


def _kernel_lines(fx: Effects, since: str) -> tuple[str, ...]:
    """Return what the kernel has said of this host's cards since then. What came before did not end an engine that
    served."""
    cards = {fx.processes.pci_address(node) for node in fx.processes.render_nodes()}
    return kernel.about(kernel.recent(fx.units.kernel_log(LOG_LINES), since), cards) if cards else ()


@dataclass(frozen=True)
class Cause:
    """The cause of a quarantine: the symptom's log line, and whose engine wrote it."""

    switch_id: str
    profile: str | None
    symptom: str
    line: str
    unit: UnitState
    failure: Failure | None = None


def cause_while_serving(
    fx: Effects, state: SlotState | None, units: Sequence[UnitState], switch_id: str
) -> Cause | None:
    """Return the cause when an engine that was served died of a lost card, else None."""
    found = _lost_engine(fx, state, units)
    if found is None or state is None:
        return None
    match, unit = found
    return Cause(switch_id, state.profile_name, match.symptom.id, match.line, unit)


def record_of(fx: Effects, layout: Layout, cause: Cause, evidence: str = "") -> Quarantine:
    """Return the quarantine that the cause leads to."""
    return Quarantine(
        slot=layout.slot,
        since=stamp(fx.clock.now()),
        boot_id=boot_id(fx),
        symptom=cause.symptom,
        line=cause.line[:_LINE_CHARS],
        switch_id=cause.switch_id,
        profile=cause.profile,
        evidence=evidence,
    )


def impose(fx: Effects, layout: Layout, cause: Cause) -> tuple[Quarantine, tuple[str, ...]]:
    """Keep the evidence, then write the record; a quarantine that holds already stays as it is.

    Return it and what could not be written, in words: nothing here may stop a way back.
    """
    folder = layout.evidence_dir / cause.switch_id
    problems: list[str] = []
    try:
        _keep(fx, folder, cause)
    except (OSError, SlotFault) as error:
        problems.append(f"the evidence of {cause.symptom} could not be kept in {folder}: {error}")
    before = read(fx, layout)
    if before is not None:
        return before, tuple(problems)
    record = record_of(fx, layout, cause, "" if problems else str(folder))
    try:
        write(fx, layout, record)
    except OSError as error:
        problems.append(
            f"this host lost a card and should take no other profile, but the quarantine could not be written to "
            f"{layout.quarantine_file}: {error}"
        )
    return record, tuple(problems)


def look_back(
    fx: Effects, layout: Layout, state: SlotState | None, units: Sequence[UnitState], switch_id: str
) -> tuple[str, ...]:
    """Put the host into quarantine where a served engine died of a lost card, and return what to report.

    Call it before the state forgets that the engine was served.
    """
    try:
        cause = None if read(fx, layout) is not None else cause_while_serving(fx, state, units, switch_id)
    except (SlotFault, OSError) as error:
        return (f"whether an engine that is gone lost a card could not be looked at: {error}",)
    if cause is None:
        return ()
    held, problems = impose(fx, layout, cause)
    return (held.describe(), *problems)


def by_hand(fx: Effects, layout: Layout, who: str, reason: str, profile: str | None) -> Quarantine:
    """Return the quarantine that somebody sets: no reboot ends it.

    That of a lost card keeps what its record says.
    """
    blank = Quarantine(layout.slot, stamp(fx.clock.now()), "", "", "", "", profile, "")
    return replace(read(fx, layout) or blank, boot_id="", reason=reason, who=who)


def write(fx: Effects, layout: Layout, record: Quarantine) -> None:
    fx.files.write(layout.quarantine_file, document(record, SCHEMA))


def _keep(fx: Effects, folder: PurePosixPath, cause: Cause) -> None:
    """Write the engine's log, the kernel's and the failure.

    A second engine that fails in the same run has its own files.
    """
    failure = cause.failure
    prefix = "" if failure is None or failure.direction == "forward" else f"{failure.direction}-"
    fx.files.write(folder / f"{prefix}unit.log", _lines(fx.units.log(cause.unit, LOG_LINES)))
    fx.files.write(folder / f"{prefix}kernel.log", _lines(fx.units.kernel_log(LOG_LINES)))
    about = {"profile": cause.profile, "symptom": cause.symptom, "line": cause.line, "unit": cause.unit.name}
    fx.files.write(folder / f"{prefix}failure.json", document({**about, "failure": failure_data(failure)}, SCHEMA))


def clear(fx: Effects, layout: Layout, who: str, why: str) -> Quarantine | None:
    """End the quarantine by hand: its record moves to the evidence. Return what held, None where nothing did."""
    held = read(fx, layout)
    if held is not None:
        cleared = {"cleared_at": stamp(fx.clock.now()), "cleared_by": who, "why": why}
        folder = PurePosixPath(held.evidence) if held.evidence else layout.evidence_dir
        fx.files.write(folder / "quarantine.json", document({**plain(held), **cleared}, SCHEMA))
    fx.files.remove(layout.quarantine_file)
    return held


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
