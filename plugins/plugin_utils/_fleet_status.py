# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts in one table: what each serves, and what differs from most hosts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face.table import columns, led_by

MIN_WIDTH, MAX_WIDTH = 100, 140
# A host that differs from most hosts in one of these has a mark there.
COMPARED = ("profile", "fingerprint", "stack")
MARK = "*"
_HEAD = ("HOST", "PROFILE", "PHASE", "VERIFIED", "ACTIVE", "FINGERPRINT", "LAST SWITCH", "CARDS")
_BALANCER = 4  # the place of that column, where there are load balancers
# The columns of names. They are cut when the table is too wide, but not below this width.
_CUT = (0, 1)
_SHORTEST = 8
# The share of a cut host name that is from its start: hosts are numbered at the end.
_HOST_START = 0.25
_GAP = 2
_NOTES_PER_HOST = 4


def fleet(
    results: Mapping[str, Mapping[str, Any] | None], balancers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> dict[str, Any]:
    """Return the document about all hosts.

    `results` has what b70_model_slot_info returned, by host name in the order of the inventory; None or a failed result
    for a host that was not read. `balancers` has what b70_load_balancer_member returned on each load balancer, by host.
    """
    hosts = [_host(name, result) for name, result in results.items()]
    for host in hosts:
        host["balancer"] = _balancer((balancers or {}).get(host["host"], ()))
        host["missing"] = _missing(host, results[host["host"]] or {})
    most = {key: _most(host[key] for host in hosts) for key in COMPARED}
    for host in hosts:
        read = not host["problem"]
        host["differs"] = [key for key in COMPARED if read and most[key] is not None and host[key] != most[key]]
    read_hosts = [host for host in hosts if not host["problem"]]
    counts = {
        "hosts": len(hosts),
        "verified": sum(1 for host in read_hosts if host["open"] and host["verified"]),
        "not_read": len(hosts) - len(read_hosts),
        "missing": sum(1 for host in hosts if host["missing"]),
        "differing": sum(1 for host in hosts if host["differs"]),
    }
    return {"hosts": hosts, "most": most, "counts": counts}


def _host(name: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what one host says, under the same keys for every host."""
    info: Mapping[str, Any] = {}
    problem = ""
    if result is None or result.get("unreachable"):
        problem = f"unreachable: {(result or {}).get('msg') or 'the host did not answer'}"
    elif result.get("failed") or "slot" not in result:
        problem = f"not read: {result.get('msg') or 'the slot could not be read'}"
    else:
        info = result
    switches = info.get("switches") or []
    last = switches[-1] if switches else None
    held = info.get("quarantine")
    return {
        "host": name,
        "problem": problem,
        "profile": info.get("profile"),
        "phase": info.get("phase"),
        "open": info.get("open"),
        "verified": info.get("verified"),
        "reason": info.get("reason"),
        "fingerprint": info.get("fingerprint"),
        "stack": info.get("stack"),
        "frontdoor": info.get("frontdoor"),
        "last_switch": last and {key: last.get(key) for key in ("at", "kind", "from", "to", "outcome", "reason")},
        "quarantine": held and {key: held.get(key) for key in ("since", "symptom")},
        "maintenance": info.get("maintenance"),
        "cards": info.get("cards"),
        "replicas": [row["open"] for row in info.get("replicas") or []],
        "drift": info.get("drift"),
        "at_work": info.get("at_work"),
        "progress": info.get("progress"),
        "interrupted": bool(info.get("interrupted")),
        "led_by": led_by(info),
    }


def _balancer(told: Sequence[Mapping[str, Any]]) -> str | None:
    """Return in a word what the load balancers do with a host; None without load balancers."""
    if not told:
        return None
    heard = [one for one in told if one.get("answered")]
    if not heard:
        return "no answer"
    known = [one for one in heard if one.get("known")]
    states = [server["state"] for one in known for server in one.get("servers") or ()]
    closed = next((state for state in states if state != "ready"), "")
    if not known:
        return "unknown"
    return closed or ("yes" if all(one.get("in_service") for one in known) else "down")


def _missing(host: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return why a host does not serve although it should; empty if it does, or need not. A person may have said so."""
    wanted = result.get("wanted")
    should = host["profile"] if wanted is None else wanted.get("profile")
    if host["problem"] or host["maintenance"] or host["led_by"] or not should:
        return ""
    if not (host["open"] and host["verified"]):
        return f"does not serve {should}: {host['reason'] or host['phase']}"
    cut_off = host["balancer"] in ("drained", "maintenance", "down")
    return f"serves {should}, and a load balancer sends it nothing: it is {host['balancer']} there" if cut_off else ""


def _most(values: Any) -> str | None:
    """Return the most common value, the first one among equals; None if no host has one."""
    counted = Counter(value for value in values if value)
    return counted.most_common(1)[0][0] if counted else None


def table(document: Mapping[str, Any], width: int = MAX_WIDTH) -> list[str]:
    """Return the lines of the table, the notes on hosts that need attention, and a summary.

    No line is wider than `width`, which is limited to MIN_WIDTH to MAX_WIDTH.
    """
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    hosts = document["hosts"]
    names = short_names([host["host"] for host in hosts])
    rows = [_HEAD, *((name, *_row(host)) for name, host in zip(names, hosts, strict=True))]
    if any(host["balancer"] for host in hosts):
        told = ("BALANCER", *(host["balancer"] or "-" for host in hosts))
        rows = [(*row[:_BALANCER], cell, *row[_BALANCER:]) for row, cell in zip(rows, told, strict=True)]
    limits = _limits(rows, width)
    rows = [(cut(row[0], limits[0], _HOST_START), cut(row[1], limits[1]), *row[2:]) for row in rows]
    notes = [f"{host['host']}: {note}" for host in hosts for note in _notes(host, document["most"])]
    lines = columns(rows[0], rows[1:])
    return [cut(line, width) for line in (*lines, *([""] if notes else []), *notes, "", *_summary(document))]


def _row(host: Mapping[str, Any]) -> tuple[str, ...]:
    if host["problem"]:
        return (host["problem"].partition(":")[0].upper(), "-", "-", "-", "-", "-", "-")
    shown = {"profile": host["profile"] or "-", "fingerprint": short(host["fingerprint"])}
    marked = {key: text + (MARK if key in host["differs"] else "") for key, text in shown.items()}
    runs = host["profile"] is not None
    verified = "-" if not runs or host["led_by"] else "yes" if host["verified"] else "NO"
    last = _switch(host["last_switch"], bool(host["at_work"]))
    return (
        marked["profile"],
        str(host["phase"] or "-"),
        verified,
        _active(host["frontdoor"]),
        marked["fingerprint"],
        last,
        _cards(host["cards"] or []),
    )


def short(fingerprint: str | None) -> str:
    """Return the first characters of a fingerprint, enough to tell those of a fleet apart."""
    return fingerprint.rpartition(":")[2][:10] if fingerprint else "-"


def _active(load: Mapping[str, Any] | None) -> str:
    """Return how many generations run, of how many that may, and how many wait."""
    if not load:
        return "-"
    return f"{load['active']}/{load['max_active']}" + (f" +{load['queued']}" if load["queued"] else "")


def _switch(last: Mapping[str, Any] | None, at_work: bool) -> str:
    if not last:
        return "-"
    moment = str(last["at"] or "")[5:16].replace("T", " ")
    return f"{moment} {last['outcome'] or ('runs' if at_work else 'no end')}"


def _cards(cards: Sequence[Mapping[str, Any]]) -> str:
    """Return how many cards there are, and how much of their memory is in use if the driver tells it of them all."""
    sizes = [(card["used_bytes"], card["total_bytes"]) for card in cards]
    told = [size for size in sizes if None not in size]
    if not cards or len(told) < len(cards):
        return str(len(cards))
    return f"{len(cards)} {100 * sum(used for used, _total in told) // sum(total for _used, total in told)}%"


def _notes(host: Mapping[str, Any], most: Mapping[str, str | None]) -> list[str]:
    """Return what a person should know about one host, most important first."""
    if host["problem"]:
        return [" ".join(host["problem"].split())]
    notes = []
    if host["maintenance"]:
        rests = host["maintenance"]
        notes.append(f"in maintenance since {rests['since']} ({rests['who']}): {rests['reason']}")
    if host["quarantine"]:
        notes.append(f"quarantine since {host['quarantine']['since']} ({host['quarantine']['symptom']})")
    if host["at_work"]:
        notes.append(f"at work: {host['at_work']}" + (f", {host['progress']}" if host["progress"] else ""))
    elif host["led_by"]:
        notes.append(f"part of {host['profile']}, led by {host['led_by']}")
    elif not host["open"]:
        notes.append(f"not open to clients: {host['reason'] or host['phase']}")
    elif not all(host["replicas"]):
        notes.append(f"degraded: {sum(host['replicas'])} of {len(host['replicas'])} replicas are served")
    if host["missing"] and host["open"]:
        notes.append(host["missing"])
    if host["interrupted"]:
        notes.append("a switch was interrupted")
    if host["drift"]:
        notes.append(f"drift: {host['drift']}")
    if "stack" in host["differs"]:
        notes.append(f"stack {host['stack'] or '-'}{MARK}, most have {most['stack']}")
    return [" ".join(note.split()) for note in notes[:_NOTES_PER_HOST]]


def _summary(document: Mapping[str, Any]) -> list[str]:
    counts, most = document["counts"], document["most"]
    parts = [f"{counts['verified']} of {counts['hosts']} hosts serve a verified model"]
    parts += [f"{counts['missing']} should serve and do not"] if counts["missing"] else []
    parts += [f"{counts['not_read']} could not be read"] if counts["not_read"] else []
    parts += [f"{counts['differing']} differ from most ({MARK})"] if counts["differing"] else []
    lines = ["; ".join(parts)]
    if most["profile"]:
        lines.append(
            f"most: profile {most['profile']}, fingerprint {short(most['fingerprint'])}, stack {most['stack']}"
        )
    return lines


def _limits(rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Return how wide the columns of names may be so that the table fits; the widest is narrowed first."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    limits = {index: widths[index] for index in _CUT}
    names = {row[0] for row in rows[1:]}
    while over > 0:
        # Two hosts never get the same name.
        can = {
            index
            for index, limit in limits.items()
            if limit > _SHORTEST and (index or len({cut(name, limit - 1, _HOST_START) for name in names}) == len(names))
        }
        if not can:
            break
        limits[max(can, key=lambda index: limits[index])] -= 1
        over -= 1
    return limits


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names without the domain that all of them share."""
    domains = {name.partition(".")[2] for name in names}
    heads = [name.partition(".")[0] for name in names]
    shared = len(names) > 1 and len(domains) == 1 and not heads[0].isdigit()
    return heads if shared and len(set(heads)) == len(names) else list(names)


def cut(text: str, width: int, start: float = 0.5) -> str:
    """Return the text within a width. The middle is left out; `start` is the share of the start in the rest."""
    if len(text) <= width:
        return text
    first = max(1, int((width - 1) * start + 0.5))
    return f"{text[:first]}…{text[len(text) - (width - 1 - first) :]}"
