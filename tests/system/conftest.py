# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from testinfra.host import Host

from clients.line import Line, line, process
from demo import inventory_hosts
from machine import free_port
from shipped import installed, source, tarball
from system import kinds
from system.product import INVENTORY, Frontdoor, bare_hosts, lab_command, play, reach
from vendor import llama
from vendor.server import gateway, serve

__all__ = ["frontdoor", "host", "host_vars", "installed", "source", "tarball"]

_ENGINE_PORT = 18080


@pytest.fixture(scope="session")
def two_hosts() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Two hosts in a lab of their own, by name with their variables, bare for the first module that asks for them."""
    with bare_hosts("elsewhere", 2):
        yield sorted(inventory_hosts(str(INVENTORY), "b70_hosts").items())


@pytest.fixture(scope="session")
def kinds_vars() -> Iterator[dict[str, Any]]:
    """The variables of a host that can run containers, bare for the first module that asks for it."""
    with bare_hosts(kinds.LAB, 1, "--containers"):
        lab_command("nat", "on")
        yield inventory_hosts(str(INVENTORY), "b70_hosts")[f"{kinds.LAB}1"]


@pytest.fixture(scope="session")
def kinds_site(kinds_vars: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[kinds.Operator]:
    """The site of that host. What it builds of llama.cpp is kept by its key, so that only the first run builds."""
    with serve(llama.make().www, gateway()) as url:
        more = {
            "stack_git_mirrors": {"https://github.com/": f"{url}/git/"},
            "stack_wheel_store": str(llama.CACHE / "wheels"),
        }
        yield kinds.Operator(tmp_path_factory.mktemp("stacks"), kinds_vars["ansible_host"], more)


@pytest.fixture(scope="session")
def kinds_native(kinds_site: kinds.Operator) -> kinds.Operator:
    """The real vLLM serves tiny-a there, from its environment."""
    done = play(kinds.SITE, *kinds_site.words("tiny-a"), limit_s=3600)
    assert done.code == 0, done.output[-6000:]
    return kinds_site


@pytest.fixture(scope="session")
def kinds_image(kinds_native: kinds.Operator, kinds_vars: dict[str, Any]) -> kinds.Image:
    """The image of that engine in a registry on the host, which has stacks of it in its site."""
    host = reach(kinds_vars)
    kinds.with_containers(host, kinds_native.address)
    kinds.with_registry(host)
    program = kinds.run(host, "readlink -e /opt/b70/stacks/cpu-*/venv/bin/vllm")
    image = kinds_native.publish(host, "lab/vllm", program, kinds.VLLM)
    kinds.run(host, "podman image rm --all --force")
    kinds_native.stack("lab-image", image)
    kinds_native.stack("lab-image-gone", replace(image, digest=f"sha256:{'0' * 64}"))
    return image


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
    port = free_port()
    words = f"{host_vars.get('ansible_ssh_common_args', '')} {host_vars.get('ansible_ssh_extra_args', '')}".split()
    target = f"{host_vars.get('ansible_user', 'root')}@{host_vars['ansible_host']}"
    key = ["-i", host_vars["ansible_ssh_private_key_file"]]
    tunnel = [
        "ssh",
        *words,
        *key,
        "-o",
        "ExitOnForwardFailure=yes",
        "-N",
        "-L",
        f"127.0.0.1:{port}:127.0.0.1:{_ENGINE_PORT}",
    ]
    with process([*tunnel, target], port, "the tunnel"), line(tmp_path_factory.mktemp("line"), port) as made:
        yield made
