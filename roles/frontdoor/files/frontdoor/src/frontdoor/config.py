# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration: one TOML file, checked completely before anything starts.

The checker is our own thirty lines: a library's decoder names neither the value nor the nearest valid key, and what
puts that into its messages is as long.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import urllib.parse
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from frontdoor.networks import networks
from frontdoor.policy import origins

#: members of a request that say how many generations it asks for
NUMBERS = ("n", "best_of")
ModelPolicy = Literal["pass", "rewrite", "reject"]
RemotePolicy = Literal["allow", "ask"]

# a number and its range
Count = Annotated[int, 1, inf]
Amount = Annotated[int, 0, inf]
Duration = Annotated[float, 0, inf]
Interval = Annotated[float, 0.1, inf]
Limit = Annotated[float, 0.05, inf]
LongLimit = Annotated[float, 1, inf]
_NOTHING: dict[str, Any] = {}


class ConfigError(ValueError):
    """The configuration cannot be used; the text names the key and what to do."""


class Listen(NamedTuple):
    """The addresses for clients, and their networks; no networks mean all, and this host itself always may connect.

    `unix` is the path of a Unix socket that is listened to besides, in clear text, for clients and proxies here.
    """

    host: str = "0.0.0.0"
    port: Annotated[int, 0, 65535] = 8000
    unix: str = ""
    backlog: Count = 1024
    allowed_networks: tuple[str, ...] = ()
    #: proxies whose X-Forwarded-For says who asks
    trusted_proxies: tuple[str, ...] = ()
    #: whether these begin each connection with a header of the PROXY protocol; those on this host never do
    proxy_protocol: bool = False


class Slot(NamedTuple):
    """The slot's state file; an empty path means there is none and the fallbacks below always apply.

    `journal_file` is where the last switches are read from, `records_file` where it stands what was recorded of the
    profiles, `quarantine_file` where the slot puts the host into quarantine, `maintenance_file` where a person takes
    it out of its fleet, `lease_file` where a play says that it works on the host; empty means that none are known. Of
    these, those of the first slot count. `profiles_dir` has the resolved profiles, as a load takes them, and
    `estimates_file` what they hold of their cards. `on_demand` are the profiles that requests may have loaded into it,
    in the order in which a name that several have is looked for; `*` is all of them. One of these that nobody asks for
    is unloaded after `idle_s`, until the next request; 0: it stays.
    """

    name: str = "main"
    state_file: str = "/run/b70/main/state.json"
    poll_interval_s: Annotated[float, 0.01, inf] = 0.05
    units_dir: str = "/run/systemd/units"
    profiles_dir: str = "/etc/b70-vllm-slot/profiles"
    estimates_file: str = ""
    journal_file: str = ""
    records_file: str = ""
    quarantine_file: str = ""
    maintenance_file: str = ""
    lease_file: str = ""
    on_demand: tuple[str, ...] = ()
    idle_s: Duration = 0.0


class Backend(NamedTuple):
    """The engine; `url` is used where the state file names none."""

    url: str = "http://127.0.0.1:18080"
    connect_timeout_s: Interval = 5.0
    response_timeout_s: LongLimit = 7200.0
    pool_size: Amount = 512
    pool_idle_timeout_s: Duration = 3.0
    probe_interval_s: Interval = 5.0
    #: an engine that accepts connections and sends nothing to anybody for so long is taken for hung; a long prefill, or
    #: compiling for a new shape, may well silence a healthy one for half a minute
    silence_limit_s: LongLimit = 120.0
    metrics_interval_s: Interval = 5.0


class Admission(NamedTuple):
    """Limits used where the state file sets none, and bounds the state file cannot raise."""

    max_active_generations: Count = 1
    queue_timeout_s: Duration = 600.0
    #: how often a client that waits for a stream hears of it; 0: it hears nothing before the engine answers
    queue_keepalive_s: Duration = 10.0
    max_queued: Amount = 256
    max_passthrough: Count = 256


