# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that turn what b70_doctor and b70_report return into text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.module_utils._doctor import show


def _findings(result: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(result, Mapping) or "findings" not in result:
        raise AnsibleFilterError(f"{name} needs the result of b70_doctor (a mapping with 'findings')")
    return result


def doctor_table(result: Mapping[str, Any], host: str) -> list[str]:
    """Lines for the screen."""
    return show.table(_findings(result, "doctor_table")["findings"], host, result.get("seconds"))


def doctor_stops(result: Mapping[str, Any], fail_on: str) -> list[str]:
    """The ids for which a run ends as failed."""
    findings = _findings(result, "doctor_stops")["findings"]
    try:
        return show.stopped_by(findings, fail_on)
    except KeyError:
        raise AnsibleFilterError(f"doctor_stops knows FAIL, WARN and never, not {fail_on!r}") from None


def report_index(reports: Sequence[Mapping[str, Any]], made: str) -> str:
    """The page over all hosts."""
    return show.index_page(reports, made)


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Any]:
        return {"doctor_stops": doctor_stops, "doctor_table": doctor_table, "report_index": report_index}
