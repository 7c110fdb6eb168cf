# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's configuration and its map of keys, as text. The directives exist in HAProxy 2.6 and newer."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .fleet import FleetFault, Pool

# text that HAProxy reads as one word and as nothing but text
_WORD = re.compile(r"[A-Za-z0-9_.:/@+-]*")

# Paths about one host. The load balancer refuses them: who wants a host's status asks that host.
_OF_ONE_HOST = ("/status", "/metrics", "/v1/admin", "/frontdoor", "/engine")
_RETRY_AFTER = "hdr Retry-After 5"
_MOST_RETRIES = 10
_CHECKED = "check inter 2s fastinter 500ms downinter 1s rise 1 fall 2 on-marked-down shutdown-sessions"
# a name that cannot be resolved keeps its host out, but HAProxy starts
_RESOLVED = "init-addr last,libc,none"
# those by which programs name their sessions, as frontdoors know them
SESSION_HEADERS = (
    *("x-session-id", "x-conversation-id", "x-agent-id"),
    *("x-claude-code-session-id", "x-openwebui-chat-id", "x-session-affinity", "x-opencode-session"),
    *("x-litellm-session-id", "thread-id", "session-id"),
)
_STICKY = {
    "user": "req.body,json_query('$.user')",
    "key": "var(txn.secret)",
}


@dataclasses.dataclass(frozen=True)
class Settings:
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


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Read the role's variables. Raise FleetFault if HAProxy would read one of them as something else."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
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
    return Settings(**values)


def error_body(message: str, kind: str, code: str) -> str:
    """Return an error in OpenAI's format, as the frontdoor writes it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}, separators=(",", ":"))


def quoted(text: str) -> str:
    """Return a word of HAProxy's configuration in single quotes, between which nothing has a meaning."""
    return "'" + text.replace("'", "'\\''") + "'"


def _json(status: int, body: str, head: str = "") -> str:
    return f"return status {status} content-type application/json {head + ' ' if head else ''}string {quoted(body)}"


def _return(status: int, message: str, kind: str, code: str, *fields: str) -> str:
    head = " ".join(f"hdr {field}" for field in fields)
    return f"http-request {_json(status, error_body(message, kind, code), head)}"


def _own_error(status: int, message: str, kind: str, code: str) -> str:
    again = f" {_RETRY_AFTER}" if status == 503 else ""
    body = quoted(error_body(message, kind, code))
    return f"    http-error status {status} content-type application/json{again} string {body}"


_OK = _json(200, '{"status":"ok"}')
_HEALTH = '{"status":"ok","build":"-"}'
_BUILD = re.compile('"build":"([0-9a-f]+)"')
_NOT_READY = '{"ready":false,"reason":"no host is ready"}'
_OWN_ERRORS = (
    (400, "the request is not valid HTTP", "invalid_request_error", "bad_request"),
    (408, "the request did not arrive completely in time", "timeout_error", "request_timeout"),
    (500, "the load balancer failed", "service_unavailable", "load_balancer_error"),
    (502, "the host closed the connection, or its answer is not valid HTTP", "upstream_error", "host_closed"),
    (503, "no host is ready; try again shortly", "service_unavailable", "no_host_ready"),
    (504, "the host did not answer in time", "timeout_error", "host_timeout"),
)


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


def _networks(entries: Sequence[str]) -> str:
    return " ".join(str(ipaddress.ip_network(entry, strict=False)) for entry in entries)


def _global(settings: Settings) -> list[str]:
    return [
        "global",
        "    log /dev/log local0 info",
        "    user haproxy",
        "    group haproxy",
        "    chroot /var/lib/haproxy",
        "    # the role uses the master's socket; this one is for operators",
        "    stats socket /run/haproxy/admin.sock mode 600 level admin expose-fd listeners",
        "    stats timeout 30s",
        "    # drained hosts stay drained after a reload",
        f"    server-state-file {settings.state_file}",
        "    # after a reload the old process ends with its last stream, and then at the latest",
        f"    hard-stop-after {settings.stop_timeout}s",
        f"    maxconn {settings.max_connections}",
        "    # a request that fits is sent to another host after a 503; its model and user are read",
        f"    tune.bufsize {settings.buffer_size}",
        "    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets",
    ]


