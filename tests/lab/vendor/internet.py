# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' servers under their real names: HTTPS on the lab's bridge, for a host that is told to believe it.

One address answers for all names, with certificates of an authority that exists for one run. A host believes it when
the authority's certificate and the names stand in its own files (`commands_for`); this machine never does.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hub.server import Hub
from vendor.authority import certificates, context_of

HUB = "huggingface.co"
PORT = 443


@dataclass(frozen=True)
class Internet:
    """`names` lead to `address`; `certificate` (PEM) is the authority to believe."""

    address: str
    names: tuple[str, ...]
    certificate: str

    def commands_for(self, host: str) -> list[str]:
        """Shell commands that make a host believe it."""
        file = f"/usr/local/share/ca-certificates/{host}-lab.crt"
        return [
            f"printf %s '{self.certificate}' > {file}",
            "update-ca-certificates",
            f"echo '{self.address} {' '.join(self.names)}' >> /etc/hosts",
        ]


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site that the request names; the hub's repositories are asked for at their own server."""

    sites: Mapping[str, Path]
    hubs: Sequence[Hub]
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def translate_path(self, path: str) -> str:
        name = self.headers.get("Host", "").partition(":")[0]
        self.directory = str(self.sites.get(name, "/nonexistent"))
        return super().translate_path(path)

    def _hub(self) -> Hub | None:
        if self.headers.get("Host", "").partition(":")[0] != HUB:
            return None
        wanted = [hub for hub in self.hubs if f"/{hub.repository}/" in f"{self.path.partition('?')[0]}/"]
        # One repository may be there at several commits.
        wanted.sort(key=lambda hub: hub.commit not in self.path)
        return wanted[0] if wanted else None

    def do_GET(self) -> None:
        if (hub := self._hub()) is None:
            return super().do_GET()
        return self._relay(hub)

    def do_HEAD(self) -> None:
        if (hub := self._hub()) is None:
            return super().do_HEAD()
        return self._relay(hub)

    def _relay(self, hub: Hub) -> None:
        own = ("host", "connection", "accept-encoding")
        sent = {key: value for key, value in self.headers.items() if key.lower() not in own}
        connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=60)
        connection.request(self.command, self.path, headers=sent)
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("connection", "date", "server", "transfer-encoding"):
                self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)
        connection.close()


@contextlib.contextmanager
def internet(
    folder: Path, address: str, sites: Mapping[str, Path], hubs: Sequence[Hub] = (), port: int = PORT
) -> Iterator[Internet]:
    """Serve `sites` (name -> folder) and the hub's repositories until the block ends; `folder` keeps the key."""
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(dict.fromkeys([*sites, *([HUB] if hubs else [])]))
    certificate, context = certificates(folder, names), context_of(folder)
    handler = type("Handler", (_Handler,), {"sites": sites, "hubs": hubs})
    server = ThreadingHTTPServer((address, port), handler)
    server.daemon_threads = True
    # The handshake is the handler's first read, so that a client that says nothing holds nobody up.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Internet(address, names, certificate)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
