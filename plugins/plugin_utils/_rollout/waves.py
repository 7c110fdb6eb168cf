# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waves of a rollout: which host is switched in which."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SIZE = re.compile(r"([0-9]+)(%?)")


class SettingError(ValueError):
    """A setting of the rollout that cannot be used."""


def sizes(text: str, hosts: int) -> list[int]:
    """Return the sizes of the waves over so many hosts.

    As in `serial`, each is a number or a percentage of all hosts, and the last one repeats. No wave is empty.
    """
    words = [word.strip() for word in str(text).split(",") if word.strip()]
    if not words:
        raise SettingError("waves is empty; write sizes such as 1,25%,100%")
    wanted = [_size(word, hosts) for word in words]
    found: list[int] = []
    while sum(found) < hosts:
        size = wanted[min(len(found), len(wanted) - 1)]
        found.append(min(size, hosts - sum(found)))
    return found


def _size(word: str, hosts: int) -> int:
    match = _SIZE.fullmatch(word)
    number = int(match[1]) if match else 0
    if match is None or number == 0 or (match[2] and number > 100):
        raise SettingError(
            f"waves has {word!r}; write numbers from 1, or percentages from 1% to 100%, such as 1,25%,100%"
        )
    return max(1, number * hosts // 100) if match[2] else number


def waves_of(hosts: Sequence[str], text: str, canary: str = "") -> list[tuple[str, ...]]:
    """Return the hosts of each wave. The canary host, by default the first, is always alone in the first wave."""
    first = canary or next(iter(hosts), "")
    if first not in hosts:
        raise SettingError(f"canary is {first or 'empty'}, which is no host of this rollout")
    others = [host for host in hosts if host != first]
    found = sizes(text, len(hosts))
    found = found[1:] if found[0] == 1 else [found[0] - 1, *found[1:]]
    waves: list[tuple[str, ...]] = [(first,)]
    taken = 0
    for size in found:
        waves.append(tuple(others[taken : taken + size]))
        taken += size
    return waves


def allowed(text: str, hosts: int) -> int:
    """Return how many hosts may fail before the rollout stops: a number, or a percentage of all hosts, rounded down."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None or (match[2] and int(match[1]) > 100):
        raise SettingError(f"max_fail is {text!r}; write a number of hosts, or a percentage such as 10%")
    return int(match[1]) * hosts // 100 if match[2] else int(match[1])