def _defaults(settings: Settings, hosts: int) -> list[str]:
    retries = min(max(hosts, 3), _MOST_RETRIES)
    return [
        "defaults",
        "    mode http",
        "    log global",
        "    option httplog",
        "    option dontlognull",
        "    # who leaves before the first token ends the generation, too",
        "    option abortonclose",
        "    # a client or host that vanished without a word",
        "    option clitcpka",
        "    option srvtcpka",
        "    clitcpka-idle 30s",
        "    clitcpka-intvl 10s",
        "    clitcpka-cnt 3",
        "    srvtcpka-idle 30s",
        "    srvtcpka-intvl 10s",
        "    srvtcpka-cnt 3",
        "    # what a host has not begun to answer is asked of another one; so is what it refuses with 503: nothing",
        "    # was generated then, unless the frontdoor stops or the engine itself refuses",
        "    retry-on 503 conn-failure empty-response",
        f"    retries {retries}",
        "    option redispatch 1",
        "    timeout connect 2s",
        "    timeout http-request 10s",
        "    timeout http-keep-alive 60s",
        "    # between two bytes of an answer; the frontdoor ends a silent generation earlier and says why",
        f"    timeout client {settings.silence_timeout}s",
        f"    timeout server {settings.silence_timeout}s",
        "    load-server-state-from-file global",
        *(_own_error(*error) for error in _OWN_ERRORS),
    ]


def _keys(settings: Settings) -> list[str]:
    if not settings.keys_file:
        return []
    refused = _return(
        401,
        "no API key, or an unknown one; send Authorization: Bearer KEY",
        "authentication_error",
        "invalid_api_key",
        "WWW-Authenticate Bearer",
    )
    return [
        "    # digests are compared, and keys are nowhere on this host; the file is the one with this digest:",
        f"    # {_digest(keys_map(settings.api_keys))}",
        "    # a browser that asks first shows no key",
        f"    http-request set-var(txn.key) var(txn.secret),sha2(256),hex,lower,map_str({settings.keys_file})",
        "    acl known_key var(txn.key) -m found",
        f"    {refused} unless known_key or METH_OPTIONS {{ req.hdr(Access-Control-Request-Method) -m found }}",
    ]


def _model_list(pools: Sequence[Pool]) -> list[str]:
    lines = ["    # what ready hosts serve, all together"]
    for pool in pools:
        for model in pool.models:
            entry = f'{{"id":"{model}","object":"model","created":%[date],"owned_by":"b70"}}'
            live = f"if list {{ nbsrv({pool.name}) gt 0 }}"
            lines += [
                f"    http-request set-var-fmt(txn.list) '%[var(txn.list)]%[var(txn.comma)]{entry}' {live}",
                f"    http-request set-var-fmt(txn.comma) , {live}",
            ]
    lines.append(
        "    http-request return status 200 content-type application/json "
        """lf-string '{"object":"list","data":[%[var(txn.list)]]}' if list"""
    )
    return ["    acl list var(txn.path) -m str /v1/models", *lines]


def _routing(settings: Settings, pools: Sequence[Pool]) -> list[str]:
    names = ", ".join(model for pool in pools for model in pool.models)
    late = _return(
        413,
        f"the model's name is not within the first {settings.buffer_size} bytes; put it before the messages",
        "invalid_request_error",
        "body_too_large",
    )
    unnamed = _return(400, f"the request names no model; there are: {names}", "invalid_request_error", "model_required")
    unknown = _return(404, f"no such model; there are: {names}", "invalid_request_error", "model_not_found")
    lines = [
        *_model_list(pools),
        "    http-request set-var(txn.model) req.body,json_query('$.model') if METH_POST",
        "    acl one_model var(txn.path) -m beg /v1/models/",
        "    http-request set-var(txn.model) var(txn.path),regsub(^/v1/models/,) if one_model",
        "    acl named var(txn.model) -m found",
        "    http-request set-var(txn.read) req.body_len",
        f"    {late} if !named METH_POST {{ req.body_size,sub(txn.read) gt 0 }}",
    ]
    if settings.default_model:
        lines.append(f"    http-request set-var(txn.model) str({settings.default_model}) if !named")
    else:
        lines.append(f"    {unnamed} if !named !METH_OPTIONS")
    known = [f"    acl known var(txn.model) -m str -- {' '.join(pool.models)}" for pool in pools]
    chosen = [
        f"    use_backend {pool.name} if {{ var(txn.model) -m str -- {' '.join(pool.models)} }}" for pool in pools
    ]
    return [*lines, *known, f"    {unknown} unless known or METH_OPTIONS", *chosen]


