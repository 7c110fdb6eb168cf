# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' servers of the lab: believed under their names by who is told to, and by nobody else."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path

import pytest

from hub import server as hub_server
from hub.server import Hub
from machine import free_port
from vendor.internet import HUB, Internet, internet


def get(net: Internet, port: int, name: str, path: str, trusted: bool = True) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cadata=net.certificate if trusted else None)
    connection = http.client.HTTPSConnection(name, port, timeout=20, context=context)
    plain = socket.create_connection((net.address, port), 20)
    connection.sock = context.wrap_socket(plain, server_hostname=name)
    connection.request("GET", path)
    return connection.getresponse()


def test_each_name_has_its_own_files_and_a_certificate_that_only_the_told_believe(tmp_path: Path) -> None:
    sites = {name: tmp_path / name for name in ("wheels.example", "debs.example")}
    for name, folder in sites.items():
        (folder / "a+b").mkdir(parents=True)
        (folder / "a+b/index.html").write_text(f"this is {name}")
    port = free_port()
    with internet(tmp_path / "tls", "127.0.0.1", sites, port=port) as net:
        for name in sites:
            assert get(net, port, name, "/a%2Bb/").read().decode() == f"this is {name}"
        assert get(net, port, "debs.example", "/absent").status == 404
        with pytest.raises(ssl.SSLCertVerificationError):
            get(net, port, "debs.example", "/a%2Bb/", trusted=False)
        with pytest.raises(ssl.SSLCertVerificationError):
            get(net, port, "other.example", "/")


@pytest.mark.parametrize("repositories", [("Maker/one", "Maker/two"), ("Maker/one", "Maker/one")])
def test_the_hub_has_several_repositories_and_commits(tmp_path: Path, repositories: tuple[str, str]) -> None:
    hubs = [
        Hub(tmp_path / str(number), repository=name, commit=str(number) * 40, large=frozenset())
        for number, name in enumerate(repositories)
    ]
    for hub in hubs:
        hub.root.mkdir()
        (hub.root / "config.json").write_text(json.dumps({"name": hub.commit}))
    port = free_port()
    with (
        hub_server.serve(hubs[0]),
        hub_server.serve(hubs[1]),
        internet(tmp_path / "tls", "127.0.0.1", {}, hubs, port) as net,
    ):
        for hub in hubs:
            about = json.load(get(net, port, HUB, f"/api/models/{hub.repository}/revision/{hub.commit}"))
            assert about["id"] == hub.repository
            answer = get(net, port, HUB, f"/{hub.repository}/resolve/{hub.commit}/config.json")
            assert (json.load(answer), answer.headers["X-Repo-Commit"]) == ({"name": hub.commit}, hub.commit)
        assert get(net, port, HUB, "/api/models/Maker/three").status == 404