class Request(NamedTuple):
    """The treatment of requests where the state file is silent; 0 tokens mean no default and no cap."""

    chat_template_kwargs: dict[str, Any] = _NOTHING
    max_tokens_default: Amount = 0
    max_tokens_cap: Amount = 0
    sampling_defaults: dict[str, Any] = _NOTHING
    model_policy: ModelPolicy = "pass"
    model_aliases: tuple[str, ...] = ()
    #: say with each chat completion and response how long it took; a request may ask for it, or not, by itself
    metrics: bool = False
    #: whether requests may go to an engine on another host as they are, or have to say `allow_remote: true`
    remote: RemotePolicy = "allow"


@dataclasses.dataclass(frozen=True)
class Rules:
    """The treatment of requests: the state file's `request` sets it, the section above where that is silent."""

    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens_default: int | None = None
    max_tokens_cap: int | None = None
    sampling_defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    model_policy: str = "pass"
    model_aliases: tuple[str, ...] = ()
    #: where media may be fetched from; None where the profile does not say
    allowed_media_domains: tuple[str, ...] | None = None
    metrics: bool = False
    remote: str = "allow"


StickyMode = Literal["off", "prefer", "strict"]


@dataclasses.dataclass(frozen=True)
class Routing:
    """The way of requests to one of several replicas; None: the usual names."""

    sticky: str = "prefer"
    prefix_affinity: bool = True
    headers: tuple[str, ...] | None = None
    json_fields: tuple[str, ...] | None = None


class Limits(NamedTuple):
    """The limits of one client."""

    max_body_bytes: Count = 64 * 1024 * 1024
    max_buffered_bytes: Count = 1024 * 1024 * 1024
    #: of one API key, or one address; one body of the largest size is always accepted
    max_buffered_bytes_per_client: Count = 256 * 1024 * 1024
    max_header_bytes: Annotated[int, 1024, inf] = 32 * 1024
    max_headers: Count = 100
    max_connections: Count = 8192
    #: of IPv6, from one /64; many people may share an address behind a router or a proxy
    max_connections_per_address: Count = 2048
    header_timeout_s: Limit = 10.0
    body_idle_timeout_s: Limit = 20.0
    body_timeout_s: Limit = 300.0
    keepalive_timeout_s: Limit = 75.0
    write_timeout_s: Limit = 60.0
    #: after which the kernel gives up a client that vanished without a word; 0 leaves it to the host's settings
    dead_peer_timeout_s: Duration = 60.0
    drain_timeout_s: Duration = 60.0


class Cors(NamedTuple):
    """Origins that browsers may use, `*` for all; none leaves the engine's own headers as they are."""

    allow_origins: tuple[str, ...] = ("*",)


PageSwitch = Literal["auto", "on", "off"]


class Pages(NamedTuple):
    """Pages for people; `auto` serves the chat only where requests need no API key."""

    chat: PageSwitch = "auto"


class Auth(NamedTuple):
    """Without a file of keys everybody may ask; with one, only who has a key."""

    keys_file: str = ""


class Admin(NamedTuple):
    """Without a file of keys there is no administration; with one, who has such a key may load and unload models."""

    keys_file: str = ""
    socket: str = "/run/b70-slot-admin.sock"
    #: for one load, which may be that of the largest model and of the one before it
    timeout_s: LongLimit = 10800.0


class Demand(NamedTuple):
    """The bounds of loads that requests ask for, in slots with profiles `on_demand`."""

    #: a model is served for so long before another one is loaded; for so long it takes requests while others wait
    min_serve_s: Duration = 120.0
    #: how long a request for a stream may wait for its model
    wait_s: LongLimit = 1800.0
    #: the same of others, which hear nothing meanwhile: where it will take longer they are sent away at once
    silent_wait_s: Duration = 300.0


class Sentinels(NamedTuple):
    """The watch over answers for what no sound engine sends.

    `verify_after` is how many of a replica's last 32 answers have to be degenerate for a verification to be asked for;
    0: it never is.
    """

    watch: bool = True
    verify_after: Annotated[int, 0, 32] = 3


class Tls(NamedTuple):
    """Without a certificate clients connect in clear text. The key may stand in the certificate's file."""

    cert_file: str = ""
    key_file: str = ""


class Log(NamedTuple):
    """Structured events on standard output; per-request events also need the profile's consent."""

    events: bool = True


