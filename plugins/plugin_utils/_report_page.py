# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page with all hosts of a report. Pure: data in, text out."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.examine import counts
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Level
from ansible_collections.arcpro.b70.plugins.plugin_utils._page import document


def index_page(reports: Sequence[Mapping[str, Any]], made: str) -> str:
    """Return a self-contained page with all hosts of a report (no script, nothing loaded).

    Each report has `host`, `archive` (file name beside the page, empty if none was brought), `problem` (why not, else
    empty), and of b70_report `size`, `findings`, `contents` and `redactions`.
    """
    rows = "".join(_row(report) for report in reports)
    parts = "".join(_section(report) for report in reports)
    return document(
        f"Report of {len(reports)} host{'' if len(reports) == 1 else 's'}",
        f"<p>Made {html.escape(made)}. "
        "Secrets, people's names and home directories were taken out on the hosts, by pattern: read an archive before "
        "you hand it on.</p><table><tr><th>host</th><th>findings</th><th>archive</th><th>taken out</th></tr>"
        f"{rows}</table>{parts}",
    )


def _row(report: Mapping[str, Any]) -> str:
    numbers = counts(report.get("findings") or [])
    shown = " ".join(f'<span class="{level}">{numbers[level]} {level}</span>' for level in numbers if numbers[level])
    name = html.escape(str(report["host"]))
    if report.get("archive"):
        file = html.escape(str(report["archive"]), quote=True)
        archive = f'<a href="{file}">{file}</a> ({int(report.get("size", 0)) / 1000:.0f} kB)'
    else:
        archive = f'<span class="FAIL">none: {html.escape(str(report.get("problem", "")))}</span>'
    taken = sum((report.get("redactions") or {}).values())
    return f'<tr><td><a href="#{name}">{name}</a></td><td>{shown}</td><td>{archive}</td><td>{taken}</td></tr>'


def _section(report: Mapping[str, Any]) -> str:
    name = html.escape(str(report["host"]))
    findings = [item for item in report.get("findings") or [] if item["level"] in (Level.FAIL, Level.WARN)]
    told = "".join(
        f'<tr><td class="{item["level"]}">{item["level"]}</td><td><code>{html.escape(item["id"])}</code></td>'
        f"<td>{html.escape(item['summary'])}<pre>{html.escape(chr(10).join(item['evidence']))}</pre>"
        f"<div>{html.escape(item['meaning'])}</div><div><b>Do:</b> {html.escape(item['fix'])}</div>"
        f"{'<div>Known from ' + html.escape(item['source']) + '</div>' if item['source'] else ''}</td></tr>"
        for item in findings
    )
    inside = "".join(
        f"<tr><td><code>{html.escape(item['name'])}</code></td><td>{html.escape(item['source'])}</td>"
        f"<td>{html.escape(item['problem']) or _size(item)}</td></tr>"
        for item in report.get("contents") or []
    )
    return (
        f'<h2 id="{name}">{name}</h2>'
        + (f"<table>{told}</table>" if told else "<p>No finding.</p>")
        + (f"<details><summary>What is in the archive</summary><table>{inside}</table></details>" if inside else "")
    )


def _size(item: Mapping[str, Any]) -> str:
    return f"{item['bytes']} bytes{' (the end of it)' if item['truncated'] else ''}"


def of_hosts(results: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Return the rows of `index_page`, one for each host, from the result of its task b70_report, or None."""
    rows = []
    for host, result in results.items():
        made = result or {}
        lost = result is None or made.get("unreachable")
        failed = str(made.get("msg") or "failed") if made.get("failed") else ""
        row = {key: made[key] for key in ("size", "findings", "contents", "redactions") if key in made and not failed}
        archive = f"{host}.tar.gz" if row.get("size") else ""
        rows.append(
            {**row, "host": host, "archive": archive, "problem": "the host could not be reached" if lost else failed}
        )
    return rows
