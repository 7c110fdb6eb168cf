# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters around the records of benchmarks and soaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence import page


def evidence_page(found: Mapping[str, Any]) -> str:
    """The page over all records that the lookup arcpro.b70.evidence found."""
    if not isinstance(found, Mapping) or not {"records", "problems"} <= set(found):
        raise AnsibleFilterError("evidence_page needs what the lookup arcpro.b70.evidence returns")
    return page.evidence_page(plain(found["records"]), plain(found["problems"]))


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Any]:
        return {"evidence_page": evidence_page}
