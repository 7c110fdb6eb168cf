# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that the frontdoor gives itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from frontdoor import __version__, errors
from frontdoor.errors import Refusal
from frontdoor.http.head import RequestHead
from frontdoor.observability import status
from frontdoor.observability.metrics import render
from frontdoor.observability.page import page
from frontdoor.policy.routes import Kind

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection

_METRICS_TYPE = "text/plain; version=0.0.4"
_PREFLIGHT = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: *, Authorization\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)


def unknown(head: RequestHead) -> Refusal:
    """A path that is neither ours nor one of the engine's that may be asked."""
    return Refusal(404, "unknown_path", f"{head.route.path} is not served here")


class LocalAnswers:
    """Status, health, metrics, the page, the list of models, and the answer to browsers that ask first."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._payloads: dict[str, Callable[[], tuple[int, dict[str, Any] | bytes]]] = {
            "/status": lambda: (200, status.status(door)),
            "/frontdoor/activity": lambda: (200, door.ledger.activity.report() | {"switches": door.history.switches()}),
            "/health": lambda: (200, {"status": "ok"}),
            "/ready": self._ready,
            "/metrics": self._metrics,
        }

    def answer(self, client: ClientConnection, head: RequestHead) -> None:
        """Answer a path that is not the engine's."""
        path = head.route.path
        if head.method == b"OPTIONS":
            self.preflight(client, head)
        elif head.route.kind is not Kind.LOCAL or path == "*":
            client.refuse(unknown(head), head)
        elif head.method not in head.route.methods:
            client.refuse(errors.method_not_allowed(path, head.route.methods), head)
        elif path == "/":
            html, fields = page()
            self._reply(client, head, 200, html, "text/html; charset=utf-8", fields)
        else:
            # what is shown counts what has ended by now
            self._door.ledger.settle()
            code, payload = self._payloads[path]()
            seconds = None if code == 200 else status.retry_after_s(self._door, self._door.spread())
            after = b"" if seconds is None else b"Retry-After: %d\r\n" % seconds
            if isinstance(payload, bytes):
                self._reply(client, head, code, payload, _METRICS_TYPE, after)
            else:
                self._reply(client, head, code, status.encode(payload), "application/json", after)

    def preflight(self, client: ClientConnection, head: RequestHead) -> None:
        """Tell a browser what it may do."""
        cors = self._door.cors_fields(head)
        extra = cors + _PREFLIGHT if cors else b""

        top = b"HTTP/1.1 204 No Content\r\n" + errors.date_line() + extra
        client.reply(head, lambda connection: top + connection + b"\r\n")

    def _reply(
        self, client: ClientConnection, head: RequestHead, code: int, content: bytes, kind: str, fields: bytes = b""
    ) -> None:
        extra = self._door.cors_fields(head) + fields
        bare = head.method == b"HEAD"
        client.reply(
            head,
            lambda connection: errors.response(
                code, content, content_type=kind, extra=extra, connection=connection, head_only=bare
            ),
        )

    def _metrics(self) -> tuple[int, bytes]:
        door = self._door
        labels = status.served(door)
        return 200, render(door.ledger.metrics, status.gauges(door), labels, door.state.phase, __version__)

    def _ready(self) -> tuple[int, dict[str, Any]]:
        state = self._door.state
        is_ready, reason = status.ready(self._door)
        about = {"verified": state.verified, "gate": state.gate}
        return (200 if is_ready else 503), {"ready": is_ready, "phase": state.phase, "reason": reason, **about}
