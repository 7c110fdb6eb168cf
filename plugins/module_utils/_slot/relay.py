# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay to an engine elsewhere: HAProxy's configuration, and the program that writes it before each start.

The unit of a remote profile runs this file by itself, with the standard library alone. It reads the unit's environment
and credentials and writes the configuration into the unit's runtime directory, so that the API key is nowhere but in a
file that only the unit's own user can read, for as long as the unit runs.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

URL, BIND = "B70_REMOTE_URL", "B70_RELAY_BIND"
KEY, CA = "key", "ca.pem"  # names of credentials
CONFIG = "haproxy.cfg"
SYSTEM_CA = "/etc/ssl/certs/ca-certificates.crt"
HOSTS = "/etc/hosts"
# Nothing that HAProxy would read as more than one word, or as something else than text.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_KEY = re.compile(r"[!-~]+")
_BIND = re.compile(r"(\[[0-9a-f:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")


@dataclass(frozen=True)
class Remote:
    """A base URL in parts. path: without a slash at its end; empty for none."""

    host: str
    port: int
    path: str
    tls: bool

    @property
    def is_address(self) -> bool:
        return _address(self.host) is not None

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_private(host: str) -> bool:
    """Tell whether a host is an address of a private network or of this host."""
    address = _address(host)
    return address is not None and address.is_private and not address.is_unspecified


def parse_url(url: str) -> Remote:
    """Return the parts of a base URL such as ``https://example.org/openai/v1``; raise ValueError for a wrong one."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{url!r} must begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a base URL must not contain a user or password; use api_key_file")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(f"{url!r} must end with its path: no query, no fragment")
    host, path = parts.hostname or "", parts.path.rstrip("/")
    if _address(host) is None and not _HOST.fullmatch(host):
        raise ValueError(f"{url!r} names no valid host: use a name or an address")
    if not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise ValueError(
            f"the path of {url!r} has characters that no API path has: use letters, digits and ._~- between slashes"
        )
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ValueError(f"{url!r} names no port from 1 to 65535") from error
    return Remote(host, port, path, parts.scheme == "https")


def parse_key(text: str) -> str:
    """Return the key in the text of a file: one line. Raise ValueError, which does not quote it, for anything else."""
    key = text.strip()
    if not key:
        raise ValueError("it is empty")
    if not _KEY.fullmatch(key):
        raise ValueError("it must contain only the key: one line of printable ASCII without spaces")
    return key


def _quoted(text: str) -> str:
    """Return a word between single quotes, where nothing has a meaning to HAProxy's parser."""
    return "'" + text.replace("'", "'\\''") + "'"


def _formatted(text: str) -> str:
    """Return a quoted word for places where HAProxy expands ``%`` itself."""
    return _quoted(text.replace("%", "%%"))


def _answer(status: int, message: str, code: str) -> str:
    body = {"error": {"message": message, "type": "upstream_error", "param": None, "code": code}}
    return f"status {status} content-type application/json string {_quoted(json.dumps(body))}"


