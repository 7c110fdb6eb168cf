# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands to HAProxy's master socket, and the meaning of its answers. No input or output happens here."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

DRAINED, READY = "drained", "ready"
# the words of `set server ... state`
_WORDS = {DRAINED: "drain", READY: "ready"}
# of `show servers state`: SRV_ADMF_FDRAIN and SRV_ADMF_FMAINT, SRV_ST_RUNNING, CHK_RES_UNKNOWN and CHK_RES_PASSED
_FORCED_MAINTENANCE, _FORCED_DRAIN = 0x01, 0x08
_RUNNING = "2"
_NO_RESULT, _PASSED = "0", "3"
# HCHK_STATUS_UNKNOWN and HCHK_STATUS_INI
_NEVER_CHECKED = ("0", "1")
# SRV_ADMF_*MAINT and *DRAIN, whoever set them
_ANY = 0x3F

SHOW_WORKERS = "show proc"
SHOW_SERVERS = "show servers state"
SHOW_SESSIONS = "show stat -1 4 -1"


class LoadBalancerFault(Exception):
    """HAProxy answered something unexpected; the text says what to do."""


@dataclass(frozen=True)
class Workers:
    """Processes of one HAProxy. Those of before a reload live on until their last stream ends."""

    current: tuple[int, ...]
    old: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """The current ones first."""
        return self.current + self.old


@dataclass(frozen=True)
class HaproxyServer:
    """A server of one backend, as the current worker has it, and the line that a state file has for it."""

    backend: str
    name: str
    administrative: int
    up: bool
    line: str

    @property
    def state(self) -> str:
        """`drained` or `ready`; what else an operator set, in HAProxy's own word."""
        if self.administrative & _FORCED_MAINTENANCE:
            return "maintenance"
        return DRAINED if self.administrative & _FORCED_DRAIN else READY

    @property
    def in_service(self) -> bool:
        """The server gets new requests, because its check passed and nobody took it out."""
        return self.up and not self.administrative & _ANY


@dataclass(frozen=True)
class Servers:
    """The answer to `show servers state`."""

    head: tuple[str, ...]
    servers: tuple[HaproxyServer, ...]

    def of(self, name: str) -> tuple[HaproxyServer, ...]:
        """Return the servers of one host; several if it serves under several names."""
        return tuple(server for server in self.servers if server.name == name)

    def refusal(self, name: str, floors: Mapping[str, int | str]) -> str:
        """Return why a host may not be drained: a backend would have too few hosts in service. Empty if it may.

        floors: how many hosts each backend keeps, a number or a share such as 50%; that of "" is for all others.
        """
        for own in self.of(name):
            others = [server for server in self.servers if server.backend == own.backend and server.name != name]
            left = sum(server.in_service for server in others)
            least = least_hosts(floors.get(own.backend, floors.get("", 0)), len(others) + 1)
            # The only host of a backend has nobody who stands in for it, and whoever has one host knows that.
            if own.in_service and others and left < least:
                rest = f"{left} of {len(others) + 1} hosts in service in the backend {own.backend}"
                return f"draining {name} would leave {rest}, and b70_min_ready keeps {least}"
        return ""

    def state_file(self) -> str:
        """Return the state file that keeps drained servers drained after a reload; it has no other server."""
        return "".join(
            f"{line}\n" for line in (*self.head, *(s.line for s in self.servers if s.administrative & _FORCED_DRAIN))
        )


def least_hosts(least: int | str, hosts: int) -> int:
    """Return how many hosts stay: a number, or a share of these hosts, rounded up."""
    text = str(least)
    return -(-int(text.removesuffix("%")) * hosts // 100) if text.endswith("%") else int(text)


def to_worker(pid: int, command: str) -> str:
    """Return the command as the master passes it on to a worker."""
    return f"@!{pid} {command}"


def set_state(server: HaproxyServer, state: str) -> str:
    """Return the command that drains a server or takes it back."""
    return f"set server {server.backend}/{server.name} state {_WORDS[state]}"


def parse_workers(text: str) -> Workers:
    """Read the answer to `show proc`."""
    found: dict[bool, list[int]] = {False: [], True: []}
    old = False
    for line in text.splitlines():
        words = line.split()
        if line.startswith("# "):
            old = line.startswith("# old")
        elif len(words) > 1 and words[0].isdigit() and words[1] == "worker":
            found[old].append(int(words[0]))
    if not found[False]:
        raise LoadBalancerFault(f"HAProxy's master has no worker; look at `journalctl -u haproxy`. It said: {text!r}")
    return Workers(tuple(found[False]), tuple(found[True]))


def parse_servers(text: str) -> Servers:
    """Read the answer to `show servers state`."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or lines[0] != "1" or not lines[1].startswith("# be_id "):
        raise LoadBalancerFault(f"`{SHOW_SERVERS}` of HAProxy has another form than version 1: {text[:200]!r}")
    columns = lines[1].removeprefix("# ").split()
    servers = []
    for line in lines[2:]:
        row = dict(zip(columns, line.split(), strict=False))
        # a check that is under way has no result, and the state is still what the check before left
        checking = row["srv_check_result"] == _NO_RESULT and row["srv_check_status"] not in _NEVER_CHECKED
        up = row["srv_op_state"] == _RUNNING and (row["srv_check_result"] == _PASSED or checking)
        servers.append(HaproxyServer(row["be_name"], row["srv_name"], int(row["srv_admin_state"]), up, line))
    return Servers(tuple(lines[:2]), tuple(servers))


def parse_sessions(text: str, name: str) -> int:
    """Return how many requests a worker has under way on the servers of one host, from the answer to `show stat`."""
    rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
    return sum(int(row["scur"] or 0) for row in rows if row["svname"] == name)


def refused(answer: str) -> str:
    """Return HAProxy's complaint about a command; empty if it obeyed."""
    return answer.strip()


def without(state_file: str, name: str) -> str:
    """Return a state file without the servers of one host."""
    kept = [line for line in state_file.splitlines() if line.split()[3:4] != [name]]
    return "".join(f"{line}\n" for line in kept)


def summary(name: str, state: str, sessions: int, *, in_service: bool) -> str:
    """Return the state of a host as one line for the play."""
    if state == READY and not in_service:
        return f"{name} gets requests as soon as its health check passes"
    return f"{name} is {state}, with {sessions} requests under way"
