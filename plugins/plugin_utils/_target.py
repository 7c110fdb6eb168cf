# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reasons why a play would run on no host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

_SHOWN = 8


def no_hosts(
    pattern: str,
    *,
    option: str,
    chosen: bool,
    groups: Mapping[str, Sequence[str]],
    matched: Sequence[str],
    limit: str | None,
    left: Sequence[str],
    sources: Sequence[str],
) -> str:
    """Return why a play would run on no host, with what to do; empty where it runs on some.

    option: the variable that chooses other hosts. chosen: whether it names the pattern. groups: hosts by group, of the
    whole inventory. matched: hosts of the pattern. left: those of the limit among them. sources: the values of -i.
    """
    if left:
        return ""
    if matched:
        return f"--limit {limit} leaves none of the hosts of {pattern}, which has {_few(matched)}."
    known = {name: hosts for name, hosts in groups.items() if name not in ("all", "ungrouped") and hosts}
    names = sorted({host for hosts in groups.values() for host in hosts})
    read = f"the inventory ({', '.join(sources)})" if sources else "the inventory"
    if not names:
        return (
            f"No host matches {pattern}: {read} has no hosts at all. Copy inventory/example.yml, enter your hosts "
            f"under {pattern}, and name the file with -i."
        )
    close = get_close_matches(pattern, [*known, *names], 1)
    meant = f" Did you mean {close[0]}?" if close else ""
    have = f"the groups {_few(sorted(known))} and " if known else ""
    remedy = (
        f"Name others with -e {option}=GROUP."
        if chosen
        else (f"Put your hosts into the group {pattern}, or name others with -e {option}=GROUP.")
    )
    return f"No host matches {pattern}: {read} has {have}the hosts {_few(names)}.{meant} {remedy}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
