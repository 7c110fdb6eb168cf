# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout for people: lines on the screen, Markdown, and a page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face.table import columns
from ansible_collections.arcpro.b70.plugins.plugin_utils._page import document

from .model import FAILURES, HostVerdict, Rollout, RolloutHost, Status, listed

HEAD = ("HOST", "WAVE", "FROM", "NOW", "VERDICT", "SECONDS", "PHASES")
_SHOWN_S = 0.05
_LEVEL = {
    HostVerdict.WAITING: "SKIP",
    HostVerdict.MAINTENANCE: "SKIP",
    HostVerdict.ALREADY: "PASS",
    HostVerdict.VERIFIED: "PASS",
    HostVerdict.UNMEASURED: "WARN",
    HostVerdict.RETURNED: "WARN",
}


def plan_lines(rollout: Rollout, forks: int) -> list[str]:
    """Return the plan, before anything is switched."""
    hosts, waiting = rollout.inside, rollout.waiting
    to_come = {member.host for member in waiting}
    at_rest = [member.host for member in hosts if member.verdict is HostVerdict.MAINTENANCE]
    done = [member.host for member in hosts if member.host not in (*to_come, *at_rest)]
    lines = [f"Rollout {rollout.id} of {rollout.profile} to {len(hosts)} host{'' if len(hosts) == 1 else 's'}"]
    lines.append(f"waves {rollout.waves}; max_fail {rollout.max_fail}; on_failure {rollout.on_failure}")
    for number in range(1, rollout.last_wave + 1):
        wave = [member for member in waiting if member.wave == number]
        if wave:
            kind = "canary host" if number == 1 else f"{len(wave)} host{'' if len(wave) == 1 else 's'}"
            rounds = -(-len(wave) // forks)
            hint = f"; {rounds} rounds, because forks is {forks}" if rounds > 1 else ""
            lines.append(f"wave {number} ({kind}{hint}): {listed([_from(member) for member in wave])}")
    if done:
        lines.append(f"already verified: {listed(done)}")
    if at_rest:
        lines.append(f"in maintenance, left as they are: {listed(at_rest)}")
    if rollout.outside:
        lines.append(f"outside the limit, left as they are: {listed([member.host for member in rollout.outside])}")
    return lines


def _from(member: RolloutHost) -> str:
    if member.verdict is HostVerdict.UNMEASURED:
        return f"{member.host} (serves {member.result.profile}, to be measured)"
    return f"{member.host} (serves {member.before or 'nothing'})"


def _row(member: RolloutHost) -> tuple[str, ...]:
    result = member.result
    shown = [f"{name} {seconds:.1f}" for name, seconds in result.phases if seconds >= _SHOWN_S]
    seconds = f"{result.seconds:.1f}" if result.phases else ""
    serves = result.profile if member.verdict is not HostVerdict.WAITING else member.before
    unknown = member.verdict is HostVerdict.UNREACHABLE or (
        member.verdict is HostVerdict.FAILED and result.profile is None
    )
    return (
        member.host,
        str(member.wave),
        member.before or "-",
        member.now or ("?" if unknown else serves or "-"),
        f"{member.verdict}{', outside the limit' if member.outside else ''}",
        seconds,
        ", ".join(shown),
    )


def table(rollout: Rollout) -> list[str]:
    """Return the results as lines of text, with the reasons of failures below."""
    reasons = [f"{member.host}: {line}" for member in rollout.members for line in _below(member)]
    return [*columns(HEAD, [_row(member) for member in rollout.members]), *reasons, sentence(rollout)]


def _below(member: RolloutHost) -> list[str]:
    """Return what a cell is too small for: why a host failed, and what the gate measured."""
    told = FAILURES | {HostVerdict.MAINTENANCE}
    why = [member.result.why] if member.result.why and member.verdict in told else []
    return [*why, *member.result.figures]


def sentence(rollout: Rollout, *, goes_on: bool = False) -> str:
    """Return the state of the rollout in one sentence. goes_on: its next wave follows."""
    counts = {verdict: sum(member.verdict is verdict for member in rollout.members) for verdict in HostVerdict}
    numbers = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    again = "run the same command again to go on"
    if rollout.reason:
        again = f"{rollout.reason}; run the command without the limit to go on"
    ends = {
        Status.RUNNING: "goes on" if goes_on else f"is not finished: {again}",
        Status.STOPPED: f"stopped because {rollout.reason}",
        Status.FINISHED: "is finished",
        Status.ROLLED_BACK: f"was rolled back because {rollout.reason}",
    }
    return f"The rollout of {rollout.profile} {ends[rollout.status]} ({numbers})."


def markdown(rollout: Rollout) -> str:
    """Return the rollout as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *(_row(member) for member in rollout.members)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    reasons = [f"- `{member.host}`: {_one_line(line)}" for member in rollout.members for line in _below(member)]
    head = [f"# Rollout {rollout.id}", "", sentence(rollout), ""]
    return "\n".join([*head, *lines, *(["", *reasons] if reasons else [])]) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def page(rollout: Rollout) -> str:
    """Return the rollout as a self-contained page."""
    head = "".join(f"<th>{name.lower()}</th>" for name in HEAD)
    rows = "".join(_page_row(member) for member in rollout.members)
    about = _facts(
        {
            "profile": rollout.profile,
            "began": rollout.began,
            "ended": rollout.ended or "not yet",
            "waves": rollout.waves,
            "max_fail": rollout.max_fail,
            "on_failure": str(rollout.on_failure),
            "gate": str(rollout.gate),
        }
    )
    body = f"<p>{html.escape(sentence(rollout))}</p>{about}<table><tr>{head}</tr>{rows}</table>"
    return document(f"Rollout {rollout.id}", body)


def _facts(facts: Mapping[str, str]) -> str:
    return f"<p>{'; '.join(f'{name}: {html.escape(value)}' for name, value in facts.items())}</p>"


def _page_row(member: RolloutHost) -> str:
    cells = _row(member)
    level = _LEVEL.get(member.verdict, "FAIL")
    verdict = f'<td class="{level}">{html.escape(cells[4])}{_why(member)}</td>'
    return f"<tr>{_cells(cells[:4])}{verdict}{_cells(cells[5:])}</tr>"


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)


def _why(member: RolloutHost) -> str:
    lines = _below(member)
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""
