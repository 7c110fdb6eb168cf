# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host gives its complete models to other hosts: nginx, as a transient unit without rights, while a play brings
models to them.

It serves nothing but links to the models that were named, to the addresses that were named. A directory has a model's
name only while it is complete, so nothing partial can be read.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _transient
from .fetching.transports import ARIA2
from .manifest import WeightsError, check_name

NGINX = "/usr/sbin/nginx"
UNIT = "b70-weights-serve.service"
FOLDER = "/run/b70-weights-serve"
_SYSTEMD = _transient.TransientUnits(WeightsError, "serving models")
_START_LIMIT_S = 20.0
# Answered by this server alone: another process may have the port.
_HERE = "/b70-weights-serve"
_PAUSE_S = 0.1
# Where the default route leads; nothing is sent there.
_ELSEWHERE = "192.0.2.1"


def facts(network: str) -> dict[str, Any]:
    """Return this host's part in sharing models.

    ``address``: its own, in ``network`` if one is named, empty if it has none there. ``gives`` and ``takes``: the
    programs are installed. ``serving``: it gives now.
    """
    listed = json.loads(_SYSTEMD.ask(["ip", "-json", "address", "show", "scope", "global"]) or "[]")
    known = [entry["local"] for link in listed for entry in link.get("addr_info", []) if "local" in entry]
    return {
        "address": choose_address(known, _outward(), network),
        "gives": os.path.exists(NGINX),
        "takes": os.path.exists(ARIA2),
        "serving": os.path.isdir(FOLDER),
    }


def choose_address(known: Sequence[str], outward: str, network: str) -> str:
    """Return the address at which other hosts reach this one: the first in ``network``; without one, the address of the
    default route (``outward``), else the first. Empty if there is none; raise WeightsError on a faulty network."""
    if network:
        try:
            within = ipaddress.ip_network(network)
        except ValueError as error:
            raise WeightsError(
                f"model_weights_peers_network {network!r} is no network: write it like 10.0.0.0/24 ({error})"
            ) from error
        return next((address for address in known if ipaddress.ip_address(address) in within), "")
    return outward if outward in known else next(iter(known), "")


def checked(address: Any) -> str:
    """Return an address as the ipaddress module writes it; raise WeightsError for anything else. What one host calls
    its address ends up in files of root on the others."""
    try:
        # what follows a % may be any text
        if isinstance(address, str) and "%" not in address:
            return str(ipaddress.ip_address(address))
    except ValueError:
        pass
    raise WeightsError(
        f"{address!r} is no IP address, so no host can be reached there: see what 'ip -json address' says on the hosts"
    )


def url(address: str, port: int) -> str:
    """Return where a server answers."""
    return f"http://{_in_url(address)}:{port}"


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _outward() -> str:
    """Return the address from which this host reaches others by its default route; empty without such a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def configuration(address: str, port: int, allowed: Sequence[str]) -> str:
    """Return nginx's configuration."""
    temporary = "".join(
        f"  {kind}_temp_path /tmp/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    allow = "".join(f"    allow {one};\n" for one in sorted(allowed))
    return (
        "daemon off;\nworker_processes 2;\npid /tmp/nginx.pid;\nerror_log stderr error;\n"
        "events { worker_connections 512; }\n"
        "http {\n"
        f"{temporary}"
        "  access_log off;\n  server_tokens off;\n  sendfile on;\n  aio threads;\n"
        "  default_type application/octet-stream;\n"
        "  server {\n"
        f"    listen {_in_url(address)}:{port};\n    root {FOLDER}/models;\n"
        f"{allow}    deny all;\n"
        "    location / { limit_except GET { deny all; } try_files $uri =404; }\n"
        "    location ~ /\\. { deny all; }\n"
        f"    location = {_HERE} {{ return 204; }}\n"
        "  }\n}\n"
    )


def task(limit_s: int, allowed: Sequence[str]) -> _transient.Task:
    """Return the unit: a user that exists only while it runs, and the network only to the other hosts."""
    return _transient.Task(
        unit=UNIT,
        description="Models for other hosts",
        argv=(NGINX, "-e", "stderr", "-c", f"{FOLDER}/nginx.conf"),
        limit_s=limit_s,
        log=f"{FOLDER}/log",
        properties=_transient.sealed(allowed),
    )


def serve(models: Mapping[str, str], address: str, port: int, allowed: Sequence[str], limit_s: int) -> None:
    """Give models (name to directory) beside those that are given already."""
    address, allowed = checked(address), [checked(one) for one in allowed]
    links = os.path.join(FOLDER, "models")
    os.makedirs(links, exist_ok=True)
    for folder in (FOLDER, links):
        os.chmod(folder, 0o755)  # nginx is another user, whatever the umask of root is
    for name, directory in models.items():
        check_name(name)
        link = os.path.join(links, name)
        if os.path.lexists(f"{link}.new"):
            os.unlink(f"{link}.new")
        os.symlink(directory, f"{link}.new")
        os.replace(f"{link}.new", link)
    file, text = os.path.join(FOLDER, "nginx.conf"), configuration(address, port, allowed)
    running = _SYSTEMD.state(UNIT).running
    if not running or _read(file) != text:
        with open(file, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), 0o644)
            stream.write(text)
        if running:
            _SYSTEMD.stop(UNIT)
        _SYSTEMD.start(task(limit_s, allowed))
    _wait(address, port)


def _wait(address: str, port: int) -> None:
    end = time.monotonic() + _START_LIMIT_S
    while _SYSTEMD.state(UNIT).running and time.monotonic() < end:
        if _answers(address, port):
            return
        time.sleep(_PAUSE_S)
    said = " / ".join((_read(os.path.join(FOLDER, "log")) or "").strip().splitlines()[-2:])
    close()
    raise WeightsError(
        f"nginx did not begin to serve models at {address}, port {port}: {said[:300] or 'it said nothing'}. Choose "
        "another model_weights_peers_port or model_weights_peers_network"
    )


def _answers(address: str, port: int) -> bool:
    server = http.client.HTTPConnection(address, port, timeout=1)
    try:
        server.request("HEAD", _HERE)
        return server.getresponse().status == 204
    except (OSError, http.client.HTTPException):
        return False
    finally:
        server.close()


def close() -> None:
    """Serve nothing any more."""
    if _SYSTEMD.state(UNIT).running:
        _SYSTEMD.stop(UNIT)
    _SYSTEMD.forget(UNIT)
    shutil.rmtree(FOLDER, ignore_errors=True)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
