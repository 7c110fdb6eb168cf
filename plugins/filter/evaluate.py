# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that turn what b70_evaluate returns into text for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.module_utils._evaluate import verdicts


def _rows(result: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(result, Mapping) or "rows" not in result:
        raise AnsibleFilterError(f"{name} needs the result of b70_evaluate (a mapping with 'rows')")
    return list(result["rows"])


def evaluate_table(result: Mapping[str, Any], host: str) -> list[str]:
    """Lines for the screen."""
    return verdicts.table(_rows(result, "evaluate_table"), host)


def evaluate_stops(result: Mapping[str, Any], fail_on: str) -> list[str]:
    """The measures for which a run ends as failed."""
    try:
        return verdicts.stops(_rows(result, "evaluate_stops"), fail_on)
    except KeyError:
        raise AnsibleFilterError(f"evaluate_stops knows FAIL, WARN and never, not {fail_on!r}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"evaluate_stops": evaluate_stops, "evaluate_table": evaluate_table}
