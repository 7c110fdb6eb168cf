# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from testinfra.host import Host

from demo import inventory_hosts
from integration.product import INVENTORY, Frontdoor, reach
from shipped import installed, source, tarball

__all__ = ["frontdoor", "host", "host_vars", "installed", "source", "tarball"]


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
