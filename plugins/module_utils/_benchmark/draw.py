# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw charts as files with matplotlib.

The Python of the tools' environment runs this file, which needs nothing else of the collection. Standard input:
``{NAME: {title, x, y, series: [{name, points: [[x, y]]}]}}``. Standard output: ``{FILE: base64}``, a PNG and an SVG of
each.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from typing import Any


def draw(charts: dict[str, Any]) -> dict[str, str]:
    from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]

    files = {}
    for name, chart in charts.items():
        figure = Figure(figsize=(7.5, 4.5), layout="constrained")
        axes = figure.subplots()
        for series in chart["series"]:
            xs, ys = zip(*series["points"], strict=True)
            axes.plot(xs, ys, marker="o", label=series["name"])
        axes.set(title=chart["title"], xlabel=chart["x"], ylabel=chart["y"])
        axes.set_xticks(sorted({x for series in chart["series"] for x, _y in series["points"]}))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        for kind in ("png", "svg"):
            out = io.BytesIO()
            figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
            files[f"{name}.{kind}"] = base64.b64encode(out.getvalue()).decode()
    return files


if __name__ == "__main__":
    json.dump(draw(json.load(sys.stdin)), sys.stdout)
