# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer to a play that wants work done on a host, by the work that was found there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BEGIN, JOIN, REFUSE = "begin", "join", "refuse"
_ENDS = {"timeout": "it took longer than its limit", "oom-kill": "the kernel ended it for memory"}


@dataclass(frozen=True)
class WorkState:
    """The findings of one look. state: none, running or ended.

    :param given: what the work was asked, with the `token` of the play that began it.
    :param seen: what its unit wrote: at least `now` (what is being done) and `ended` (None, or how, why and at).
    :param result: what became of it, with `told_to`, the token of the play that has it, and `failed` if it has to be
        done again.
    :param joined: whether another play began it.
    """

    state: str
    given: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    joined: bool = False

    @property
    def waits(self) -> bool:
        """Return whether the work goes on, or ended and no play has its result."""
        return self.state == "running" or (self.state == "ended" and "told_to" not in self.result)

    def begun_by(self, token: str) -> bool:
        """Return whether the play with this token began the work, and asks again since the answer was lost."""
        return bool(token) and self.given.get("token") == token


def on_begin(found: WorkState, token: str, *, other: bool) -> str:
    """Return what the play with this token gets. other: whether what was found is not what the play wants."""
    if found.state == "running":
        return REFUSE if other and not found.begun_by(token) else JOIN
    again = found.begun_by(token) or (bool(token) and found.result.get("told_to") == token)
    untold = found.waits and not other and not found.result.get("failed")
    return JOIN if again or untold else BEGIN


def death(result: str, last_line: str) -> str:
    """Return why a unit left no result. result: systemd's word for how it ended. last_line: the end of its log."""
    return _ENDS.get(result) or last_line or "its process was killed, or the host restarted"


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return how what was asked is not what is asked now: one clause for each of our keys."""
    return [f"{key} {theirs[key]}, not {value}" for key, value in ours.items() if theirs[key] != value]
