# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor as the switch sees it: the state file goes there, /status comes back."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Collection, Mapping
from typing import Any

from ..model.state_file import SlotState, parse_state, stamp
from ..words.effects import Effects, poll, text_of
from ..words.types import Layout, SlotFault

ACK_LIMIT_S = 5.0
_ACK_INTERVAL_S = 0.05  # as often as the frontdoor looks
_DRAIN_INTERVAL_S = 0.25
_HTTP_TIMEOUT_S = 2.0
SPARE_BYTES = 16384  # several states; a state that replaces another needs room for both


def read_state(fx: Effects, layout: Layout) -> SlotState | None:
    """Return the state on disk; None if there is none that can be read."""
    return parse_state(text_of(fx, layout.state_file))


class FrontdoorLink:
    """Publishes states and waits until the frontdoor has applied them. An absent frontdoor counts as closed."""

    def __init__(self, fx: Effects, layout: Layout) -> None:
        self._fx, self._layout = fx, layout
        self._sequence = 0
        self._shut_since: float | None = None
        self._shut_s = 0.0

    def current(self) -> SlotState | None:
        return read_state(self._fx, self._layout)

    def status(self) -> Mapping[str, Any] | None:
        """Return what its /status says of the slot, {} if it can't be understood, None if nobody answers."""
        reply = self._fx.http.get(f"{self._layout.frontdoor_url}/status", _HTTP_TIMEOUT_S)
        if reply.status == 0 and reply.error == "refused":
            return None
        with contextlib.suppress(ValueError, LookupError, TypeError):
            part = json.loads(reply.text)["slots"][self._layout.slot]
            if isinstance(part, Mapping):
                return part
        return {}

    def publish(self, fields: Mapping[str, Any]) -> bool:
        """Write the next state and wait until the frontdoor has it; False where there is none.

        Raise SlotFault after ACK_LIMIT_S. The state is written before the wait, so it is out even if the process is
        told to end meanwhile. Only where no state is left to count on from, the frontdoor is asked first. A state
        without a profile keeps the names of the one before, so that clients learn that its model is not served, and get
        no other one. One that is not open keeps what the next request loads, unless it says otherwise.
        """
        before = self.current()
        idle = None if fields.get("open") or before is None else before.idle
        fields = {"idle": idle, **fields, "names": None if fields.get("profile") or before is None else before.known_as}
        shut = not fields.get("open")
        self._count(shut=before is None or not before.open)
        known = before.sequence if before else self._sequence or _number(self.status(), "state_sequence")
        self._next(fields, known)
        self._count(shut=shut)
        seen: Mapping[str, Any] | None = {}
        for _waited in poll(self._fx.clock, ACK_LIMIT_S, _ACK_INTERVAL_S):
            seen = self.status()
            if seen is None:
                return False
            applied = _number(seen, "state_sequence")
            if applied == self._sequence:
                return True
            if applied > self._sequence:
                # It goes by a later state than the one that was found on disk.
                self._next(fields, applied)
        raise SlotFault(
            f"the frontdoor at {self._layout.frontdoor_url} did not apply the new state within {ACK_LIMIT_S:g} s",
            expected=f"state_sequence {self._sequence}",
            got=f"state_sequence {seen.get('state_sequence')}" if seen else "no readable /status",
        )

    @property
    def turned_away_s(self) -> float:
        """Seconds since the first state of this run during which no engine was open."""
        return self._shut_s + (0.0 if self._shut_since is None else self._fx.clock.monotonic() - self._shut_since)

    def _count(self, *, shut: bool) -> None:
        if shut:
            self._shut_since = self._fx.clock.monotonic() if self._shut_since is None else self._shut_since
        else:
            self._shut_s, self._shut_since = self.turned_away_s, None

    def _next(self, fields: Mapping[str, Any], known: int) -> None:
        """Write the state that follows the last known one."""
        self._sequence = max(self._sequence, known) + 1
        moment = stamp(self._fx.clock.now())
        state = SlotState(slot=self._layout.slot, sequence=self._sequence, updated_at=moment, **dict(fields))
        self._write(state.to_json())

    def _write(self, text: str) -> None:
        """Replace the state file, also where /run has become full: some room for that is kept."""
        files, spare = self._fx.files, self._layout.spare_file
        for directory in (self._layout.run_dir, self._layout.slot_run_dir):
            if files.hidden(directory):
                files.unhide(directory)
        try:
            files.write(self._layout.state_file, text)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            files.remove(spare)
            files.write(self._layout.state_file, text)
        if files.size(spare) != SPARE_BYTES:
            with contextlib.suppress(OSError):
                files.write(spare, "." * SPARE_BYTES)

    def drain(self, limit_s: float, places: Collection[int] = ()) -> int | None:
        """Wait until no generation runs, or none on the replicas at these places.

        Return how many still run at the limit; None when nobody answers.
        """
        active: int | None = None
        for _waited in poll(self._fx.clock, limit_s, _DRAIN_INTERVAL_S):
            seen = self.status()
            if seen is None:
                return None
            active = _generations(seen, places)
            if active == 0:
                return 0
        return active


def _generations(status: Mapping[str, Any], places: Collection[int]) -> int:
    """Return how many generations run, in all or on these replicas; 1 where /status does not tell."""
    if not places:
        return _number(status, "active_generations", 0 if status else 1)
    rows = status.get("replicas")
    ours = [row for row in rows if row.get("index") in places] if isinstance(rows, list) else []
    return sum(_number(row, "active_generations", 1) for row in ours) if len(ours) == len(places) else 1


def _number(part: Mapping[str, Any] | None, key: str, default: int = 0) -> int:
    value = (part or {}).get(key)
    return value if isinstance(value, int) else default
