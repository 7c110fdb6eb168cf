# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease of a host: which run of a playbook owns it, so that no other one switches or restarts it meanwhile."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from . import _files, _lock

FILE = "fleet-lease.json"
_LOCK_LIMIT_S = 60.0  # others only read and write it
TAKEN, KEPT, RELEASED, FREE = "taken", "kept", "released", "free"


@dataclass(frozen=True)
class Lease:
    """The owner of the host. run: the id of the run. what: its work. since, until: in UTC, by the host's clock."""

    run: str
    owner: str
    what: str
    since: str
    until: str

    def describe(self) -> str:
        """Return it as part of a sentence."""
        return f"{self.what} by {self.owner}, since {self.since}, until {self.until} at the latest"


@dataclass(frozen=True)
class LeaseDecision:
    """The decision on a lease. lease: the file's new content, None for no file. refusal: why the run may not go on."""

    lease: Lease | None
    refusal: str = ""
    holder: Lease | None = None


def decide(
    state: str, held: Lease | None, asked: Lease, *, over: Collection[str] = (), force: bool = False
) -> LeaseDecision:
    """Decide what a run that asks gets. asked.since is now. over: runs that the controller knows have ended."""
    own = held is not None and held.run == asked.run
    if state == RELEASED:
        return LeaseDecision(None if own else held)
    if state == KEPT and not own:
        if held is None:
            return LeaseDecision(None, "its lease was given up or taken by a run that has ended")
        return LeaseDecision(held, f"it was taken over: {held.describe()}", held)
    if held is not None and not own and not force and held.until > asked.since and held.run not in over:
        return LeaseDecision(held, f"it belongs to {held.describe()}", held)
    if state == FREE:
        return LeaseDecision(held)
    return LeaseDecision(
        Lease(asked.run, asked.owner, asked.what, held.since if own and held else asked.since, asked.until)
    )


def asked_for(run: str, owner: str, what: str, minutes: float, now: datetime | None = None) -> Lease:
    """Return the lease that a run asks for."""
    begins = now or datetime.now(UTC)
    return Lease(run, owner, what, _moment(begins), _moment(begins + timedelta(minutes=minutes)))


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def read(file: Path) -> Lease | None:
    """Return the lease in a file. One that cannot be read is none: it would own the host for ever."""
    content = _files.content_of(file)
    try:
        return None if content is None else Lease(**json.loads(content))
    except (ValueError, TypeError):
        return None


def opened(folder: Path, state: str) -> AbstractContextManager[Path]:
    """Have the file of the lease for what is asked. A mere question writes nothing, so it leaves no trace."""
    return nullcontext(folder / FILE) if state == FREE else alone(folder)


@contextmanager
def alone(folder: Path) -> Iterator[Path]:
    """Yield the file of the lease while no other run decides about it."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _lock.hold(folder / f".{FILE}.lock", _LOCK_LIMIT_S, TimeoutError):
        yield folder / FILE


def write(file: Path, lease: Lease | None) -> None:
    """Write the lease, or remove it."""
    if lease is None:
        file.unlink(missing_ok=True)
    else:
        _files.replace(file, (json.dumps(asdict(lease), indent=1) + "\n").encode(), 0o644)
