# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of b70ctl for a person. Pure: plain data in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from ..model.nodes import RUNS

LOG_LINES = 8  # with more, a person scrolls past the sentence that says what happened
_AT_WORK = ("switching", "verifying")


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: every column as wide as its widest cell, the last one as it is."""
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head) - 1)]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        return "  ".join([*cells, row[-1]]).rstrip()

    return [line(row) for row in (head, *rows)]


def profiles(info: Mapping[str, Any]) -> list[str]:
    """Return the profiles for which the host has the cards; `*` marks the one whose engine runs."""
    known, count = info["profiles"], len(info["cards"])
    if not known:
        return ["no profile is rendered on this host; run the role slot"]
    shown = [item for item in known if item["cards"] <= count or item["name"] == info["profile"]]
    rows = [
        [
            "*" if item["name"] == info["profile"] else "",
            item["name"],
            str(item["cards"]),
            item["status"],
            item["title"],
        ]
        for item in shown
    ]
    lines = columns(["", "PROFILE", "CARDS", "STATUS", "TITLE"], rows)
    if more := len(known) - len(shown):
        lines.append(f"{more} more need more than the {count} cards of this host (b70ctl list --json)")
    return [*lines, *pending(info), *_quarantine(info)]


def pending(info: Mapping[str, Any]) -> list[str]:
    """Return one line for each profile in use that was rendered anew."""
    names = [item["name"] for item in info.get("profiles") or () if item.get("pending")]
    return [f"pending: a new rendering of {name} waits for the switch that starts it" for name in names]


def works(info: Mapping[str, Any]) -> list[str]:
    """Return one line for each benchmark, soak and the like that runs."""
    lines = []
    for work in info.get("works") or ():
        whose = f" of {work['profile']} since {work['began_at']}" if work["profile"] else ""
        now = f": {work['now']}" if work["now"] else ""
        lines.append(f"a {work['kind'].replace('_', ' ')}{whose} runs ({work['unit']}){now}")
    return lines


def promoted(info: Mapping[str, Any]) -> list[str]:
    """Return what the last production gate said of what is served; nothing where none did."""
    gate = info.get("promotion")
    if not gate:
        return []
    words = "passed" if gate["verdict"] == "passed" else "FAILED"
    return [f"production gate: {words} at {gate['ended_at']}" + (f", {gate['summary']}" if gate["summary"] else "")]


def accepted(info: Mapping[str, Any]) -> list[str]:
    """Return one line for each rule of its stack that the profile in the slot breaks on purpose."""
    ours = [item for item in info.get("profiles") or () if item["name"] == info.get("profile")]
    rules = [rule for item in ours for rule in item.get("accepted_rules") or ()]
    return [f"breaks a rule of its stack on purpose: {rule}" for rule in rules]


def elsewhere(info: Mapping[str, Any]) -> list[str]:
    """Return where the engine of the profile in the slot is, when it is not on this host."""
    ours = [item for item in info.get("profiles") or () if item["name"] == info.get("profile")]
    urls = [item["remote"] for item in ours if item.get("remote")]
    return [f"remote: the engine is elsewhere, at {url}; this host relays to it" for url in urls]


def liveness(info: Mapping[str, Any]) -> list[str]:
    """Return what the liveness watchdog saw and did; nothing where it sees nothing wrong."""
    told = info.get("liveness")
    if not told or not told["fresh"]:
        return []
    lines = [
        f"WEDGED: {row['unit']} since {row['since']}: {row['reason']} (policy: {told['policy']})"
        for row in told["engines"]
        if row["verdict"] == "wedged"
    ]
    done, asked_last = told["action"], told["verification"]
    if done:
        came = f" ({done['outcome']})" if done["outcome"] else ""
        lines.append(f"liveness: {done['what']} at {done['at']}{came}: {done['reason']}")
    if asked_last and asked_last["passed"] is not True:
        words = "FAILED" if asked_last["passed"] is False else "could not be asked"
        lines.append(f"liveness: the canary while idle {words} at {asked_last['at']}: {asked_last['reason']}")
    faults = {card["pci"]: card["faults"] for card in told["cards"] if card["faults"]}
    if faults:
        named = ", ".join(f"{number} of {pci}" for pci, number in faults.items())
        lines.append(f"liveness: the kernel reported faults of cards: {named}; see `journalctl -k`")
    return lines


def _maintenance(info: Mapping[str, Any]) -> list[str]:
    held = info["maintenance"]
    if held is None:
        return []
    return [
        f"MAINTENANCE since {held['since']}, set by {held['who']}: {held['reason']}",
        "load balancers and plays over a fleet leave the host alone until `b70ctl maintenance --end`",
    ]


def _quarantine(info: Mapping[str, Any]) -> list[str]:
    held = info["quarantine"]
    if held is None:
        return []
    if held["reason"]:
        return [
            f"QUARANTINE since {held['since']}, set by {held['who']}: {held['reason']}",
            "the frontdoor stays closed until `b70ctl clear-quarantine`, then `b70ctl verify`",
        ]
    whose = f" with {held['profile']}" if held["profile"] else ""
    lines = [f"QUARANTINE since {held['since']}: {held['symptom']}{whose}: {held['line'] or 'no log line is known'}"]
    kept = f"evidence is in {held['evidence']}; " if held["evidence"] else ""
    return [*lines, f"{kept}no profile is taken until a reboot or `b70ctl clear-quarantine`"]


def asked(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the canary cases that were passed, and how often each was asked."""
    named = [f"{case['name']} {case['repeats']}x" if case.get("repeats") else str(case["name"]) for case in cases]
    return ", ".join(named) or "its gate"


