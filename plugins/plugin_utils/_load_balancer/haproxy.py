# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's configuration, rendered for the hosts of a fleet, and its map of keys."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._templates import render
from .fleet import FleetFault, ServerPool

# text that HAProxy reads as one word and as nothing but text
_WORD = re.compile(r"[A-Za-z0-9_.:/@+-]*")

_MOST_RETRIES = 10
# those by which programs name their sessions, as frontdoors know them
SESSION_HEADERS = (
    *("x-session-id", "x-conversation-id", "x-agent-id"),
    *("x-claude-code-session-id", "x-openwebui-chat-id", "x-session-affinity", "x-opencode-session"),
    *("x-litellm-session-id", "thread-id", "session-id"),
)
_BUILD = re.compile('"build":"([0-9a-f]+)"')


@dataclasses.dataclass(frozen=True)
class HaproxySettings:
    """The role's variables."""

    bind_host: str
    port: int
    metrics_host: str
    metrics_port: int
    allowed_networks: Sequence[str]
    tls_certificate: str
    member_ca_file: str
    buffer_size: int
    max_connections: int
    max_connections_per_address: int
    silence_timeout: int
    stop_timeout: int
    sticky: str
    sticky_header: str
    sticky_load: int
    default_model: str
    keys_file: str
    api_keys: Mapping[str, str]
    state_file: str
    template_dirs: Sequence[str] = ()


def settings_of(given: Mapping[str, Any]) -> HaproxySettings:
    """Read the role's variables. Raise FleetFault if HAProxy would read one of them as something else."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(HaproxySettings):
        value = given[field.name]
        if field.type == "int":
            value = int(value)
        elif field.type == "str" and not _WORD.fullmatch(str(value)):
            raise FleetFault(
                f"load_balancer_{field.name}: {str(value)!r} has a space, a quote or another sign of HAProxy's"
            )
        values[field.name] = value
    try:
        _networks(values["allowed_networks"])
    except ValueError as fault:
        raise FleetFault(f"load_balancer_allowed_networks: {fault}") from fault
    return HaproxySettings(**values)


def keys_map(api_keys: Mapping[str, str]) -> str:
    """Return HAProxy's map of keys: a digest in hexadecimal digits, and the name of the key."""
    return "".join(f"{digest.removeprefix('sha256:')} {name}\n" for name, digest in sorted(api_keys.items()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_of(text: str) -> str:
    """Return what a running HAProxy reports if it runs this configuration."""
    (found,) = _BUILD.findall(text)
    return str(found)


def bind_address(host: str, port: int) -> str:
    """Return what `bind` takes: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _networks(entries: Sequence[str]) -> list[str]:
    return [str(ipaddress.ip_network(entry, strict=False)) for entry in entries]


def configuration(settings: HaproxySettings, pools: Sequence[ServerPool]) -> str:
    """Return the whole haproxy.cfg, in which a running HAProxy finds the digest of all the rest."""
    data = {
        "settings": settings,
        "pools": pools,
        "models": [model for pool in pools for model in pool.models],
        "retries": min(max(3, *(len(pool.hosts) for pool in pools)), _MOST_RETRIES),
        "bind": bind_address(settings.bind_host, settings.port),
        "metrics_bind": bind_address(settings.metrics_host, settings.metrics_port),
        "networks": _networks(settings.allowed_networks),
        "keys_digest": _digest(keys_map(settings.api_keys)),
        "session_headers": [name for name in SESSION_HEADERS if name != settings.sticky_header.lower()],
    }
    build = _digest(render("haproxy.cfg", {**data, "build": "-"}, settings.template_dirs))
    return render("haproxy.cfg", {**data, "build": build}, settings.template_dirs)