def configuration(remote: Remote, bind: str, key: str, ca_file: str, *, resolve: bool) -> str:
    """Return HAProxy's configuration, for 2.6 and newer.

    bind: ``HOST:PORT`` to listen on. key: empty for none. ca_file: what certificates are verified with.
    An encrypted remote is named: HAProxy compares addresses with no certificate.
    resolve: look the name up again while it runs; a name in /etc/hosts is looked up at the start alone.
    """
    if not _BIND.fullmatch(bind):
        raise ValueError(f"{BIND} is {bind!r}, wanted HOST:PORT")
    host = f"[{remote.host}]" if ":" in remote.host else remote.host
    bearer = _formatted(f"Bearer {key}")
    gone = "{ status 502:504 } !{ var(txn.heard) -m bool }"
    asks = f"http-check send meth GET uri {remote.path}/models ver HTTP/1.1 hdr Host {remote.authority}"
    asks += f" hdr Authorization {bearer}" if key else ""
    server = f"server remote {host}:{remote.port} check inter 5s fastinter 1s downinter 2s rise 1 fall 2"
    server += " on-marked-down shutdown-sessions"
    if remote.tls:
        server += f" ssl verify required ca-file {_quoted(ca_file)} verifyhost {remote.host}"
        server += f" sni str({remote.host}) check-sni {remote.host} alpn http/1.1 check-alpn http/1.1"
    if resolve:
        server += " resolvers system resolve-prefer ipv4 init-addr last,libc,none"
    elif not remote.is_address:
        server += " init-addr last,libc,none"
    lines = [
        "global",
        "    log stderr format raw local0 notice",
        "    nbthread 1",
        "    hard-stop-after 5s",
        *(["resolvers system", "    parse-resolv-conf", "    accepted_payload_size 8192"] if resolve else []),
        "defaults",
        "    mode http",
        "    log global",
        "    option dontlog-normal",
        "    option http-no-delay",
        "    option abortonclose",
        "    option clitcpka",
        "    option srvtcpka",
        "    timeout connect 10s",
        "    timeout check 10s",
        "    timeout http-request 60s",
        # The frontdoor limits how long an answer may take, and then closes the connection.
        "    timeout client 1d",
        "    timeout server 1d",
        # A request that was not sent may be sent again; nothing else, because a generation is not repeatable.
        "    retries 2",
        "    retry-on conn-failure",
        "frontend engine",
        f"    bind {bind}",
        # The count of its absences, so that an occasional look does not miss one. A server counts as up before it
        # was asked for the first time.
        f"    http-after-response set-var(proc.away) var(proc.away,0),add(1) if {gone}",
        *(
            f'    http-request return status 503 content-type text/plain string "away" if {{ path /health }} {away}'
            for away in ("!{ var(proc.answered) -m bool }", "{ nbsrv(remote) lt 1 }")
        ),
        "    http-request return status 200 content-type text/plain lf-string %[var(proc.away,0)] if { path /health }",
        "    http-request return "
        + _answer(404, "this engine is elsewhere; only paths below /v1/ reach it", "not_found")
        + " if !{ path_beg /v1/ }",
        "    default_backend remote",
        "backend remote",
        "    option httpchk",
        "    option log-health-checks",
        f"    {asks}",
        "    http-check expect status 200",
        "    http-check set-var(proc.answered) bool(true)",
        # A remote that is too busy says so itself.
        "    http-response set-var(txn.heard) bool(true)",
        *(f"    http-request del-header {name}" for name in ("authorization", "x-api-key", "cookie", "forwarded")),
        "    http-request del-header x-forwarded- -m beg",
        f"    http-request set-header Host {remote.authority}",
        *([f"    http-request set-header Authorization {bearer}"] if key else []),
        *([] if remote.path == "/v1" else [f"    http-request replace-path /v1/(.*) {remote.path}/\\1"]),
        *(f"    http-response del-header {name}" for name in ("set-cookie", "alt-svc", "strict-transport-security")),
        # The remote's answer to a key that it refuses may quote the key.
        "    http-response return "
        + _answer(502, "the remote engine refuses this host's API key; an operator must check it", "remote_refused_key")
        + " if { status 401 403 }",
        "    http-error "
        + _answer(502, "the remote engine closed the connection, or its answer is not valid HTTP", "remote_closed"),
        "    http-error " + _answer(503, "the remote engine does not answer", "remote_unreachable"),
        "    http-error " + _answer(504, "the remote engine did not answer in time", "remote_timeout"),
        f"    {server}",
    ]
    return "\n".join(lines) + "\n"


def _in_hosts(name: str, text: str) -> bool:
    """Tell whether the text of /etc/hosts names a host; a name server need not know such a name."""
    rows = (line.partition("#")[0].split()[1:] for line in text.splitlines())
    return any(name.lower() in (word.lower() for word in row) for row in rows)


def main(env: Mapping[str, str], hosts: Path = Path(HOSTS)) -> int:
    """Write the configuration to the unit's runtime directory. Return the exit status; what is wrong is on stderr."""
    given, target = Path(env.get("CREDENTIALS_DIRECTORY") or "/nonexistent"), Path(env["RUNTIME_DIRECTORY"], CONFIG)
    try:
        remote = parse_url(env[URL])
        ca_file = given / CA
        key_file = given / KEY
        try:
            key = parse_key(key_file.read_text(encoding="utf-8")) if key_file.exists() else ""
        except ValueError as error:
            raise ValueError(f"the API key of the remote engine can't be used: {error}") from error
        known = hosts.read_text(encoding="utf-8") if hosts.exists() else ""
        resolve = not remote.is_address and not _in_hosts(remote.host, known)
        chosen = str(ca_file) if ca_file.exists() else SYSTEM_CA
        text = configuration(remote, env[BIND], key, chosen, resolve=resolve)
    except (KeyError, ValueError, OSError) as error:
        sys.stderr.write(f"relay: {error}\n")
        return 1
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(os.environ))