def _frontend(settings: Settings, pools: Sequence[Pool]) -> list[str]:
    tls = f" ssl crt {settings.tls_certificate} alpn h2,http/1.1" if settings.tls_certificate else ""
    ready = _json(200, '{"ready":true}')
    lines = [
        "frontend b70_clients",
        f"    bind {bind_address(settings.bind_host, settings.port)}{tls}",
        "    # one client cannot take all connections; as for a frontdoor, a /64 of IPv6 is one client",
        "    stick-table type ipv6 size 100k expire 1m store conn_cur",
        "    tcp-request connection track-sc0 src,ipmask(32,64)",
        f"    tcp-request connection reject if {{ sc0_conn_cur gt {settings.max_connections_per_address} }}",
    ]
    if settings.allowed_networks:
        refused = _return(
            403,
            "this address may not connect; ask the operator to add its network to those allowed",
            "permission_error",
            "address_not_allowed",
        )
        lines.append(f"    {refused} unless {{ src {_networks(settings.allowed_networks)} }}")
    not_here = _return(
        404, "the load balancer does not serve this path; ask a host", "invalid_request_error", "unknown_path"
    )
    of_one_host = " ".join(_OF_ONE_HOST)
    lines += [
        "    # as a frontdoor reads it: decoded, without empty segments; clients need no dot segments",
        "    http-request set-var(txn.path) path,url_dec,regsub(/+,/,g),regsub(/$,)",
        f"    {not_here} unless {{ var(txn.path) -m beg / }}",
        f"    {not_here} if {{ var(txn.path) -m sub /./ /../ }} or {{ var(txn.path) -m end /. /.. }}",
        f"    {not_here} if {{ var(txn.path) -m dir {of_one_host} }}",
        f"    http-request {_OK} if {{ var(txn.path) -m str /health }}",
        "    acl asks_ready var(txn.path) -m str /ready",
        *(f"    http-request {ready} if asks_ready {{ nbsrv({pool.name}) gt 0 }}" for pool in pools),
        f"    http-request {_json(503, _NOT_READY, _RETRY_AFTER)} if asks_ready",
        "    http-request set-var(txn.secret) http_auth_bearer",
        "    http-request set-var(txn.secret) req.hdr(x-api-key) if !{ var(txn.secret) -m found }",
        *_keys(settings),
        "    # the client's own claims stand before what is added here; frontdoors believe the last one",
        "    option forwardfor",
        "    http-request set-header X-Forwarded-Proto https if { ssl_fc }",
        "    # until the request is complete, or the buffer is full; a stranger has been refused before",
        "    http-request wait-for-body time 60s if METH_POST",
    ]
    if settings.sticky:
        source = _STICKY.get(settings.sticky) or f"req.hdr({settings.sticky_header})"
        lines.append(f"    http-request set-var(txn.sticky) {source}")
    if settings.sticky == "header":
        unnamed = "if !{ var(txn.sticky) -m found }"
        others = (name for name in SESSION_HEADERS if name != settings.sticky_header.lower())
        lines += (f"    http-request set-var(txn.sticky) req.hdr({name}) {unnamed}" for name in others)
    if len(pools) > 1:
        lines += _routing(settings, pools)
    return [*lines, f"    default_backend {pools[0].name}"]


def _backend(settings: Settings, pool: Pool) -> list[str]:
    model = f"model={pool.models[0].replace('+', '%2B')}&" if pool.models else ""
    lines = [f"backend {pool.name}"]
    if settings.sticky:
        lines += [
            "    # the same client, the same host, while that is not much busier than the others",
            "    balance hash var(txn.sticky)",
            "    hash-type consistent sdbm avalanche",
            f"    hash-balance-factor {settings.sticky_load}",
        ]
    else:
        lines.append("    balance leastconn")
    lines += [
        "    option httpchk",
        f"    http-check send meth GET uri /ready?{model}unready_status=404 ver HTTP/1.1 hdr Host b70-load-balancer",
        "    # closed (404): nothing new, and what runs goes on",
        "    # silent: what runs is cut, and what waits is asked of another host",
        "    http-check disable-on-404",
        "    http-check expect status 200",
        "    timeout check 2s",
        f"    default-server {_CHECKED} {_RESOLVED}",
    ]
    for host in pool.hosts:
        tls = ""
        if host.tls_name:
            tls = (
                f" ssl verify required ca-file {settings.member_ca_file}"
                f" verifyhost {host.tls_name} sni str({host.tls_name}) check-sni {host.tls_name}"
            )
        lines.append(f"    server {host.name} {host.authority} weight {pool.weight(host)}{tls}")
    return lines


def _metrics(settings: Settings) -> list[str]:
    return [
        "frontend b70_metrics",
        f"    bind {bind_address(settings.metrics_host, settings.metrics_port)}",
        "    option dontlog-normal",
        "    http-request use-service prometheus-exporter if { path /metrics }",
        "    # the role reloads a process that runs something else, and waits for this",
        f"    http-request {_json(200, _HEALTH)} if {{ path /health }}",
        "    http-request return status 404",
    ]


def configuration(settings: Settings, pools: Sequence[Pool]) -> str:
    """Return the whole haproxy.cfg."""
    hosts = max(len(pool.hosts) for pool in pools)
    sections = [
        ["# Rendered by Ansible. The role load_balancer of arcpro.b70 writes it again; see docs/load-balancing.md."],
        _global(settings),
        _defaults(settings, hosts),
        _metrics(settings),
        _frontend(settings, pools),
        *(_backend(settings, pool) for pool in pools),
    ]
    text = "\n\n".join("\n".join(section) for section in sections) + "\n"
    return text.replace(_HEALTH, _HEALTH.replace("-", _digest(text)))
