# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads of HTTP messages: parsed by httptools, judged here."""

from __future__ import annotations

import dataclasses
import functools
import re

import httptools

from frontdoor.policy.routes import Kind, Route, canonical_path, classify, quote_path

END = b"\r\n\r\n"
# What event streams say to proxies in front: nginx would collect some kilobytes of events before it sends any.
UNBUFFERED = b"X-Accel-Buffering: no\r\n"
# from this status on it is the engine that failed
FAILURE = 500
# Hop-by-hop fields (RFC 9110 7.6.1) and those this proxy writes itself.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization".split()
    + b"te trailer transfer-encoding upgrade".split()
)
_REQUEST_OWN = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"http2-settings",
}
_FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"))
_REQUEST_SECRET = _REQUEST_OWN | {b"authorization", b"x-api-key"}
# What a Host field or the authority of a target may be (RFC 9110 7.2), without commas, which two readers could split.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\])(?::[0-9]{0,5})?")
_SINGLE = frozenset((b"host", b"content-length", b"transfer-encoding", b"content-type", b"authorization", b"x-api-key"))
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)")


class HeadError(ValueError):
    """A request that is not served; carries the status, a stable code and a text for the client."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class ResponseError(ValueError):
    """The engine's answer is not HTTP that can be passed on."""


class _Collector:
    """Callbacks of the parser: what a head consists of."""

    __slots__ = ("complete", "headers", "target")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


@dataclasses.dataclass(frozen=True, slots=True)
class RequestHead:
    """What the frontdoor needs of a request's head.

    `line` and `fields` are what the engine is sent: request line, and the end-to-end header lines with those that this
    proxy adds by what the head says.
    `content_length` is None with chunked transfer coding and 0 where no body was announced.
    """

    method: bytes
    route: Route
    line: bytes
    fields: bytes
    content_length: int | None
    keep_alive: bool
    http11: bool
    expects_continue: bool
    origin: bytes
    #: API key that was offered
    secret: bytes
    #: takes a generation slot
    generates: bool
    #: announces a JSON body
    json: bool
    #: announces a compressed body
    coded: bool
    #: comes through a proxy, as that says: who asks is not who connected
    forwarded: bool


def _target(raw: bytes) -> tuple[str, bytes, bytes | None]:
    """Split a request target into canonical path, query (with its question mark), and the authority if it has one."""
    if raw == b"*":
        return "*", b"", None
    authority = None
    absolute = _ABSOLUTE.match(raw)
    if absolute:
        # absolute form (RFC 9112 3.2.2): its authority counts, whatever the Host field says
        authority, raw = absolute[1], raw[absolute.end() :]
        if not authority or not _HOST.fullmatch(authority):
            raise HeadError(400, "bad_target", "the request target names no valid host")
        if not raw.startswith(b"/"):
            raw = b"/" + raw
    path, mark, query = raw.partition(b"?")
    canonical = canonical_path(path.decode("latin-1"))
    if canonical is None or b"#" in raw:
        raise HeadError(400, "bad_target", "the request target is not a path")
    return canonical, mark + query, authority


# Clients and engines repeat themselves, and parsing costs more than all the rest of a plain request. Longer heads
# are unlikely to repeat, and would take memory.
_REMEMBERED = 512
_SHORT = 2048


def request_head(raw: bytes, max_headers: int, keep_secrets: bool) -> RequestHead:
    """`parse_request_head`, with the heads of before remembered."""
    parse = _remembered_request if len(raw) <= _SHORT else parse_request_head
    return parse(raw, max_headers, keep_secrets)


def response_head(raw: bytes, to_head: bool, drop_cors: bool) -> ResponseHead:
    """`parse_response_head`, with the heads of before remembered."""
    parse = _remembered_response if len(raw) <= _SHORT else parse_response_head
    return parse(raw, to_head, drop_cors)


def parse_request_head(raw: bytes, max_headers: int, keep_secrets: bool = True) -> RequestHead:
    """Parse and judge one request head that ends with an empty line; raise HeadError.

    Without `keep_secrets` the credentials are not passed on to the engine.
    """
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        # Upgrade is ignored, as RFC 9110 7.8 allows
        pass
    except httptools.HttpParserError as exc:
        raise HeadError(400, "bad_request", f"not a valid HTTP/1.1 request: {exc}") from exc
    if not collector.complete:
        raise HeadError(400, "bad_request", "not a valid HTTP/1.1 request")
    version = parser.get_http_version()
    if version not in ("1.0", "1.1") or not raw[: raw.find(b"\r\n")].endswith(b" HTTP/" + version.encode()):
        raise HeadError(400, "bad_version", "only HTTP/1.0 and HTTP/1.1 are understood")
    if len(collector.headers) > max_headers:
        raise HeadError(431, "too_many_headers", f"more than {max_headers} header fields")
    return _judge(parser.get_method(), version == "1.1", collector, _REQUEST_OWN if keep_secrets else _REQUEST_SECRET)


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip().lower() for token in value.split(b",")}


def _keep_alive(http11: bool, connection: set[bytes]) -> bool:
    # not asked of the parser: it forgets when the message is complete with its head
    return b"close" not in connection and (http11 or b"keep-alive" in connection)


def _secret(named: dict[bytes, bytes]) -> bytes:
    scheme, _space, token = named.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else named.get(b"x-api-key", b"").strip()