class Config(NamedTuple):
    """All sections."""

    listen: Listen = Listen()
    slot: Slot = Slot()
    #: further slots; requests go to that which serves the model they name, and else to the one above
    slots: tuple[Slot, ...] = ()
    backend: Backend = Backend()
    admission: Admission = Admission()
    request: Request = Request()
    limits: Limits = Limits()
    cors: Cors = Cors()
    pages: Pages = Pages()
    auth: Auth = Auth()
    admin: Admin = Admin()
    demand: Demand = Demand()
    sentinels: Sentinels = Sentinels()
    tls: Tls = Tls()
    log: Log = Log()


def checked(hint: Any, value: Any, where: str) -> Any:
    """Return the value if it is what the annotation of its member says; `where` is its dotted name."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{where}: {value!r} is none of {', '.join(get_args(hint))}")
        return value
    if hasattr(hint, "_fields"):
        return section_of(hint, value, where)
    kind, *bounds = get_args(hint) if get_origin(hint) is Annotated else (get_origin(hint) or hint,)
    # The exact class: a boolean is an int too, and never meant as one.
    if kind is float and value.__class__ is int:
        value = float(value)
    item = (get_args(hint) or (str,))[0]
    if kind is tuple and hasattr(item, "_fields"):
        tables = value if value.__class__ is list else [value]
        return tuple(section_of(item, table, f"{where}[{index}]") for index, table in enumerate(tables))
    if kind is tuple and value.__class__ is list and all(isinstance(item, str) for item in value):
        value = tuple(value)
    if value.__class__ is not kind:
        expected = {tuple: "a list of strings", dict: "a table"}.get(kind, kind.__name__)
        raise ConfigError(f"{where}: expected {expected}, got {value!r}")
    if bounds and not bounds[0] <= value <= bounds[1]:
        limit = f"below the minimum {bounds[0]}" if value < bounds[0] else f"above the maximum {bounds[1]}"
        raise ConfigError(f"{where}: {value!r} is {limit}")
    return value


def section_of(section: Any, table: Any, where: str = "") -> Any:
    """Build a section, or all of them, of a table."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table, got {table!r}")
    hints, values = get_type_hints(section, include_extras=True), {}
    for name, value in table.items():
        dotted = f"{where}.{name}" if where else name
        if name not in hints:
            close = difflib.get_close_matches(name, hints, 1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(hints))}"
            raise ConfigError(f"{dotted}: unknown key; {hint}")
        values[name] = checked(hints[name], value, dotted)
    return section(**values)


#: settings that only a new process takes
AT_START = (
    *("listen.host", "listen.port", "listen.unix", "listen.backlog", "listen.proxy_protocol"),
    *("slot", "slots", "backend", "sentinels", "auth", "admin", "limits.dead_peer_timeout_s"),
)


def taken(running: Config, new: Config) -> tuple[Config, list[str]]:
    """Return the new settings as far as a running process takes them, and the names of those that need a new one."""
    needed = []
    for name in AT_START:
        section, _dot, member = name.partition(".")
        old, part = getattr(running, section), getattr(new, section)
        if member:
            old = part._replace(**{member: getattr(old, member)})
        if old != part:
            needed.append(name)
            new = new._replace(**{section: old})
    if bool(running.tls.cert_file) != bool(new.tls.cert_file):
        # clients would have to ask in another way
        needed.append("tls")
        new = new._replace(tls=running.tls)
    return new, needed


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
    config: Config = section_of(Config, table)
    split_backend_url(config.backend.url)
    for name in ("allowed_networks", "trusted_proxies"):
        try:
            networks(getattr(config.listen, name))
        except ValueError as exc:
            raise ConfigError(f"listen.{name}: {exc}") from exc
    try:
        origins.checked(config.cors.allow_origins)
    except ValueError as exc:
        raise ConfigError(f"cors.allow_origins: {exc}") from exc
    slots = (config.slot, *config.slots)
    for member in ("name", "state_file"):
        values = [getattr(slot, member) for slot in slots]
        for index, value in enumerate(values[1:]):
            if not value or value in values[: index + 1]:
                raise ConfigError(
                    f"slots[{index}].{member}: {value!r} is {'that of another slot' if value else 'empty'}"
                )
    for slot in slots:
        if slot.idle_s and not slot.on_demand:
            raise ConfigError(f"slot {slot.name}: idle_s needs on_demand: no request could load the model again")
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