def status(info: Mapping[str, Any]) -> list[str]:
    """Return what `api.info` knows: what is wanted, what is seen, what happens next and when, and then the details."""
    name, engine, part = info["profile"], info["engine"], led_by(info)
    said = info["wanted"]["text"] if info["wanted"] else "nothing was said yet"
    lines = [f"wanted: {said}", f"seen: slot {info['slot']} {_seen(info)}", f"next: {_next(info)}"]
    if part is None and name is not None and info["verified"] and info["open"]:
        lines.append(f"verified: {info['verified_at']} by {asked(info['verified_by'])}")
    rows = info.get("replicas") or ()
    if rows:
        lines += replicas(rows)
    elif engine is not None:
        # A part has no API.
        health = "" if part is not None else ", healthy" if engine["healthy"] else ", NOT answering /health"
        restarts = f", restarted {engine['restarts']} times by systemd" if engine["restarts"] else ""
        lines.append(f"engine: {engine['unit']} is {engine['state']} since {engine['started_at']}{health}{restarts}")
    lines += [*standby(info), *group(info), *_maintenance(info), *_quarantine(info), *liveness(info)]
    if info["drift"]:
        lines.append(f"drift: {info['drift']}")
    lines += [*promoted(info), *accepted(info), *elsewhere(info), *pending(info)]
    if info["at_work"]:
        where = f", in phase {info['progress']}" if info["progress"] else ""
        lines.append(f"at work: {info['at_work']}{where}")
    lines += works(info)
    if info["interrupted"]:
        lost = info["interrupted"]
        phase = f" in phase {lost['phase']}" if lost["phase"] else ""
        lines.append(f"a switch to {lost['to'] or 'stopped'} that began at {lost['at']} was interrupted{phase}")
        lines.append("`b70ctl recover` settles it, and so does any switch")
    lines.append(f"at boot: {', '.join(info['enabled_units']) or 'nothing'}")
    return lines


def standby(info: Mapping[str, Any]) -> list[str]:
    """Return a line for each engine that sleeps."""
    return [
        f"standby: {one['profile']} sleeps at level {one['level']} since {one['since']} and keeps "
        f"{one['bytes'] / 2**30:.1f} GiB in memory"
        for one in info.get("standby") or ()
    ]


def _seen(info: Mapping[str, Any]) -> str:
    name, part = info["profile"], led_by(info)
    if part is not None:
        return f"runs a part of {name}, which node {part} leads; clients use that one"
    if name is None:
        return f"serves nothing: {info['reason'] or info['phase']}"
    if info["open"]:
        return (
            f"serves {name} (model id {info['served_model']})" if info["verified"] else f"serves {name}, NOT verified"
        )
    why = info["reason"] or info["phase"]
    if info["phase"] in _AT_WORK:
        return f"runs {name}, not open to clients yet: {why}"
    return f"runs {name}, NOT open to clients: {why}; `b70ctl verify` verifies it"


def _next(info: Mapping[str, Any]) -> str:
    step = info["next"]
    if info["at_work"]:
        return f"what is at work ends ({info['at_work']})"
    if not step["do"]:
        return f"{step['why']}; see `systemctl status b70-controller-{info['slot']}`"
    if not step["why"]:
        return "nothing, all is as wanted"
    when = f", and tries again at {step['at']}" if step["at"] else ""
    return f"the controller waits{when}: {step['why']}"


def led_by(info: Mapping[str, Any]) -> str | None:
    """Return the node that leads the engine of which a part runs in the slot, else None."""
    told = info.get("node") or {}
    part = (told.get("own") or {}).get("part") or {}
    runs = part.get("state") == RUNS and part.get("profile") == info.get("profile")
    return str(told["leader"]) if runs else None


def group(info: Mapping[str, Any]) -> list[str]:
    """Return one line for this node, and one for each that it hears of; none where the host is in no group."""
    told = info.get("node")
    if told is None:
        return []
    leads = "it leads" if not told["rank"] else f"{told['leader']} leads"
    if told["own"] is None:
        return [f"node {told['rank']} of a group that {leads}; b70-node-{info['slot']} has not run since the boot"]
    wish, rows = told["own"]["wish"], [(told["own"]["name"], told["own"]), *told["others"].items()]
    epoch = "" if wish is None else wish["epoch"]
    wanted = f", for an engine of {wish['profile']} over {wish['count']} nodes" if wish else ""
    lines = [f"node {told['rank']} of a group that {leads}{wanted}"]
    for name, said in rows:
        part = said.get("part") if isinstance(said, Mapping) else None
        if not isinstance(said, Mapping):
            lines.append(f"node {name}: does not answer ({said})")
        elif part:
            older = f", of an engine before {epoch[:8]}" if epoch and part["epoch"] != epoch else ""
            why = f" ({part['reason']})" if part["reason"] else ""
            lines.append(f"node {name}: its part of {part['profile']} {part['state']}{why}{older}")
    return lines


