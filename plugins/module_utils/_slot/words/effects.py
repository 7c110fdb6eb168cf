# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of a switch on its host, as protocols. The real ones are in `host/`, the fakes in the tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Protocol

from .types import CardMemory, Holder, Reply, UnitState

# Ends of the note of a lock's holder that is waited for: it only verifies what runs, or it is done soon.
SETTLING = "settling what runs"
RENDERING = "writing the slot's files"
PODMAN = "/usr/bin/podman"
NFT = "/usr/sbin/nft"


class Clock(Protocol):
    def monotonic(self) -> float:
        """Return seconds that never go backwards."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""

    def sleep(self, seconds: float) -> None: ...


class Units(Protocol):
    """systemd. Every method raises HostFault with systemd's own words when it is refused."""

    def show(self, names: Sequence[str]) -> tuple[UnitState, ...]:
        """Return the state of each named unit, in this order; unknown ones are there as not-found."""

    def survey(self, prefix: str, names: Sequence[str]) -> tuple[UnitState, ...]:
        """Return every service unit that begins with prefix, sorted by name, then the named ones.

        Units count that are installed or only run. Their file_state is enabled, disabled, masked … as it is on disk,
        empty without a file. Units that systemd has not loaded are inactive, with an empty load state: `show` has it
        load them.
        """

    def running(self, prefix: str) -> tuple[UnitState, ...]:
        """Return every service unit that begins with prefix and runs, starts or ends, sorted by name.

        For frequent questions: systemd has the answer at hand, while `survey` reads folders, too.
        """

    def start(self, name: str) -> None:
        """Queue the start after clearing earlier failures; don't wait."""

    def stop(self, name: str) -> None:
        """Queue the stop; don't wait."""

    def kill(self, name: str) -> None:
        """Kill the unit's processes at once.

        Its Restart= says what follows, or the stop that was begun.
        """

    def reboot(self) -> None:
        """Queue a reboot of the host; don't wait."""

    def forget_failure(self, name: str) -> None:
        """Clear the failed state of a unit that is down."""

    def enable(self, name: str) -> None: ...

    def disable(self, name: str) -> None: ...

    def reload(self) -> None:
        """Read the unit files again.

        Until then systemd shows the units as enabled that were when it read them.
        """

    def stopping(self) -> bool:
        """Tell whether the host is going down."""

    def log(self, unit: UnitState, lines: int) -> tuple[str, ...]:
        """Return the last lines of the log of the unit's current or last process; none where it can't be read."""

    def kernel_log(self, lines: int) -> tuple[str, ...]:
        """Return the last lines of the kernel's log of this boot."""


@dataclass(frozen=True)
class Upload:
    name: str
    data: bytes
    kind: str  # its media type


