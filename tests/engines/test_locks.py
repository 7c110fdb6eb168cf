# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every lock of a stack for cards, asked of the package index: all of it can be had for a host, and is what was locked.

Nothing is downloaded but listings and metadata. The one index of this machine's pip is asked: what folders and indexes
beside it offer was chosen for this machine. Where it cannot be reached, uv's words name the address.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, locked_versions
from labkit.hosts import package_clients
from labkit.sources import PackageClients
from tools import engines

CARDS = {name: stack for name, stack in load_stacks().items() if stack.get("lock_file") and stack["device"] == "xpu"}
# Ubuntu 24.04, whose C library is 2.39; what the locks themselves are made for stands in their first lines.
HOST = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_39", "--only-binary", ":all:", "--no-deps")


def uv(place: Path, *arguments: str) -> None:
    """Run uv with one index; fails with its words."""
    machine = package_clients()
    settings = place / "uv.toml"
    settings.write_text(PackageClients(index_url=machine.index_url, trusted_hosts=machine.trusted_hosts).uv_toml())
    command = ["uv", *arguments, "--quiet", "--config-file", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=engines.LIMIT_S, check=False)
    where = machine.index_url or "the public package index"
    assert done.returncode == 0, f"{where}, asked for the lock, ends uv with {done.returncode}:\n{done.stderr.strip()}"


def digests(lock: str) -> dict[str, set[str]]:
    """Name and version to the digests under it, of a lock's text."""
    found: dict[str, set[str]] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if pin := locked_versions(block):
            ((name, version),) = pin.items()
            found[f"{name}=={version}"] = set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", block))
    return found


def test_there_is_something_to_ask_about():
    assert set(CARDS) == {"lab-minimax", "llama-sycl", "llama-vulkan", "xpu", "xpu-0.32"}
    # An environment of vLLM has hundreds of packages, what builds llama.cpp only some.
    least = {"vllm": 150, "llama-server": 3}
    for name, stack in CARDS.items():
        assert len(digests(Path(stack["lock_file"]).read_text())) > least[stack["engine"]["kind"]], name


@pytest.mark.parametrize("name", CARDS)
def test_a_host_can_install_the_whole_lock_by_its_digests(name, tmp_path):
    lock = CARDS[name]["lock_file"]
    uv(
        tmp_path,
        *("pip", "install", "--dry-run", "--require-hashes", *HOST),
        *("--target", str(tmp_path / "none"), "--requirements", lock),
    )


@pytest.mark.parametrize("name", CARDS)
def test_what_the_index_offers_for_a_host_has_the_locks_digests(name, tmp_path):
    locked = digests(Path(CARDS[name]["lock_file"]).read_text())
    names, listing = tmp_path / "names.in", tmp_path / "pylock.toml"
    names.write_text("".join(f"{pin}\n" for pin in locked))
    uv(tmp_path, "pip", "compile", str(names), *HOST, "--format", "pylock.toml", "--output-file", str(listing))
    offered = {
        f"{package['name']}=={package['version']}": {
            f"sha256:{wheel['hashes']['sha256']}" for wheel in package["wheels"]
        }
        for package in tomllib.loads(listing.read_text())["packages"]
    }
    assert set(offered) == set(locked)
    other = {pin: sorted(found - locked[pin]) for pin, found in offered.items() if not found or found - locked[pin]}
    assert not other, "the index has other wheels of these versions, with these digests"
