# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures of the dashboards for docs/images: python tests/tools/shoot_dashboards.py FOLDER [SECONDS]

They are no screenshots of Grafana. The queries of the panels are put to a real Prometheus that watches two played hosts
(tests/monitored.py) under load for so many seconds, and their answers are drawn by this project's own charts.
"""

from __future__ import annotations

import asyncio
import html
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (".cache/collections", "tests", "tests/lab", "roles/frontdoor/files/frontdoor/src")
sys.path[:0] = [str(ROOT / name) for name in _SOURCES]

from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.plot import STYLE, PlotSeries, chart  # noqa: E402
from monitored import Watched, watched  # noqa: E402
from page.browser import started  # noqa: E402
from tools.dashboards import Dashboard, Panel, Query, dashboards  # noqa: E402

POINTS = 40
WIDTH = 1240
_LINES = 6
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><style>
body { color: #1b1f24; font: 14px system-ui, sans-serif; margin: 24px; width: 1180px; --line: #d9dde2; }
h1 { font-size: 20px; } h2 { font-size: 15px; margin: 18px 0 6px; } h4 { font-weight: 600; margin: 4px 0; }
.stats { display: flex; gap: 48px; } .stats b { display: block; font-size: 28px; } .wide { grid-column: 1 / -1; }
table { border-collapse: collapse; text-align: left; }
td, th { border-bottom: 1px solid var(--line); padding: 3px 12px 3px 0; }
figure.plot { break-inside: avoid; } footer { color: #6b6f76; margin-top: 16px; }
"""
_UNITS = {"s": "seconds", "percentunit": "share", "reqps": "per second", "bytes": "bytes", "Bps": "bytes per second"}
_PREFIXES = (("10⁹ ", 1e9), ("10⁶ ", 1e6))
_UNITS |= {"celsius": "°C", "watt": "W", "rotrpm": "rpm", "hertz": "Hz", "short": "number"}


def _name(query: Query, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), query.legend) or "all"


def _expression(query: Query) -> str:
    return query.expr.replace("$instance", ".*").replace("$__rate_interval", "15s")


async def _lines(run: Watched, panel: Panel, start: float, end: float) -> str:
    """A panel with lines. Those that are always 0 are left out where others are not, and so are most of very many."""
    series = []
    for query in panel.queries:
        for row in await run.range(_expression(query), start, end, (end - start) / POINTS):
            values = [(round(at - start), float(value)) for at, value in row["values"]]
            series.append((_name(query, row["metric"]), [one for one in values if math.isfinite(one[1])]))
    told = ([one for one in series if any(value for _at, value in one[1])] or series)[:_LINES]
    most = max((value for _name, points in told for _at, value in points), default=0)
    prefix, factor = next(((word, size) for word, size in _PREFIXES if most >= size), ("", 1))
    drawn = [
        PlotSeries(name, [(at, value / factor) for at, value in points], number)
        for number, (name, points) in enumerate(told)
    ]
    return chart(panel.title, "s", prefix + _UNITS[panel.unit], drawn)


async def _table(run: Watched, panel: Panel) -> str:
    rows = [row["metric"] for row in await run.value(_expression(panel.queries[0]))]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in ("__name__", "job")]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    cells = ("".join(f"<td>{html.escape(row.get(name, ''))}</td>" for name in names) for row in rows)
    body = "".join(f"<tr>{one}</tr>" for one in cells)
    return f'<div class="wide"><h4>{html.escape(panel.title)}</h4><table><tr>{head}</tr>{body}</table></div>'


async def _stat(run: Watched, panel: Panel) -> str:
    (row,) = await run.value(_expression(panel.queries[0]))
    return f"<span><b>{float(row['value'][1]):g}</b>{html.escape(panel.title)}</span>"


async def page_of(run: Watched, one: Dashboard, start: float, end: float) -> str:
    """A dashboard as a page."""
    parts = []
    for title, panels in one.rows.items():
        stats = [await _stat(run, panel) for panel in panels if panel.kind == "stat"]
        drawn = [
            await _table(run, panel) if panel.kind == "table" else await _lines(run, panel, start, end)
            for panel in panels
            if panel.kind != "stat"
        ]
        parts.append(f'<h2>{html.escape(title)}</h2><div class="stats">{"".join(stats)}</div>')
        parts.append(f'<div class="plots">{"".join(drawn)}</div>')
    note = "Drawn from the queries of the dashboard, on two played hosts. Not a screenshot of Grafana."
    return f"{_PAGE}{STYLE}</style><h1>{html.escape(one.title)}</h1>{''.join(parts)}<footer>{note}</footer></html>"


async def pages(folder: Path, seconds: float) -> dict[str, str]:
    """All dashboards as pages, after some time under load."""
    script = ["sh", str(ROOT / "tests" / "tools" / "prometheus.sh")]
    programs = Path(subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip())
    async with watched(folder, programs) as run, run.busy():
        start = time.time() + 15
        while time.time() < start + seconds:
            run.read_cards()
            await asyncio.sleep(1)
        end = time.time()
        return {one.name: await page_of(run, one, start, end) for one in dashboards()}


def main(argv: list[str]) -> int:
    """Write a picture of each dashboard."""
    folder, seconds = Path(argv[0]), float(argv[1]) if argv[1:] else 120.0
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        drawn: Mapping[str, Any] = asyncio.run(pages(Path(place), seconds))
        with started() as browser:
            for name, text in drawn.items():
                file = Path(place) / f"{name}.html"
                file.write_text(text)
                browser.look(WIDTH, 800, dark=False)
                browser.open(file.as_uri())
                browser.shoot(folder / f"dashboard-{name}.png", whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
