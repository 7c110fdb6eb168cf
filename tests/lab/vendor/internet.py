# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' servers under their real names: HTTPS on the lab's bridge, for a host that is told to believe it.

One address answers for all names, with certificates of an authority that exists for one run. A host believes it when
the authority's certificate and the names stand in its own files (`commands_for`); this machine never does.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hub.server import Hub

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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificates(folder: Path, names: Sequence[str]) -> str:
    """Write a key and a certificate for all names to `folder`/server.pem; returns the authority's certificate."""
    now = datetime.datetime.now(datetime.UTC)
    lasts = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=2))

    def builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name("Authority of the lab"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(lasts[0]).not_valid_after(lasts[1])

    root, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = builder("Authority of the lab", root)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    server = builder(names[0], key).add_extension(
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
    )
    signed, pem = server.sign(root, hashes.SHA256()), serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(secret + signed.public_bytes(pem))
    (folder / "server.pem").chmod(0o600)
    return authority.sign(root, hashes.SHA256()).public_bytes(pem).decode()


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
    certificate = _certificates(folder, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
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
