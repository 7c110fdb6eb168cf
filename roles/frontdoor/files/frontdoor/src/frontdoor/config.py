# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration: one TOML file, checked completely before anything starts.

The checker is our own forty lines: a library's decoder names neither the value nor the nearest valid key, and what puts
that into its messages is as long.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import urllib.parse
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from frontdoor.networks import networks

MODEL_POLICIES = ("pass", "rewrite", "reject")
#: members of a request that say how many generations it asks for
NUMBERS = ("n", "best_of")


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the key and what to do."""


def _within(low: float, high: float = math.inf) -> dict[str, float]:
    """The metadata of a number with a range."""
    return {"low": low, "high": high}


@dataclasses.dataclass(frozen=True)
class Listen:
    """Where clients connect, and from where; no networks mean from everywhere, and this host itself always may."""

    host: str = "0.0.0.0"
    port: int = field(default=8000, metadata=_within(0, 65535))
    backlog: int = field(default=1024, metadata=_within(1))
    allowed_networks: list[str] = field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Slot:
    """The slot's state file; an empty path means there is none and the fallbacks below always apply.

    `journal_file` is where the last switches are read from; empty means that none are shown.
    """

    name: str = "main"
    state_file: str = "/run/b70/main/state.json"
    poll_interval_s: float = field(default=0.05, metadata=_within(0.01))
    units_dir: str = "/run/systemd/units"
    journal_file: str = ""


@dataclasses.dataclass(frozen=True)
class Backend:
    """The engine; `url` is used where the state file names none."""

    url: str = "http://127.0.0.1:18080"
    connect_timeout_s: float = field(default=5.0, metadata=_within(0.1))
    response_timeout_s: float = field(default=7200.0, metadata=_within(1))
    pool_size: int = field(default=512, metadata=_within(0))
    pool_idle_timeout_s: float = field(default=3.0, metadata=_within(0))
    probe_interval_s: float = field(default=5.0, metadata=_within(0.1))
    #: an engine that accepts connections and sends nothing to anybody for so long is taken for hung; a long prefill, or
    #: compiling for a new shape, may well silence a healthy one for half a minute
    silence_limit_s: float = field(default=120.0, metadata=_within(1))
    metrics_interval_s: float = field(default=5.0, metadata=_within(0.1))


@dataclasses.dataclass(frozen=True)
class Admission:
    """Limits used where the state file sets none, and bounds the state file cannot raise."""

    max_active_generations: int = field(default=1, metadata=_within(1))
    queue_timeout_s: float = field(default=0.0, metadata=_within(0))
    max_queued: int = field(default=256, metadata=_within(0))
    max_passthrough: int = field(default=256, metadata=_within(1))


@dataclasses.dataclass(frozen=True)
class Request:
    """What is done to requests where the state file says nothing; 0 tokens mean no default and no cap."""

    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    max_tokens_default: int = field(default=0, metadata=_within(0))
    max_tokens_cap: int = field(default=0, metadata=_within(0))
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    model_policy: str = field(default="pass", metadata={"choices": MODEL_POLICIES})
    model_aliases: list[str] = field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is done to requests: the state file's `request` sets it, the section above where that is silent."""

    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens_default: int | None = None
    max_tokens_cap: int | None = None
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    model_policy: str = "pass"
    model_aliases: tuple[str, ...] = ()
    #: where media may be fetched from; None where the profile does not say
    allowed_media_domains: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one client may cost."""

    max_body_bytes: int = field(default=64 * 1024 * 1024, metadata=_within(1))
    max_buffered_bytes: int = field(default=1024 * 1024 * 1024, metadata=_within(1))
    #: of one API key, or one address; one body of the largest size is always accepted
    max_buffered_bytes_per_client: int = field(default=256 * 1024 * 1024, metadata=_within(1))
    max_header_bytes: int = field(default=32 * 1024, metadata=_within(1024))
    max_headers: int = field(default=100, metadata=_within(1))
    max_connections: int = field(default=8192, metadata=_within(1))
    #: of IPv6, from one /64; many people may share an address behind a router or a proxy
    max_connections_per_address: int = field(default=2048, metadata=_within(1))
    header_timeout_s: float = field(default=10.0, metadata=_within(0.05))
    body_idle_timeout_s: float = field(default=20.0, metadata=_within(0.05))
    body_timeout_s: float = field(default=300.0, metadata=_within(0.05))
    keepalive_timeout_s: float = field(default=75.0, metadata=_within(0.05))
    write_timeout_s: float = field(default=60.0, metadata=_within(0.05))
    #: after which the kernel gives up a client that vanished without a word; 0 leaves it to the host's settings
    dead_peer_timeout_s: float = field(default=60.0, metadata=_within(0))
    drain_timeout_s: float = field(default=60.0, metadata=_within(0))


@dataclasses.dataclass(frozen=True)
class Cors:
    """Answer to browsers; an empty origin leaves the engine's own headers as they are."""

    allow_origin: str = "*"


