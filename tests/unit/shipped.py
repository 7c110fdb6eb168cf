# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ships of the catalogue, read once for each process, and profiles of tests beside it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from unittest import mock

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.merging import ProfileSource
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks

STACKS = load_stacks()


@functools.cache
def profiles() -> dict[str, dict[str, Any]]:
    """Return the shipped profiles. Nobody may change them."""
    return catalogue.load_catalogue(stacks=STACKS)


def load_inline(
    inline: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return these profiles as `load_catalogue` does, without the shipped ones that they don't extend, which it would
    check anew each time."""
    every = catalogue._sources

    def few(*arguments: Any) -> list[ProfileSource]:
        sources = every(*arguments)
        extends = {source.name: str(source.data.get("extends")) for source in sources}
        wanted, new = set(inline), set(inline)
        while new := {extends.get(name, "None") for name in new} - wanted:
            wanted |= new
        return [source for source in sources if source.abstract or source.name in wanted]

    with mock.patch.object(catalogue, "_sources", few):
        return catalogue.load_catalogue(inline=inline, stacks=stacks)
