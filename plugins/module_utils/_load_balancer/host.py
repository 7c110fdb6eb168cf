# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running HAProxy: asks its master socket, keeps the state file, and waits."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _files
from .._lock import hold
from . import dialect
from .dialect import DRAINED, HaproxyServer, Servers, Workers

ANSWER_LIMIT_S = 5.0
LOOK_EVERY_S = 0.5
_LOCK_LIMIT_S = 300.0  # a wave of hosts, each with some questions to HAProxy
_MOST_BYTES = 2**24
_DONE = {dialect.DRAINED: "drained", dialect.READY: "taken back"}


class NoAnswer(Exception):
    """HAProxy does not run, or hangs."""


class Master:
    """Each question is a connection of its own, as HAProxy expects it from scripts."""

    def __init__(self, path: str) -> None:
        self.path = path

    def ask(self, command: str) -> str:
        """Send a command; return the whole answer. Raise NoAnswer."""
        answer = bytearray()
        until = time.monotonic() + ANSWER_LIMIT_S
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_LIMIT_S)
                connection.connect(self.path)
                connection.sendall(f"{command}\n".encode())
                # the master closes when it has answered, and only then
                connection.shutdown(socket.SHUT_WR)
                while data := connection.recv(65536):
                    answer += data
                    connection.settimeout(max(0.001, until - time.monotonic()))
                    if len(answer) > _MOST_BYTES:
                        raise NoAnswer(f"{self.path}: the answer to `{command}` does not end")
        except OSError as error:
            raise NoAnswer(f"HAProxy does not answer at {self.path}: {error.strerror or error}") from error
        return answer.decode(errors="replace")

    def workers(self) -> Workers:
        """Return the current worker processes, and those that finish their last streams."""
        return dialect.parse_workers(self.ask(dialect.SHOW_WORKERS))

    def servers(self) -> Servers:
        """Return all servers, as the current worker has them."""
        pid = self.workers().current[0]
        return dialect.parse_servers(self.ask(dialect.to_worker(pid, dialect.SHOW_SERVERS)))

    def sessions(self, name: str) -> int:
        """Return how many requests are under way on a host, those of old workers included."""
        asked = (self.ask(dialect.to_worker(pid, dialect.SHOW_SESSIONS)) for pid in self.workers().all)
        return sum(dialect.parse_sessions(text, name) for text in asked)

    def set(self, name: str, state: str) -> None:
        """Set a host's state. An old worker gets it too: it may still have connections that bring new requests."""
        workers = self.workers()
        for pid in workers.all:
            try:
                servers = dialect.parse_servers(self.ask(dialect.to_worker(pid, dialect.SHOW_SERVERS)))
                for server in servers.of(name):
                    refused = dialect.refused(self.ask(dialect.to_worker(pid, dialect.set_state(server, state))))
                    if refused:
                        raise dialect.LoadBalancerFault(f"HAProxy refused to set {server.name} to {state}: {refused}")
            except dialect.LoadBalancerFault:
                # an old worker that ends meanwhile is one that needs nothing
                if pid in workers.current:
                    raise


def alone(state_file: Path) -> contextlib.AbstractContextManager[None]:
    """Let nobody else change states at the same time: what is written is what is so for all servers."""
    state_file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return hold(state_file.with_name(state_file.name + ".lock"), _LOCK_LIMIT_S, dialect.LoadBalancerFault)


def wait(done: Callable[[], bool], limit_s: float) -> bool:
    """Look until it is done; return False if that does not happen within the limit."""
    until = time.monotonic() + limit_s
    while not done():
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(LOOK_EVERY_S, left))
    return True


@dataclass
class DrainResult:
    """The outcome of a change of a host."""

    name: str
    changed: bool = False
    before: tuple[HaproxyServer, ...] = ()
    after: str = ""
    sessions: int = 0
    answered: bool = True
    in_service: bool = True
    refused: str = ""
    warnings: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Return the return values of the module."""
        servers = [{"backend": server.backend, "state": server.state} for server in self.before]
        summary = dialect.summary(self.name, self.after, self.sessions, in_service=self.in_service)
        shown = [{**server, "state": self.after} for server in servers] if self.changed else servers
        return {
            "changed": self.changed,
            "answered": self.answered,
            "known": bool(self.before),
            "servers": servers,
            "sessions": self.sessions,
            "in_service": self.in_service,
            "refused": self.refused,
            "summary": self.refused or (self.warnings[0] if self.warnings else summary),
            "diff": {
                "before": "".join(f"{row['backend']}/{self.name} {row['state']}\n" for row in servers),
                "after": "".join(f"{row['backend']}/{self.name} {row['state']}\n" for row in shown),
            },
        }


class LoadBalancedHost:
    """A host among the servers of this load balancer."""

    def __init__(self, master: Master, name: str, state_file: str) -> None:
        self._master = master
        self._name = name
        self._file = Path(state_file)

    def bring_to(
        self, state: str, limit_s: float, *, write: bool, floors: Mapping[str, int | str] | None = None
    ) -> DrainResult:
        """Drain the host or take it back, and wait. Raise LoadBalancerFault if HAProxy refuses it.

        floors: how many hosts stay in service; a host that is needed for that is not drained.
        """
        result = DrainResult(self._name, after=state)
        try:
            result.before = self._master.servers().of(self._name)
            if not result.before:
                result.warnings.append(f"{self._name} is not in the configuration of this load balancer")
                return result
            result.changed = any(server.state != state for server in result.before)
            result.in_service = all(server.in_service for server in result.before)
            with alone(self._file) if write else contextlib.nullcontext():
                # Hosts of a wave are drained at the same time: each one finds what those before it have left.
                result.refused = self._master.servers().refusal(self._name, floors or {}) if state == DRAINED else ""
                result.changed = result.changed and not result.refused
                if write and result.changed:
                    self._set(state)
            if write and not result.refused:
                self._wait(state, limit_s, result)
        except NoAnswer as fault:
            result.answered = False
            result.warnings.append(f"{fault}; {self._name} was not {_DONE[state]} here")
            if state == dialect.READY and write:
                # so that the next start of HAProxy brings it back
                self._forget()
        return result

    def _set(self, state: str) -> None:
        self._master.set(self._name, state)
        self._keep(self._master.servers().state_file())

    def _forget(self) -> None:
        content = _files.content_of(self._file)
        if content is not None:
            with alone(self._file):
                self._keep(dialect.without(content.decode(), self._name))

    def _keep(self, text: str) -> None:
        if _files.content_of(self._file) != text.encode():
            _files.replace(self._file, text.encode(), 0o644)

    def _wait(self, state: str, limit_s: float, result: DrainResult) -> None:
        def look() -> bool:
            result.sessions = self._master.sessions(self._name)
            if state == dialect.DRAINED:
                return result.sessions == 0
            result.in_service = all(server.in_service for server in self._master.servers().of(self._name))
            return result.in_service

        if wait(look, limit_s):
            return
        if state == dialect.DRAINED:
            result.warnings.append(
                f"{self._name} gets no new requests, but {result.sessions} are still under way after {limit_s:g} s"
            )
        elif limit_s > 0:
            result.warnings.append(
                f"{self._name} is ready on this load balancer, but its health check has not passed for {limit_s:g} s; "
                f"ask the host's frontdoor for /ready, which says why"
            )