@dataclasses.dataclass(frozen=True)
class Auth:
    """Without a file of keys everybody may ask; with one, only who has a key."""

    keys_file: str = ""


@dataclasses.dataclass(frozen=True)
class Admin:
    """Without a file of keys there is no administration; with one, who has such a key may load and unload models."""

    keys_file: str = ""
    socket: str = "/run/b70-slot-admin.sock"
    profiles_dir: str = "/etc/b70-vllm-slot/profiles"
    #: for one load, which may be that of the largest model and of the one before it
    timeout_s: float = field(default=10800.0, metadata=_within(1))


@dataclasses.dataclass(frozen=True)
class Tls:
    """Without a certificate clients connect in clear text. The key may stand in the certificate's file."""

    cert_file: str = ""
    key_file: str = ""


@dataclasses.dataclass(frozen=True)
class Log:
    """Structured events on standard output; per-request events also need the profile's consent."""

    events: bool = True


@dataclasses.dataclass(frozen=True)
class Config:
    """All sections."""

    listen: Listen = field(default_factory=Listen)
    slot: Slot = Slot()
    backend: Backend = Backend()
    admission: Admission = Admission()
    request: Request = Request()
    limits: Limits = Limits()
    cors: Cors = Cors()
    auth: Auth = Auth()
    admin: Admin = Admin()
    tls: Tls = Tls()
    log: Log = Log()


T = TypeVar("T")


def _value(hint: Any, value: Any, where: str, bounds: Mapping[str, Any]) -> Any:
    # The exact class: a boolean is an int too, and never meant as one.
    if hint is float and value.__class__ is int:
        value = float(value)
    kind = get_origin(hint) or hint
    if value.__class__ is not kind or (kind is list and not all(isinstance(item, str) for item in value)):
        expected = {list: "a list of strings", dict: "a table"}.get(kind, kind.__name__)
        raise ConfigError(f"{where}: expected {expected}, got {value!r}")
    if "choices" in bounds and value not in bounds["choices"]:
        raise ConfigError(f"{where}: {value!r} is none of {', '.join(bounds['choices'])}")
    if "low" in bounds and not bounds["low"] <= value <= bounds["high"]:
        limit = "below the minimum {low}" if value < bounds["low"] else "above the maximum {high}"
        raise ConfigError(f"{where}: {value!r} is {limit.format_map(bounds)}")
    return value


def _known(names: list[str], name: str, where: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(names))}"
        raise ConfigError(f"{where}{name}: unknown key{hint}")


def _section(cls: type[T], table: Any, where: str) -> T:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table, got {table!r}")
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        _known(list(fields), name, f"{where}.")
        values[name] = _value(hints[name], value, f"{where}.{name}", fields[name].metadata)
    return cls(**values)


def split_backend_url(url: str) -> tuple[str, int]:
    """Return (host, port) of an engine URL; raise ConfigError unless it is http with an explicit port."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ConfigError(f"backend url {url!r}: {exc}") from exc
    if parts.scheme != "http" or not host or not port or parts.path not in ("", "/") or parts.query or parts.username:
        raise ConfigError(f"backend url {url!r}: must look like http://HOST:PORT")
    return host, port


def from_table(table: dict[str, Any]) -> Config:
    """Build the configuration from parsed TOML; raise ConfigError on anything unknown or out of range."""
    sections = get_type_hints(Config)
    values: dict[str, Any] = {}
    for name, content in table.items():
        _known(list(sections), name, "")
        values[name] = _section(sections[name], content, name)
    config = Config(**values)
    split_backend_url(config.backend.url)
    try:
        networks(config.listen.allowed_networks)
    except ValueError as exc:
        raise ConfigError(f"listen.allowed_networks: {exc}") from exc
    several = [name for name in NUMBERS if name in config.request.sampling_defaults]
    if several:
        raise ConfigError(f"request.sampling_defaults.{several[0]}: only a client asks for several generations at once")
    if config.limits.max_body_bytes > config.limits.max_buffered_bytes:
        raise ConfigError("limits.max_buffered_bytes: must not be below limits.max_body_bytes")
    if config.tls.key_file and not config.tls.cert_file:
        raise ConfigError("tls.key_file: needs tls.cert_file")
    return config


def load(path: str) -> Config:
    """Read and check one TOML file; raise ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return from_table(tomllib.loads(text))
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: not valid TOML: {exc}") from exc
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from exc
