# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queries of all dashboards as Prometheus is asked them, and whether what it answers can be drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tools import dashboards


class Asked(NamedTuple):
    """A query: of which panel it is, as DASHBOARD: TITLE, and its expression."""

    panel: str
    expr: str


def asked(interval_s: int) -> Iterator[Asked]:
    """Every query, for all hosts; interval_s: from one scrape to the next."""
    window = f"{10 * interval_s}s"
    for one in dashboards.dashboards():
        for panel in one.panels:
            for query in panel.queries:
                expr = query.expr.replace("$instance", ".*").replace("$__rate_interval", window)
                yield Asked(f"{one.name}: {panel.title}", expr)


def has_number(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether these rows of a query have something to show."""
    return any(math.isfinite(float(row["value"][1])) for row in rows)
