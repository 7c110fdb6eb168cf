# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers the other nodes of a group, read only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_IDLE_LIMIT_S = 10.0


class NodeServer:
    """Serves what `answer` returns for a path, which are status and body, until the process ends.

    Raises OSError where nothing can listen on the address.
    """

    def __init__(self, address: str, port: int, answer: Callable[[str], tuple[int, str]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _IDLE_LIMIT_S

            def do_GET(self) -> None:
                status, text = answer(self.path)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                """Log nothing: each node asks every second."""

        class NodeHttpServer(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
            daemon_threads = True

        self._server = NodeHttpServer((address, port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
