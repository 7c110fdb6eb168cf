# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalogue says about where weights come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import hub


def weight_sources(
    catalogue: Mapping[str, Any], names: list[str], revisions: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Directory to source, for those of the named profiles whose model is in a repository of the hub."""
    if not isinstance(catalogue, Mapping):
        raise AnsibleFilterError("weight_sources needs the profiles (a mapping, from the lookup arcpro.b70.catalogue)")
    return hub.from_catalogue(plain(catalogue), [str(name) for name in names], plain(revisions or {}))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"weight_sources": weight_sources}