def _judge(method: bytes, http11: bool, collector: _Collector, dropped: frozenset[bytes]) -> RequestHead:
    if method in (b"CONNECT", b"TRACE"):
        raise HeadError(501, "method_not_supported", f"the method {method.decode()} is not supported")
    path, query, authority = _target(collector.target)
    named: dict[bytes, bytes] = {}
    connection: set[bytes] = set()
    codings: set[bytes] = set()
    for name, value in collector.headers:
        low = name.lower()
        if low in _SINGLE and low in named:
            raise HeadError(400, "duplicate_header", f"the header field {low.decode()} stands more than once")
        if low == b"connection":
            connection |= _tokens(value)
        elif low == b"content-encoding":
            codings |= _tokens(value)
        named[low] = value
    if http11 and b"host" not in named:
        raise HeadError(400, "missing_host", "an HTTP/1.1 request needs a Host field")
    host = named.get(b"host", b"").strip()
    if not _HOST.fullmatch(host):
        raise HeadError(400, "bad_host", "the Host field names no valid host")
    coding = named.get(b"transfer-encoding")
    length: int | None = 0
    if coding is not None:
        if not http11 or b"content-length" in named:
            raise HeadError(400, "bad_framing", "the length of the request body is ambiguous")
        if coding.strip().lower() != b"chunked":
            raise HeadError(501, "coding_not_supported", "the only transfer coding supported is chunked")
        length = None
    elif b"content-length" in named:
        digits = named[b"content-length"].strip()
        if not digits.isdigit() or len(digits) > 18:
            raise HeadError(400, "bad_framing", "Content-Length is not a number")
        length = int(digits)
    expect = named.get(b"expect", b"").strip().lower()
    if expect not in (b"", b"100-continue"):
        raise HeadError(417, "bad_expectation", "the only expectation supported is 100-continue")
    dropped |= connection
    sent = [(name, value) for name, value in collector.headers if name.lower() not in dropped]
    if authority is not None:
        host = authority
    if host:
        sent.append((b"X-Forwarded-Host", host))
    sent.append((b"Via", b"1.%d b70-frontdoor" % http11))
    route = classify(path) if path != "*" else Route(Kind.LOCAL, "*")
    json = named.get(b"content-type", b"application/json").lower().startswith(b"application/json")
    coded = codings - {b"", b"identity"} != set()
    return RequestHead(
        method=method,
        route=route,
        line=b"%b %b%b HTTP/1.1\r\n" % (method, quote_path(route.path).encode(), query),
        fields=b"".join(b"%b: %b\r\n" % field for field in sent),
        content_length=length,
        keep_alive=_keep_alive(http11, connection),
        http11=http11,
        expects_continue=expect != b"" and http11 and length != 0,
        origin=named.get(b"origin", b""),
        secret=_secret(named),
        generates=route.gated and method == b"POST",
        json=json and not coded,
        coded=coded,
        forwarded=not _FORWARDED.isdisjoint(named),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response head of the engine.

    `wire` is what a client is sent of it: without the fields between the engine and this proxy only, without the
    transfer coding, and without the empty line that ends it. `length` is that of the body, and None where its end is
    found in it (chunked), or is that of the connection.
    """

    status: int
    wire: bytes
    chunked: bool
    length: int | None
    keep_alive: bool
    event_stream: bool


def parse_response_head(raw: bytes, to_head: bool, drop_cors: bool) -> ResponseHead:
    """Parse one response head that ends with an empty line; raise ResponseError.

    `to_head` tells that it answers a HEAD request, which has no body whatever the fields say.
    """
    if not raw.startswith(b"HTTP/1."):
        raise ResponseError("not a valid HTTP response: it does not begin with a status line")
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as exc:
        raise ResponseError(f"not a valid HTTP response: {exc}") from exc
    if not collector.complete:
        raise ResponseError("not a valid HTTP response")
    status = parser.get_status_code()
    if not 100 <= status <= 599:
        raise ResponseError(f"the status {raw[9:12].decode('latin-1')!r}")
    fields = [(name.lower(), name, value) for name, value in collector.headers]
    named = {low: value for low, _name, value in fields}
    connection = {token for low, _name, value in fields if low == b"connection" for token in _tokens(value)}
    # that it belongs to this connection only cannot be said of what tells where the body ends
    connection.discard(b"content-length")
    dropped = _HOP_BY_HOP | connection
    codings = [value for low, _name, value in fields if low == b"transfer-encoding"]
    if status < 200 or status == 204 or codings:
        # RFC 9110 8.6
        dropped |= {b"content-length"}
    event_stream = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
    lines = [
        b"%b: %b\r\n" % (name, value)
        for low, name, value in fields
        if low not in dropped and not (drop_cors and low.startswith(b"access-control-"))
    ]
    if event_stream and b"x-accel-buffering" not in named:
        lines.append(UNBUFFERED)
    for coding in codings:
        if coding.strip().lower() != b"chunked":
            raise ResponseError(f"transfer coding {coding!r}")
    if len(codings) > 1:
        raise ResponseError("the chunked transfer coding stands more than once")
    if to_head or status in (204, 304) or status < 200:
        length: int | None = 0
    elif not codings and b"content-length" in named:
        # the parser has refused duplicates and anything but digits
        length = int(named[b"content-length"])
    else:
        length = None
    return ResponseHead(
        status=status,
        wire=b"".join((b"HTTP/1.1 ", raw[9 : raw.find(b"\r\n") + 2], *lines)),
        chunked=length is None and codings != [],
        length=length,
        keep_alive=_keep_alive(raw.startswith(b"HTTP/1.1"), connection) and (length is not None or codings != []),
        # of what is compressed nobody here knows where an event ends
        event_stream=event_stream and named.get(b"content-encoding", b"identity").strip().lower() == b"identity",
    )


_remembered_request = functools.lru_cache(_REMEMBERED)(parse_request_head)
_remembered_response = functools.lru_cache(_REMEMBERED)(parse_response_head)