class Http(Protocol):
    def get(self, url: str, timeout_s: float) -> Reply: ...

    def get_each(self, urls: Sequence[str], timeout_s: float) -> list[Reply]:
        """Get several URLs at once: it takes as long as the slowest."""

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply: ...

    def upload(self, url: str, fields: Mapping[str, str], file: Upload, timeout_s: float) -> Reply:
        """Post a form with a file in its field `file`."""

    def post_together(
        self, url: str, bodies: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> Generator[tuple[int, Reply, float] | None, None, None]:
        """Post all at once and yield (index, reply, seconds) as the replies come, and None after each quiet second.

        A caller that stops early waits for none of the others.
        """


class Files(Protocol):
    """Files. Errors are OSError; something else than a file in a file's place is one, and never holds anybody up.

    What is written can be read by everybody, whatever the caller's umask.
    """

    def read(self, path: PurePosixPath) -> str | None:
        """Return the text, or None where there is no such file."""

    def read_foreign(self, path: PurePosixPath) -> str | None:
        """Return the text of a file in a folder that another user may write to, or None where there is no such file.

        A link in its place and an enormous file are errors too, so it never reveals a file that only root may read.
        """

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        """Return the last whole lines of the text, at most limit bytes, or None where there is no such file."""

    def names(self, path: PurePosixPath) -> tuple[str, ...]:
        """Return the sorted names in a directory; empty where there is none."""

    def write(self, path: PurePosixPath, text: str) -> None:
        """Replace the file atomically, on disk when it returns; a directory in its place is moved aside."""

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        """Append a text, after a newline where a crash left none; if sync, it is on disk at the return."""

    def truncate(self, path: PurePosixPath, text: str) -> None:
        """Replace the contents in place, making the directory where it is missing."""

    def remove(self, path: PurePosixPath) -> None:
        """Remove the file where it is there."""

    def rename(self, path: PurePosixPath, new: PurePosixPath) -> None: ...

    def hidden(self, path: PurePosixPath) -> str | None:
        """Return why others can't read a file or look into a directory that is there, as they could when it was made;
        or None."""

    def unhide(self, directory: PurePosixPath) -> None:
        """Let everybody look into the directory."""

    def size(self, path: PurePosixPath) -> int | None:
        """Return the bytes, or None where there is no such file or directory."""

    def modified(self, path: PurePosixPath) -> datetime | None: ...

    def writable(self, path: PurePosixPath) -> str | None:
        """Return why nothing can be written in the directory (or in the nearest one that exists), or None."""

    def free_bytes(self, path: PurePosixPath) -> int: ...

    def executable(self, path: PurePosixPath) -> bool: ...

    def prefetch(self, path: PurePosixPath) -> Iterator[int]:
        """Read the file so that the kernel keeps it in memory while there is room; yield the bytes of each piece."""


class Locks(Protocol):
    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> AbstractContextManager[None]:
        """Hold the lock of this host while the context lasts; raise SlotFault that names its holder.

        A holder whose note ends with SETTLING or RENDERING is waited for longer.
        """


class Processes(Protocol):
    def cmdline(self, pid: int) -> tuple[str, ...]:
        """Return the command line, empty where it can't be read."""

    def environ(self, pid: int) -> Mapping[str, str]:
        """Return the environment, empty where it can't be read."""

    def contained(self, pid: int) -> int:
        """Return the first process of the container that the process pid looks after; 0 where there is none."""

    def port_holders(self, port: int) -> tuple[Holder, ...]:
        """Return who listens on the TCP port. A listener whose process can't be found has pid 0."""

    def render_nodes(self) -> tuple[str, ...]:
        """Return the device files of the cards, such as /dev/dri/renderD128."""

    def addresses(self, interface: str) -> tuple[str, ...] | None:
        """Return the IP addresses of a network device; None where there is no such device."""

    def device_holders(self, paths: Sequence[str]) -> tuple[Holder, ...]:
        """Return who has one of these device files open."""

    def pci_address(self, node: str) -> str:
        """Return where the card is, such as 0000:03:00.0; empty where that is not told."""

    def unbind(self, address: str) -> None:
        """Take the driver xe off the card at this PCI address; raise SlotFault when it is refused."""

    def bind(self, address: str) -> None:
        """Give the card at this PCI address to the driver xe; raise SlotFault when it is refused."""

    def card_memory(self, nodes: Sequence[str]) -> tuple[CardMemory, ...]:
        """Return what is in use of each card, of those whose driver answers."""


class Images(Protocol):
    def id_of(self, reference: str) -> str:
        """Return the id of an image in the host's storage, empty where there is none.

        Raise SlotFault if that is unknown.
        """


@dataclass(frozen=True)
class Effects:
    clock: Clock
    units: Units
    http: Http
    files: Files
    locks: Locks
    processes: Processes
    images: Images


def text_of(fx: Effects, path: PurePosixPath) -> str | None:
    """Return the text of a file; None if there is none, or if it can't be read."""
    with suppress(OSError):
        return fx.files.read(path)
    return None


FIRST_INTERVAL_S = 0.02


def poll(clock: Clock, limit_s: float, interval_s: float) -> Iterator[float]:
    """Yield the seconds waited so far, now and after every interval, until the limit is over.

    The first intervals are short, so that quick work costs nothing; they grow to interval_s.
    """
    start, interval = clock.monotonic(), min(FIRST_INTERVAL_S, interval_s)
    while True:
        waited = clock.monotonic() - start
        yield waited
        if clock.monotonic() - start >= limit_s:
            return
        clock.sleep(min(interval, max(0.0, limit_s - (clock.monotonic() - start))))
        interval = min(interval_s, interval * 1.5)
