# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service manager: what it is told, the sockets that it keeps, and whether another process will follow.

Without one, as on a command line, nothing is told, kept or followed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable

# the first descriptor that is passed on, sd_listen_fds(3)
_FIRST = 3
_ANSWER_S = 5.0
#: says that another process will follow; who does not know it ignores it
FOLLOWED = signal.SIGWINCH
#: set where the unit keeps listening sockets from one process to the next
KEEPS = "B70_FRONTDOOR_KEEPS_SOCKETS"


def notify(message: str, sockets: Iterable[socket.socket] = ()) -> None:
    """Tell the manager something, and pass it sockets, sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            socket.send_fds(channel, [message.encode()], [one.fileno() for one in sockets])
        except OSError as exc:
            print(f"the service manager cannot be told: {exc}", file=sys.stderr)


def keep(sockets: Iterable[socket.socket], name: str = "listen") -> None:
    """Have the manager keep sockets for the next process."""
    sockets = list(sockets)
    if sockets and os.environ.get(KEEPS):
        notify(f"FDSTORE=1\nFDNAME={name}", sockets)


def keep_client(accepted: socket.socket) -> None:
    """Leave a connection that nothing was read of to the next process. The manager forgets one whose client leaves."""
    keep([accepted], "client")
    accepted.close()


def forget_clients() -> None:
    """Have the manager keep no connections any more, or they would not end when this process closes them."""
    if os.environ.get(KEEPS):
        notify("FDSTOREREMOVE=1\nFDNAME=client")


def kept() -> list[socket.socket]:
    """Take the sockets that were kept by the manager, or that it opened for this process."""
    count = int(os.environ.pop("LISTEN_FDS", "0"))
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()):
        return []
    found = []
    for number in range(_FIRST, _FIRST + count):
        os.set_inheritable(number, False)
        one = socket.socket(fileno=number)
        found.append(one)
    return found


def is_restarted(unit: str) -> bool:
    """Tell whether a unit that stops is started again, so that the next process finds the sockets."""
    command = ["systemctl", "list-jobs", "--no-legend", "--plain", unit]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(row.split()[1:3] == [unit, "restart"] for row in said.splitlines())


def main() -> None:
    """Tell the process of a unit that stops whether another one will follow; for ExecStop=, as root.

    The process itself, a user of the moment, is not let onto the bus everywhere.
    """
    unit, process = sys.argv[1], os.environ.get("MAINPID", "")
    if process and is_restarted(unit):
        os.kill(int(process), FOLLOWED)


if __name__ == "__main__":
    main()
