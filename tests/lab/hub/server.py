# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that speaks the part of the hub's HTTP interface that its own client uses to look at and fetch a model.

As there: the model's description with sizes and digests under /api/models, `resolve` addresses that answer with the
commit, and for large files with a redirect to a storage under another address, which takes ranges and must not be given
the token. It breaks what it is told to break, and keeps every request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vendor.authority import certificates, context_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Fault:
    """What happens to the body of one file, `times` times (-1: always): cut or stalled after `after` bytes of it."""

    kind: str  # cut, stall, corrupt, short
    after: int = 0
    times: int = 1


@dataclass
class Refusal:
    """What is answered instead, `times` times (-1: always)."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    times: int = 1


# What somebody answers who stands between: a page to sign in at, whatever was asked for.
PORTAL = {"Content-Type": "text/html; charset=utf-8"}


@dataclass(frozen=True)
class Asked:
    """One request: `sent` is how many bytes of the body went out."""

    method: str
    path: str
    range: str
    token: str
    sent: int
    storage: bool


@dataclass
class Hub:
    """A repository. commit: where its main branch is; coming: where that moves, one step for every question about it.
    large: files in large file storage; token: who may read it (none: everybody). claims: the commit that descriptions
    name, whatever was asked for. refusals: what is answered instead, by how the path begins."""

    root: Path
    repository: str = "lab/tiny-a"
    commit: str = COMMIT
    coming: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)
    token: str = ""
    gated: bool = False
    large: frozenset[str] = frozenset({"model.safetensors", "tokenizer.json"})
    pace_s: float = 0.0  # pause after every 64 KiB
    pause: Callable[[float], None] = time.sleep  # what pauses for so long
    faults: dict[str, Fault] = field(default_factory=dict)
    claims: str = ""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    storage_url: str = ""
    authority: str = ""  # the certificate (PEM) that its clients must believe, where it is served with TLS

    def files(self) -> dict[str, bytes]:
        names = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in names}

    def bytes_of(self, name: str) -> int:
        """How many bytes of a file went out."""
        return sum(one.sent for one in self.asked if one.method == "GET" and one.path.endswith(f"/{name}"))

    def commit_of(self, revision: str) -> str:
        """The commit that a revision names; empty where there is none."""
        found = self.commit if revision == "main" else revision
        known = [self.commit, *self.former]
        if revision == "main" and self.coming:
            self.former.append(self.commit)
            self.commit = self.coming.pop(0)
        return found if found in known else ""

    def description(self, commit: str) -> dict[str, Any]:
        siblings = []
        for name, data in self.files().items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
            if name in self.large:
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 133}
            siblings.append(entry)
        sha = self.claims or commit
        return {"_id": "0", "id": self.repository, "modelId": self.repository, "sha": sha, "siblings": siblings}


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    storage: bool

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.sent = 0
        try:
            self._route(urllib.parse.unquote(self.path.partition("?")[0]))
        except ConnectionError:
            self.close_connection = True
        finally:
            said = self.headers
            self.hub.asked.append(
                Asked(
                    self.command,
                    self.path,
                    said.get("Range", ""),
                    said.get("Authorization", "").removeprefix("Bearer "),
                    self.sent,
                    self.storage,
                )
            )

    def _route(self, path: str) -> None:
        hub = self.hub
        refusal = next((one for begin, one in hub.refusals.items() if path.startswith(begin) and one.times), None)
        if refusal is not None:
            refusal.times -= 1
            return self._send(refusal.status, refusal.body, refusal.headers)
        if self.storage:
            name = path.removeprefix("/store/")
            data = hub.files().get(name)
            return self._error(404, "", "Not found") if data is None else self._body(name, data, {})
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            if hub.gated:
                return self._error(403, "GatedRepo", "Access to this model is restricted")
            unknown = "Authorization" not in self.headers
            said = "Repository not found" if unknown else "Invalid credentials in Authorization header"
            return self._error(401, "RepoNotFound" if unknown else "", said)
        base, resolve = f"/api/models/{hub.repository}", f"/{hub.repository}/resolve/"
        if path.startswith("/api/models/") and not path.startswith(base):
            return self._error(404, "RepoNotFound", "Repository not found")
        if path.startswith(base):
            revision = path.removeprefix(base).removeprefix("/revision/") or "main"
            commit = hub.commit_of(revision)
            if not commit:
                return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return self._send(200, json.dumps(hub.description(commit)).encode(), {"Content-Type": "application/json"})
        if not path.startswith(resolve):
            return self._error(404, "RepoNotFound", "Repository not found")
        revision, name = path.removeprefix(resolve).split("/", 1)
        data = hub.files().get(name)
        if revision == "main" or not hub.commit_of(revision) or data is None:
            return self._error(404, "EntryNotFound", "Entry not found")
        headers: dict[str, str] = {"X-Repo-Commit": revision}
        if name not in hub.large:
            return self._body(name, data, {**headers, "ETag": f'"{git_sha1(data)}"'})
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        where = f"{hub.storage_url}/store/{urllib.parse.quote(name)}?X-Amz-Signature=secret"
        return self._send(302, b"Found", {**headers, **linked, "Location": where})

    def _error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code} if code else {}
        self._send(status, json.dumps({"error": message}).encode(), {**headers, "X-Error-Message": message})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _body(self, name: str, data: bytes, headers: dict[str, str]) -> None:
        """A file or the range of it that is asked for, broken as told."""
        fault = self.hub.faults.get(name) if self.command == "GET" else None
        if fault is not None:
            if fault.times == 0:
                fault = None
            else:
                fault.times -= 1
        if fault is not None and fault.kind == "corrupt":
            data = data[: fault.after] + bytes([data[fault.after] ^ 1]) + data[fault.after + 1 :]
        if fault is not None and fault.kind == "short":
            data = data[: fault.after]
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if begin and begin >= len(data):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        for key, value in {"Content-Length": str(len(data) - begin), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "GET":
            return None
        end = len(data)
        if fault is not None and fault.kind in ("cut", "stall"):
            end = min(end, begin + fault.after)
        while begin < end:
            piece = data[begin : min(end, begin + 65536)]
            self.wfile.write(piece)
            begin += len(piece)
            self.sent += len(piece)
            if self.hub.pace_s:
                self.hub.pause(self.hub.pace_s)
        if end < len(data):
            self.wfile.flush()
            if fault is not None and fault.kind == "stall":
                time.sleep(30)
            self.close_connection = True
            self.connection.close()
        return None


@contextlib.contextmanager
def serve(hub: Hub, address: str = "127.0.0.1", keys: Path | None = None) -> Iterator[Hub]:
    """Serve a repository on free ports of `address`: the hub on one, its storage on another.

    keys: a folder for the key and certificate of the hub, which is then served with TLS.
    """
    servers = []
    for storage in (False, True):
        handler = type("Handler", (_Handler,), {"hub": hub, "storage": storage})
        servers.append(ThreadingHTTPServer((address, 0), handler))
    hub.url, hub.storage_url = (f"http://{address}:{server.server_port}" for server in servers)
    if keys is not None:
        hub.url = hub.url.replace("http", "https", 1)
        hub.authority = certificates(keys, [address])
        tls = context_of(keys)
        servers[0].socket = tls.wrap_socket(servers[0].socket, server_side=True, do_handshake_on_connect=False)
    for server in servers:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