def replicas(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many engines of a profile are served, and one line for each."""
    served = sum(bool(row["open"]) for row in rows)
    lines = [f"{'' if served == len(rows) else 'DEGRADED: '}{served} of {len(rows)} replicas are served"]
    for row in rows:
        engine = row["engine"]
        words = ("open, verified" if row["verified"] else "open, NOT verified") if row["open"] else "closed"
        why = f" ({row['reason']})" if row["reason"] else ""
        cards = f", card {', '.join(map(str, row['cards']))}" if row["cards"] else ""
        health = "healthy" if engine["healthy"] else "NOT answering /health"
        restarts = f", restarted {engine['restarts']} times by systemd" if engine["restarts"] else ""
        lines.append(
            f"replica {row['index']}: {words}{why}; {engine['unit']} is {engine['state']}{cards}, "
            f"{row['backend_url']}, {health}{restarts}"
        )
    return lines


def last(
    switches: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return those of both that are among the last so many of all. Both are in the order of time, and stay so."""
    moments = sorted([item["at"] for item in switches] + [item["began_at"] for item in records])
    since = min(moments[-count:], default="")
    return (
        [item for item in switches if item["at"] >= since][-count:],
        [item for item in records if item["began_at"] >= since][-count:],
    )


def history(switches: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Return one line per switch and per record."""
    if not switches and not records:
        return ["no switch is in the journal"]
    rows = []
    for item in switches:
        outcome = item["outcome"] or f"no end, in {item['phase'] or 'journal'}"
        way = f"{item['from'] or '-'} -> {item['to'] or '-'}"
        closed = item.get("turned_away_s")
        kept = f"{item['way']}, closed for {closed:.1f} s" if closed is not None and item["way"] != "plain" else ""
        said = [text for text in (kept, item["reason"], f"why: {item['why']}" if item["why"] else "") if text]
        rows.append([item["at"], item["kind"], way, outcome, _tenths(item["seconds"]), item["who"], "; ".join(said)])
    for item in records:
        about = [item["verdict"], _tenths(item["seconds"]), "", item["summary"]]
        rows.append([item["began_at"], item["kind"], item["profile"], *about])
    return columns(["AT", "KIND", "FROM -> TO", "OUTCOME", "SECONDS", "WHO", "REASON"], sorted(rows, key=itemgetter(0)))


def _tenths(seconds: float | None) -> str:
    return "" if seconds is None else f"{float(seconds):.1f}"


def completion(words: Mapping[str, Sequence[str]], profiles_dir: str) -> list[str]:
    """Return a script for bash: the command's words, their options, and the names of profiles where one is wanted."""
    cases = [f"    {name}) options='{' '.join(options)}' ;;" for name, options in words.items()]
    return [
        "_b70ctl() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" options="" file',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    mapfile -t COMPREPLY < <(compgen -W '{' '.join(words)}' -- \"$word\")",
        "    return",
        "  fi",
        '  case "${COMP_WORDS[1]}" in',
        *cases,
        "  esac",
        '  case "${COMP_WORDS[1]}" in',
        f"    switch|record) for file in {profiles_dir}/*.json; do",
        '      file="${file##*/}"; options+=" ${file%.json}"; done ;;',
        "  esac",
        '  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")',
        "}",
        "complete -F _b70ctl b70ctl",
    ]


def result(data: Mapping[str, Any]) -> list[str]:
    """Return the end of a switch: its one sentence, then what a failure left behind."""
    lines = [str(data["msg"]), *(f"note: {text}" for text in data["warnings"])]
    if data["recorded"]:
        lines.append(f"recorded as baseline: {', '.join(data['recorded'])}")
    failure = data["failure"]
    return lines if failure is None else [*lines, *evidence(failure)]


def evidence(failure: Mapping[str, Any]) -> list[str]:
    """Return what a failed phase left behind: its cause, what the kernel says, the end of the engine's log and the
    whole."""
    lines = [f"cause: {line}" for line in failure.get("cause") or ()]
    lines += [f"kernel: {line}" for line in failure.get("kernel") or ()]
    # The line of the cause is not repeated.
    told = {line.removeprefix("cause: ") for line in lines}
    tail = [line for line in failure.get("log_tail") or () if line not in told]
    lines += [f"log: {line}" for line in tail[-LOG_LINES:]]
    if failure.get("log"):
        lines.append(f"the whole log: {failure['log']}")
    return lines


def not_looked_at(parts: Sequence[str]) -> str:
    """Return what a prediction took to be there, as a sentence without its full stop."""
    return f"Not looked at, because this play would install it first: {', '.join(parts)}"
