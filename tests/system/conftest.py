# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from testinfra.host import Host

from clients.line import Line, line
from demo import inventory_hosts
from shipped import installed, source, tarball
from system.product import INVENTORY, Frontdoor, bare_hosts, reach, tunnel

__all__ = ["frontdoor", "host", "host_vars", "installed", "source", "tarball"]

_ENGINE_PORT = 18080


@pytest.fixture(scope="session")
def two_hosts() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Two hosts in a lab of their own, by name with their variables, bare for the first module that asks for them."""
    with bare_hosts("elsewhere", 2):
        yield sorted(inventory_hosts(str(INVENTORY), "b70_hosts").items())


@pytest.fixture(scope="session")
def host_vars() -> dict[str, Any]:
    """The variables of the first lab host; its name is ``inventory_name``."""
    hosts = inventory_hosts(str(INVENTORY), "b70_hosts")
    assert hosts, "the lab has no host: these tests run as part of `make molecule`"
    name = sorted(hosts)[0]
    return {**hosts[name], "inventory_name": name}


@pytest.fixture(scope="session")
def host(host_vars: dict[str, Any]) -> Host:
    """A connection to that host with the very options that Ansible uses."""
    return reach(host_vars)


@pytest.fixture(scope="session")
def frontdoor(host_vars: dict[str, Any]) -> Frontdoor:
    return Frontdoor(f"http://{host_vars['ansible_host']}:8000")


@pytest.fixture(scope="module")
def between(host_vars: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The host's engine through a frontdoor on this machine that is listened to on both sides."""
    with tunnel(host_vars, _ENGINE_PORT) as port, line(tmp_path_factory.mktemp("line"), port) as made:
        yield made
