# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the dashboards of the role monitoring as Grafana reads them, from dashboards.yml, with Grafana's own library.

``--check`` changes nothing and ends with 1 when a file is not as it would be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("dashboards.yml")
FOLDER = Path("roles/monitoring/files/dashboards")
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH = {"stat": 4, "timeline": 24, "table": 24}
_HEIGHT = {"stat": 4, "timeline": 6}


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and what names its lines."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel. unit: as Grafana calls it; kind: lines, stat, table or timeline; about: what its title does not say."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "lines"
    about: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A dashboard: its name, its title, and rows of panels by their titles."""

    name: str
    title: str
    rows: dict[str, tuple[Panel, ...]]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows.values() for panel in row)


def _panel_of(told: Mapping[str, Any]) -> Panel:
    return Panel(**{**told, "queries": tuple(Query(**query) for query in told["queries"])})


def dashboards() -> tuple[Dashboard, ...]:
    """All of them, from their table."""
    found = yaml.safe_load(TABLE.read_text())
    return tuple(
        Dashboard(name, told["title"], {row["title"]: tuple(map(_panel_of, row["panels"])) for row in told["rows"]})
        for name, told in found.items()
    )


def _query(number: int, asked: Query, kind: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().datasource(_SOURCE).ref_id(chr(ord("A") + number)).expr(asked.expr)
    if kind == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    query = query.instant() if kind == "stat" else query.range()
    return query.legend_format(asked.legend) if asked.legend else query


def _panel(panel: Panel) -> Any:
    kinds = {"lines": timeseries, "stat": stat, "table": table, "timeline": statetimeline}
    built = kinds[panel.kind].Panel().title(panel.title).datasource(_SOURCE)
    built = built.span(_WIDTH.get(panel.kind, 12)).height(_HEIGHT.get(panel.kind, 8))
    if panel.about:
        built = built.description(panel.about)
    if panel.kind != "table":
        built = built.unit(panel.unit)
    if panel.kind == "lines":
        legend = common.VizLegendOptions().show_legend(True).placement(common_models.LegendPlacement.BOTTOM)
        built = built.legend(legend).min(0).fill_opacity(8)
    for number, asked in enumerate(panel.queries):
        built = built.with_target(_query(number, asked, panel.kind))
    return built


def document(one: Dashboard) -> str:
    """A dashboard as Grafana reads it."""
    hosts = (
        dashboard.QueryVariable("instance")
        .label("host")
        .datasource(_SOURCE)
        .query("label_values(b70_frontdoor_info, instance)")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".*")
        .multi(True)
    )
    built = (
        dashboard.Dashboard(one.title)
        .uid(f"b70-{one.name}")
        .tags(["b70"])
        .refresh("30s")
        .time("now-6h", "now")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(hosts)
    )
    ids = count(1)
    for title, panels in one.rows.items():
        built = built.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            built = built.with_panel(_panel(panel).id(next(ids)))
    return json.dumps(_fitting(built.build()), indent=1, sort_keys=True) + "\n"


def _fitting(built: models.Dashboard) -> dict[str, Any]:
    """A dashboard without what the library writes and Grafana's schema refuses: a style, options that are
    null, numbers of variables, and settings of variables of another type."""
    found: dict[str, Any] = json.loads(json.dumps(built, cls=JSONEncoder))
    found.pop("style", None)
    for panel in found["panels"]:
        if panel.get("options", {}) is None:
            panel["options"] = {}
    for variable in found["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min", "id"):
            variable.pop(name, None)
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the dashboards of the role monitoring.")
    parser.add_argument("--check", action="store_true", help="only say which files would change")
    given = parser.parse_args(argv)
    wanted = {ROOT / FOLDER / f"{one.name}.json": document(one) for one in dashboards()}
    stale = [file for file, text in wanted.items() if not file.is_file() or file.read_text() != text]
    for file in stale:
        sys.stdout.write(f"{file.relative_to(ROOT)}: {'stale' if given.check else 'written'}\n")
        if not given.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[file])
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
