# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page with all records of a fleet. Pure: data in, text out."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import groupby

from ansible_collections.arcpro.b70.plugins.plugin_utils._page import document

from .figures import ProfileRecords, Record, StreamFigures, best, change, changed, comparable, levels, places, same
from .plot import COLOURS, STYLE, PlotSeries, chart

_LEVEL = {"passed": "PASS", "failed": "FAIL", "unfinished": "WARN"}
_STYLE = """
td.n, th.n { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
section { border-top: 2px solid var(--line); margin-top: 2rem; } h3 { margin: 1.6rem 0 .2rem; }
.about { margin: .1rem 0 .6rem; opacity: .8; } .wide { overflow-x: auto; }
"""
_NONE = "-"
# Smaller differences are noise.
_NOTABLE = 0.03
_ANOMALIES = 20
# With more places their figures are folded, so that the page stays readable.
_OPEN = 6


def evidence_page(hosts: Mapping[str, Sequence[Record]], problems: Sequence[str]) -> str:
    """Return the page: an overview, then each profile on each host. problems: records that could not be read."""
    found = places(hosts)
    count = sum(len(place.records) for place in found)
    newest = max((record["ended_at"] for place in found for record in place.records), default="")
    told = f"{_many(count, 'record')} of {_many(len({place.host for place in found}), 'host')}"
    lines = [f"<p>{told}{f'; the newest ended at {newest}' if newest else ''}.</p>"]
    if problems:
        items = "".join(f"<li>{html.escape(problem)}</li>" for problem in problems)
        lines.append(f'<p class="WARN">Left out, because they are not as the schema says:</p><ul>{items}</ul>')
    if found:
        lines.append(_overview(found))
    for profile, group in groupby(found, key=lambda place: place.profile):
        inside = "".join(_place(place, len(found) <= _OPEN) for place in group)
        lines.append(f'<section><h2 id="{_id(profile)}">{html.escape(profile)}</h2>{inside}</section>')
    return document("What was measured and proven", "".join(lines), STYLE + _STYLE)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _id(*parts: str) -> str:
    return html.escape("--".join(parts).replace(" ", "_"), quote=True)


def _overview(found: Sequence[ProfileRecords]) -> str:
    head = ("profile", "host", "best rate", "with", "since before", "benchmark", "soak", "context", "promotion")
    numbers = ("best rate", "since before")
    heads = "".join(f"<th{_n(name in numbers)}>{name}</th>" for name in head)
    return f'<div class="wide"><table><tr>{heads}</tr>{"".join(map(_row, found))}</table></div>'


def _n(number: bool) -> str:
    return ' class="n"' if number else ""


def _row(place: ProfileRecords) -> str:
    measured = place.measured()
    top = best(measured[0]) if measured else None
    with_what = f"{_many(top.streams, 'stream')}, {top.shape}" if top else ""
    cells = [
        f'<td><a href="#{_id(place.profile)}">{html.escape(place.profile)}</a></td>',
        f'<td><a href="#{_id(place.profile, place.name)}">{html.escape(place.name)}</a></td>',
        f'<td class="n">{_rate(top.tok_s if top else None)}</td>',
        f"<td>{html.escape(with_what)}</td>",
        _change(change(top.tok_s, _before(measured, top)) if top else None, 1),
        *(_verdict(place, kind) for kind in ("benchmark", "soak", "context_search", "promotion")),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _before(measured: Sequence[Record], level: StreamFigures, ttft: bool = False) -> float | None:
    """Return the figure of the record before, or None if the two can't be compared."""
    if len(measured) < 2 or not comparable(*measured[:2]):
        return None
    old = same(measured[1], level)
    return None if old is None else old.ttft_s[0] if ttft else old.tok_s


def _verdict(place: ProfileRecords, kind: str) -> str:
    found = place.of(kind)
    if not found:
        return '<td class="SKIP">none</td>'
    verdict, day = found[0]["verdict"], found[0]["began_at"][:10]
    return f'<td class="{_LEVEL[verdict]}">{verdict}<br><small>{day}</small></td>'


def _rate(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f} tok/s" if value >= 100 else f"{value:.1f} tok/s"


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _change(share: float | None, better: int) -> str:
    """Return a cell with a change. better: 1 if more is better, -1 if less is better."""
    if share is None:
        return f'<td class="n SKIP">{_NONE}</td>'
    level = "SKIP" if abs(share) < _NOTABLE else "PASS" if share * better > 0 else "FAIL"
    return f'<td class="n {level}">{share * 100:+.1f} %</td>'


def _place(place: ProfileRecords, opened: bool) -> str:
    newest, measured = place.records[0], place.measured()
    about = [newest["host"]["class"], f"kernel {newest['host']['kernel']}"]
    if newest["engine"]:
        about.append("{name} {version}".format(**newest["engine"]))
    if newest["stack"]:
        about.append(f"stack {newest['stack']}")
    told = html.escape("; ".join(about))
    inside = [_kinds(place)]
    if measured:
        inside += [_plots(measured), _compared(measured), _table(measured)]
    inside += [_soak(place), _all(place)]
    body = "".join(inside)
    return f'<h3 id="{_id(place.profile, place.name)}">{html.escape(place.name)}</h3><p class="about">{told}</p>' + (
        body if opened else f"<details><summary>Figures and records</summary>{body}</details>"
    )


def _kinds(place: ProfileRecords) -> str:
    rows = "".join(
        f"<tr><td>{_words(record)}</td><td>{record['began_at'][:10]}</td>"
        f'<td class="{_LEVEL[record["verdict"]]}">{record["verdict"]}</td><td>{_said(record)}</td></tr>'
        for record in place.newest()
    )
    return f"<table><tr><th>newest</th><th>on</th><th>verdict</th><th>result</th></tr>{rows}</table>"


def _words(record: Record) -> str:
    return html.escape(record["kind"].replace("_", " "))


def _said(record: Record) -> str:
    summary = record["data"].get("summary")
    lines = [*([summary] if summary else []), *(line for line in record["reasons"] if line != summary)]
    return "<br>".join(html.escape(line) for line in lines)


def _plots(measured: Sequence[Record]) -> str:
    pairs = [(measured[0], False)]
    if len(measured) > 1 and comparable(*measured[:2]):
        pairs.insert(0, (measured[1], True))
    every = list(dict.fromkeys(level.shape for level in levels(measured[0])))
    shapes = [shape for shape in every if "," not in shape][:COLOURS] or every[:COLOURS]
    rates, waits = [], []
    for record, old in pairs:
        when = f" on {record['began_at'][:10]}" if old else ""
        for number, shape in enumerate(shapes):
            there = sorted((level for level in levels(record) if level.shape == shape), key=lambda level: level.streams)
            rate = [(level.streams, level.tok_s) for level in there if level.tok_s is not None]
            wait = [(level.streams, level.ttft_s[0]) for level in there if level.ttft_s[0] is not None]
            rates.append(PlotSeries(shape + when, rate, number, old))
            waits.append(PlotSeries(shape + when, wait, number, old))
    both = chart("Output rate", "streams", "tok/s", rates) + chart("First token, median", "streams", "s", waits)
    return f'<div class="plots">{both}</div>'


def _compared(measured: Sequence[Record]) -> str:
    if len(measured) < 2:
        return "<p>No benchmark before it.</p>"
    new, old = measured[:2]
    differs = changed(new, old)
    items = f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in differs)}</ul>" if differs else ""
    head = f"Since the benchmark of {old['began_at'][:10]}: "
    note = "" if comparable(new, old) else " Figures are not compared between different machines."
    return f"<p>{head}{'' if differs else 'nothing but the figures changed.'}{note}</p>{items}"


