# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a slot's files for an engine elsewhere: where its relay runs, and what it is given. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.relay import CA, KEY, parse_url

Remote = Mapping[str, Any]


def relay_name(slot: str) -> str:
    """Return the name of the runtime directory of a slot's relay."""
    return f"b70-relay-{slot}"


def relay_dir(slot: str) -> str:
    return f"/run/{relay_name(slot)}"


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def keys_dir(config_dir: str) -> str:
    """Return the directory of the keys that the role writes; only root reads it."""
    return f"{config_dir}/keys"


def with_paths(remote: Remote, config_dir: str) -> dict[str, Any]:
    """Return the remote as a host reads it: a name of `slot_remote_keys` becomes the path of its file."""
    key = remote["api_key_file"]
    return {**remote, "api_key_file": f"{keys_dir(config_dir)}/{key}" if key and not key.startswith("/") else key}


def relay_network(remote: Remote, own: Sequence[str]) -> list[str]:
    """Return the directives for the IP addresses that a relay may reach.

    If the remote is an address, that one is allowed. What a name resolves to may change at any time, so a name allows
    all but multicast and link-local addresses, where clouds serve their metadata.
    """
    url = parse_url(remote["base_url"])
    denied, allowed = ("any", [url.host]) if url.is_address else ("link-local multicast", [])
    return [f"IPAddressDeny={denied}", f"IPAddressAllow={' '.join(['localhost', *own, *allowed])}"]


def relay_credentials(remote: Remote) -> dict[str, str]:
    """Return the files that systemd hands a relay, by their names there."""
    files = {KEY: remote["api_key_file"], CA: remote["ca_file"]}
    return {name: path for name, path in files.items() if path}
