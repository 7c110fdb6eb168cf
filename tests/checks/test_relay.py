# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay to an engine elsewhere: the distribution's HAProxy with the configuration that the relay makes."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._slot.relay import configuration, parse_url
from machine import LIMIT_S, free_port

SECRET = "sk-a'b%c"


@dataclass
class Remote:
    """A stand-in for an engine elsewhere that keeps what it was asked."""

    port: int
    key: str = SECRET
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)


def handler(remote: Remote) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: object) -> None:
            pass

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Set-Cookie", "a=b")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            remote.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            if self.headers.get("Authorization") != f"Bearer {remote.key}":
                self._answer(401, f"the key {self.headers.get('Authorization')} is wrong")
                return
            self._answer(503 if self.path.endswith("/busy") else 200, json.dumps({"data": [{"id": "m"}]}))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            remote.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for text in (b"data: one\n\n", b"data: two\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                self.wfile.flush()
                # The second part is not sent before the client has the first one.
                remote.go_on.wait(LIMIT_S)
            self.wfile.write(b"0\r\n\r\n")

    return Handler


@contextmanager
def serving(remote: Remote, tls: ssl.SSLContext | None = None) -> Iterator[Remote]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", remote.port), handler(remote))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield remote
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def relaying(programs: Path, folder: Path, url: str, ca_file: str = "") -> Iterator[int]:
    """Have HAProxy check the configuration, and run it; the port that it listens on."""
    port, config = free_port(), folder / "haproxy.cfg"
    config.write_text(configuration(parse_url(url), f"127.0.0.1:{port}", SECRET, ca_file, resolve=False))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(programs / "lib")}
    program = str(programs / "bin/haproxy")
    checked = subprocess.run([program, "-c", "-f", str(config)], env=environment, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(config)], env=environment, stdout=log, stderr=log)
    try:
        yield port
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def get(port: int, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    except ConnectionRefusedError:
        return 0, "", http.client.HTTPMessage()
    finally:
        connection.close()


def becomes(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_request_reaches_the_remote_with_the_hosts_key_alone(programs: Path, tmp_path: Path) -> None:
    with (
        serving(Remote(free_port())) as remote,
        relaying(programs, tmp_path, f"http://127.0.0.1:{remote.port}/openai/v1") as port,
    ):
        becomes(lambda: get(port, "/health")[0] == 200)
        headers = {"Authorization": "Bearer client", "Cookie": "c=d", "X-Forwarded-For": "10.0.0.9"}
        status, text, given = get(port, "/v1/models?x=1", **headers)
    assert (status, json.loads(text)) == (200, {"data": [{"id": "m"}]})
    assert given["Set-Cookie"] is None
    ((path, seen),) = [one for one in remote.asked if "x=1" in one[0]]  # its health is asked for meanwhile
    assert path == "/openai/v1/models?x=1"
    assert seen["authorization"] == f"Bearer {SECRET}"
    assert seen["host"] == f"127.0.0.1:{remote.port}"
    assert not {"cookie", "x-forwarded-for"} & set(seen)


def test_only_the_api_is_relayed(programs: Path, tmp_path: Path) -> None:
    with (
        serving(Remote(free_port())) as remote,
        relaying(programs, tmp_path, f"http://127.0.0.1:{remote.port}/v1") as port,
    ):
        becomes(lambda: get(port, "/health")[0] == 200)
        assert get(port, "/metrics")[0] == 404
    assert {path for path, _headers in remote.asked} == {"/v1/models"}


def test_the_parts_of_a_stream_come_as_they_are_sent(programs: Path, tmp_path: Path) -> None:
    with (
        serving(Remote(free_port())) as remote,
        relaying(programs, tmp_path, f"http://127.0.0.1:{remote.port}/v1") as port,
    ):
        becomes(lambda: get(port, "/health")[0] == 200)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        connection.request("POST", "/v1/chat/completions", body="{}")
        answer = connection.getresponse()
        assert answer.readline() == b"data: one\n"
        assert not remote.go_on.is_set()
        remote.go_on.set()
        assert b"data: two\n" in answer.read()
        connection.close()


def test_a_refused_key_is_not_health_and_is_not_told_to_clients(programs: Path, tmp_path: Path) -> None:
    with (
        serving(Remote(free_port(), key="another")) as remote,
        relaying(programs, tmp_path, f"http://127.0.0.1:{remote.port}/v1") as port,
    ):
        becomes(lambda: b"code: 401" in (tmp_path / "log").read_bytes())
        assert get(port, "/health")[0] == 503
        becomes(lambda: get(port, "/v1/models")[0] == 503)
        remote.key = SECRET
        becomes(lambda: get(port, "/health")[0] == 200)
        remote.key = "another"
        status, text, _headers = get(port, "/v1/models")
    assert (status, json.loads(text)["error"]["code"]) == (502, "remote_refused_key")
    assert SECRET not in text
    assert SECRET.encode() not in (tmp_path / "log").read_bytes()


def test_a_remote_that_is_gone_is_unhealthy_until_it_is_back(programs: Path, tmp_path: Path) -> None:
    port_there = free_port()
    with relaying(programs, tmp_path, f"http://127.0.0.1:{port_there}/v1") as port:
        becomes(lambda: get(port, "/health")[0] == 503)
        becomes(lambda: get(port, "/v1/models")[0] == 503)
        assert json.loads(get(port, "/v1/models")[1])["error"]["code"] == "remote_unreachable"
        with serving(Remote(port_there)):
            becomes(lambda: get(port, "/health")[0] == 200)
        becomes(lambda: get(port, "/health")[0] == 503)


def test_health_tells_that_a_remote_was_away_for_a_moment(programs: Path, tmp_path: Path) -> None:
    port_there = free_port()
    with relaying(programs, tmp_path, f"http://127.0.0.1:{port_there}/v1") as port:
        with serving(Remote(port_there)):
            becomes(lambda: get(port, "/health")[0] == 200)
            before = get(port, "/health")[1]
            # One that is too busy is there.
            assert (get(port, "/v1/models")[0], get(port, "/v1/busy")[0]) == (200, 503)
            assert get(port, "/health")[1] == before
        # A client notices, before any check does.
        assert get(port, "/v1/models")[0] == 503
        with serving(Remote(port_there)):
            becomes(lambda: get(port, "/health")[0] == 200)
            assert get(port, "/health")[1] != before


def test_a_certificate_that_cannot_be_verified_is_refused(programs: Path, tmp_path: Path) -> None:
    made = [*("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")]
    names = ["-subj", "/CN=remote", "-addext", "subjectAltName=DNS:localhost"]
    for name in ("own", "other"):
        files = ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        subprocess.run([*made, *names, *files, "-days", "2"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "own.key")
    with serving(Remote(free_port()), context) as remote:
        url = f"https://localhost:{remote.port}/v1"
        with relaying(programs, tmp_path, url, str(tmp_path / "own.pem")) as port:
            becomes(lambda: get(port, "/health")[0] == 200)
        asked = len(remote.asked)
        with relaying(programs, tmp_path, url, str(tmp_path / "other.pem")) as port:
            becomes(lambda: b"Layer6 invalid response" in (tmp_path / "log").read_bytes())
            assert get(port, "/health")[0] == 503
        assert len(remote.asked) == asked