def _table(measured: Sequence[Record]) -> str:
    rows = []
    for level in levels(measured[0]):
        failed = f'<td class="n{" FAIL" if level.failed else ""}">{level.failed}</td>'
        rows.append(
            f'<tr><td>{html.escape(level.shape)}</td><td class="n">{level.streams}</td>'
            f'<td class="n">{_rate(level.tok_s)}</td>{_change(change(level.tok_s, _before(measured, level)), 1)}'
            f'<td class="n">{_seconds(level.ttft_s[0])}</td>'
            f"{_change(change(level.ttft_s[0], _before(measured, level, ttft=True)), -1)}"
            f'<td class="n">{_seconds(level.ttft_s[1])}</td>{failed}</tr>'
        )
    head = ("streams", "rate", "change", "first token", "change", "of 95 %", "failed requests")
    heads = "".join(f'<th class="n">{name}</th>' for name in head)
    return f'<div class="wide"><table><tr><th>shape</th>{heads}</tr>{"".join(rows)}</table></div>'


def _soak(place: ProfileRecords) -> str:
    """Return what the newest soak saw: the rate of each cycle, and each anomaly."""
    found = place.of("soak")
    if not found:
        return ""
    data = found[0]["data"]
    cycles = [cycle for cycle in data.get("cycles") or [] if (cycle["load"] or {}).get("tok_s")]
    loads = PlotSeries("load", [(cycle["number"], cycle["load"]["tok_s"]) for cycle in cycles], 0)
    drawn = chart(f"Soak of {found[0]['began_at'][:10]}", "cycle", "tok/s", [loads])
    told = [
        f"cycle {row['cycle']}: {row['case']} was answered {row['got']!r} for {row['expected']!r}: {row['class']}"
        for row in data.get("anomalies") or []
    ]
    items = "".join(f"<li>{html.escape(line)}</li>" for line in told[:_ANOMALIES])
    more = f"<li>and {len(told) - _ANOMALIES} more</li>" if len(told) > _ANOMALIES else ""
    return (f'<div class="plots">{drawn}</div>' if drawn else "") + (f"<ul>{items}{more}</ul>" if told else "")


def _all(place: ProfileRecords) -> str:
    rows = "".join(
        f"<tr><td>{record['began_at'].replace('T', ' ')}</td><td>{_words(record)}</td>"
        f'<td class="{_LEVEL[record["verdict"]]}">{record["verdict"]}</td>'
        f'<td><a href="{_file(place, record)}"><code>{record["id"]}</code></a></td></tr>'
        for record in place.records
    )
    return f"<details><summary>{_many(len(place.records), 'record')}</summary><table>{rows}</table></details>"


def _file(place: ProfileRecords, record: Record) -> str:
    return html.escape(f"{place.host}/{record['kind']}/{record['id']}.json", quote=True)
