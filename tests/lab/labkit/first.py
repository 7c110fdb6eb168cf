# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a wheel comes from that a manifest installs before its lock: what this machine's pip is told of, and only then
the index or address that the manifest names. Roles do the same on hosts. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .sources import PackageClients


@dataclass(frozen=True)
class Attempt:
    """One place to look: `where` in words, `line` for a list of requirements, the settings of pip and uv for it."""

    where: str
    line: str
    clients: PackageClients

    def uv_toml(self) -> str:
        # All sources are the operator's own, so the first that has the name need not have the version.
        return self.clients.uv_toml() + 'index-strategy = "unsafe-best-match"\n'


def attempts(step: Mapping[str, Any], machine: PackageClients, tag: str = "") -> list[Attempt]:
    """The places for an entry of `first`, in order; with `tag` (cp311-x86_64) its line has the hashes for that."""
    requirement = str(step["requirement"])
    known = step.get("hashes", {})
    hashes = "".join(f" --hash={digest}" for digest in (known.get(tag) or known.get("any", []) if tag else []))
    found = [Attempt(in_words(machine), requirement + hashes, machine)]
    own = PackageClients(index_url=step.get("index", ""), trusted_hosts=machine.trusted_hosts, timeout=machine.timeout)
    if own.index_url:
        found.append(Attempt(own.index_url, requirement + hashes, own))
    elif step.get("url"):
        found.append(Attempt(step["url"], f"{requirement.partition('==')[0]} @ {step['url']}{hashes}", machine))
    return found


def in_words(machine: PackageClients) -> str:
    """This machine's sources, without the passwords of their addresses."""
    places = [machine.index_url or "the public package index", *machine.extra_index_urls, *machine.find_links]
    return ", ".join(re.sub(r"(?<=://)[^/@]*@", "", place) for place in places)
