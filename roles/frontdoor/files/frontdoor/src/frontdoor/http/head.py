# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heads of HTTP messages: parsed by httptools, judged here."""

from __future__ import annotations

import functools
import re
from typing import Final

import httptools

from frontdoor.errors import Refusal
from frontdoor.policy.form import boundary_of
from frontdoor.policy.routes import Kind, Route, canonical_path, classify, quote_path

# Final, here and elsewhere: compiled, other names of a module are looked up in its dictionary each time.
END: Final = b"\r\n\r\n"
# The header line of event streams for proxies in front: nginx would collect kilobytes of events before it sends any.
_UNBUFFERED = b"X-Accel-Buffering: no\r\n"
#: header lines of one that begins before the engine's does
EVENT_STREAM = b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n" + _UNBUFFERED
_ACCEPTS = re.compile(rb"(?im)^accept-encoding:.*\n")
# from this status on it is the engine that failed
FAILURE: Final = 500
# Hop-by-hop fields (RFC 9110 7.6.1) and those this proxy writes itself.
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization".split()
    + b"te trailer transfer-encoding upgrade".split()
)
_REQUEST_OWN: Final = _HOP_BY_HOP | frozenset(
    b"host content-length expect http2-settings".split()
    + b"forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip x-request-id".split()
)
# a name for the request, as the client or a proxy gave it, which may stand in a log
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")
_TRACE = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_FORWARDED: Final = frozenset(b"forwarded via x-forwarded-for x-real-ip".split())
_SECRET = frozenset(b"authorization x-api-key".split())
_SINGLE: Final = _SECRET | frozenset(b"host content-length transfer-encoding content-type".split())
_REQUEST_OWN_AND_SECRET: Final = _REQUEST_OWN | _SECRET
_LENGTH: Final = frozenset((b"content-length",))
_RESPONSE_OWN: Final = _HOP_BY_HOP | {b"x-request-id"}
_NO_TOKENS: Final[frozenset[bytes]] = frozenset()
_PLAIN: Final = frozenset((b"", b"identity"))
# Longer targets, and those with a query, are unlikely to repeat; a query may hold what no memory should.
_SHORT: Final = 256
# The form of a Host field or of a target's authority (RFC 9110 7.2), without commas, which two readers could split.
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+;=%-]*|\[[0-9A-Fa-f:.]+(?:%25[A-Za-z0-9._~-]+)?\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)")


class HeadError(ValueError):
    """A request that is not served."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(status, code, message)


class ResponseError(ValueError):
    """The engine's answer is not HTTP that can be passed on."""


class _Head:
    """The callbacks of a parser: what a head consists of."""

    def __init__(self) -> None:
        self.target = b""
        #: names in lower case and as they were written, and values
        self.fields: list[tuple[bytes, bytes, bytes]] = []
        self._complete = False

    def read(self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, raw: bytes) -> None:
        """Take a head apart that ends with an empty line; raise ValueError."""
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            # Upgrade is ignored, as RFC 9110 7.8 allows
            pass
        except httptools.HttpParserError as exc:
            raise ValueError(f": {exc}") from exc
        if not self._complete:
            raise ValueError

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), name, value))

    def on_headers_complete(self) -> None:
        self._complete = True

    def named(self, single: frozenset[bytes] = frozenset()) -> dict[bytes, bytes]:
        """Return the fields by their names in lower case, repeated ones joined with commas; `single` may not repeat."""
        found: dict[bytes, bytes] = {}
        for low, _name, value in self.fields:
            if low in found:
                if low in single:
                    raise HeadError(400, "duplicate_header", f"the header field {low.decode()} stands more than once")
                value = b"%b,%b" % (found[low], value)
            found[low] = value
        return found


def _tokens(value: bytes | None) -> frozenset[bytes]:
    return frozenset([token.strip().lower() for token in value.split(b",")]) if value else _NO_TOKENS


def _keep_alive(http11: bool, connection: frozenset[bytes]) -> bool:
    # not asked of the parser: it forgets when the message is complete with its head
    return b"close" not in connection and (http11 or b"keep-alive" in connection)


class RequestHead:
    """The parts of a request's head that the frontdoor needs, which `request_head` sets.

    `line` and `fields` are what the engine is sent: request line, and the end-to-end header lines with those that this
    proxy adds by what the head says.

    `content_length` is None with chunked transfer coding and 0 where no body was announced.

    Compiled, a class is made and read many times faster than a named tuple.
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
    #: takes permits
    gated: bool
    #: announces a compressed body
    coded: bool
    #: what separates the parts of a form, on the paths that take one
    boundary: bytes
    #: comes through a proxy, as that says: who asks is not who connected
    forwarded: bool
    #: for whom the last proxy asks, as it says
    forwarded_for: str
    #: what the client or a proxy calls the request; empty where they do not
    request_id: bytes

    def uncoded(self) -> None:
        """Ask the engine for an uncompressed body, to put something before or into it."""
        self.fields = _ACCEPTS.sub(b"", self.fields) + b"Accept-Encoding: identity\r\n"


def _target(raw: bytes) -> tuple[Route, bytes, bytes]:
    """Return the route of a request target, the target that the engine is sent, and the authority, empty without."""
    if raw == b"*":
        return Route(Kind.LOCAL, "*"), raw, b""
    authority = b""
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
    route = classify(canonical)
    return route, quote_path(route.path).encode() + mark + query, authority


# Clients ask for a handful of targets again and again.
_known_target = functools.lru_cache(256)(_target)


def _body_length(named: dict[bytes, bytes], http11: bool) -> int | None:
    coding = named.get(b"transfer-encoding")
    if coding is not None:
        if not http11 or b"content-length" in named:
            raise HeadError(400, "bad_framing", "the length of the request body is ambiguous")
        if coding.strip().lower() != b"chunked":
            raise HeadError(501, "coding_not_supported", "the only transfer coding supported is chunked")
        return None
    digits = named.get(b"content-length", b"0").strip()
    if not digits.isdigit() or len(digits) > 18:
        raise HeadError(400, "bad_framing", "Content-Length is not a number")
    return int(digits)


def _secret(named: dict[bytes, bytes]) -> bytes:
    given = named.get(b"authorization")
    if given is not None:
        scheme, _space, token = given.partition(b" ")
        if scheme.lower() == b"bearer":
            return token.strip()
    return named.get(b"x-api-key", b"").strip()


def _request_id(named: dict[bytes, bytes]) -> bytes:
    own, trace = named.get(b"x-request-id", b"").strip(), named.get(b"traceparent", b"").strip()
    if own and _REQUEST_ID.fullmatch(own):
        return own
    traced = _TRACE.fullmatch(trace) if trace else None
    return traced[1] if traced else b""


def request_head(raw: bytes, max_headers: int, keep_secrets: bool) -> RequestHead:
    """Parse and judge one request head that ends with an empty line; raise HeadError.

    Without `keep_secrets` the credentials are not passed on to the engine.
    """
    parsed = _Head()
    parser = httptools.HttpRequestParser(parsed)
    try:
        parsed.read(parser, raw)
    except ValueError as exc:
        raise HeadError(400, "bad_request", f"not a valid HTTP/1.1 request{exc}") from exc
    method, end = parser.get_method(), raw.find(b"\r\n")
    http11 = raw.endswith(b" HTTP/1.1", 0, end)
    if not http11 and not raw.endswith(b" HTTP/1.0", 0, end):
        raise HeadError(400, "bad_version", "only HTTP/1.0 and HTTP/1.1 are understood")
    if len(parsed.fields) > max_headers:
        raise HeadError(431, "too_many_headers", f"more than {max_headers} header fields")
    if method in (b"CONNECT", b"TRACE"):
        raise HeadError(501, "method_not_supported", f"the method {method.decode()} is not supported")
    repeats = len(parsed.target) <= _SHORT and b"?" not in parsed.target
    route, target, authority = (_known_target if repeats else _target)(parsed.target)
    named = parsed.named(_SINGLE)
    if http11 and b"host" not in named:
        raise HeadError(400, "missing_host", "an HTTP/1.1 request needs a Host field")
    host = named.get(b"host", b"").strip()
    if not _HOST.fullmatch(host):
        raise HeadError(400, "bad_host", "the Host field names no valid host")
    length = _body_length(named, http11)
    expect = named[b"expect"].strip().lower() if b"expect" in named else b""
    if expect not in (b"", b"100-continue"):
        raise HeadError(417, "bad_expectation", "the only expectation supported is 100-continue")
    connection = _tokens(named.get(b"connection"))
    dropped = _REQUEST_OWN if keep_secrets else _REQUEST_OWN_AND_SECRET
    if not connection <= _HOP_BY_HOP:
        dropped |= connection
    sent = [b"%b: %b\r\n" % (name, value) for low, name, value in parsed.fields if low not in dropped]
    if authority or host:
        sent.append(b"X-Forwarded-Host: %b\r\n" % (authority or host))
    sent.append(b"Via: 1.%d b70-frontdoor\r\n" % http11)
    head = RequestHead()
    head.method = method
    head.route = route
    head.line = b"%b %b HTTP/1.1\r\n" % (method, target)
    head.fields = b"".join(sent)
    head.content_length = length
    head.keep_alive = _keep_alive(http11, connection)
    head.http11 = http11
    head.expects_continue = expect != b"" and http11 and length != 0
    head.origin = named.get(b"origin", b"")
    head.secret = _secret(named)
    head.gated = route.gated and method == b"POST"
    head.coded = not _tokens(named.get(b"content-encoding")) <= _PLAIN
    head.boundary = boundary_of(named.get(b"content-type", b"")) if route.form else b""
    head.forwarded = not _FORWARDED.isdisjoint(named)
    # each proxy adds at the end: what stands before it may be anybody's invention
    said = named.get(b"x-forwarded-for")
    head.forwarded_for = said.rpartition(b",")[2].strip().decode("latin-1") if said else ""
    head.request_id = _request_id(named)
    return head


class ResponseHead:
    """A response head of the engine, which `response_head` sets.

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


def response_head(raw: bytes, to_head: bool, drop_cors: bool) -> ResponseHead:
    """Parse one response head that ends with an empty line; raise ResponseError.

    `to_head` tells that it answers a HEAD request, which has no body whatever the fields say.
    """
    if not raw.startswith(b"HTTP/1."):
        raise ResponseError("not a valid HTTP response: it does not begin with a status line")
    parsed = _Head()
    parser = httptools.HttpResponseParser(parsed)
    try:
        parsed.read(parser, raw)
    except ValueError as exc:
        raise ResponseError(f"not a valid HTTP response{exc}") from exc
    status, named = parser.get_status_code(), parsed.named()
    if not 100 <= status <= 599:
        raise ResponseError(f"the status {raw[9:12].decode('latin-1')!r}")
    coding = named.get(b"transfer-encoding", b"").strip().lower()
    if coding not in (b"", b"chunked"):
        raise ResponseError(f"transfer coding {coding!r}")
    # that it belongs to this connection only cannot be said of what tells where the body ends
    connection = _tokens(named.get(b"connection")) - _LENGTH
    dropped = _RESPONSE_OWN | connection if connection else _RESPONSE_OWN
    if status < 200 or status == 204 or coding:
        # RFC 9110 8.6
        dropped |= _LENGTH
    event_stream = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
    lines = [
        b"%b: %b\r\n" % (name, value)
        for low, name, value in parsed.fields
        if low not in dropped and not (drop_cors and low.startswith(b"access-control-"))
    ]
    if event_stream and b"x-accel-buffering" not in named:
        lines.append(_UNBUFFERED)
    length: int | None = None
    if to_head or status in (204, 304) or status < 200:
        length = 0
    elif not coding and b"content-length" in named:
        # the parser has refused duplicates and anything but digits
        length = int(named[b"content-length"])
    head = ResponseHead()
    head.status = status
    head.wire = b"".join((b"HTTP/1.1 ", raw[9 : raw.find(b"\r\n") + 2], *lines))
    head.chunked = length is None and coding != b""
    head.length = length
    head.keep_alive = _keep_alive(raw.startswith(b"HTTP/1.1"), connection) and (length is not None or coding != b"")
    # of what is compressed nobody here knows where an event ends
    head.event_stream = event_stream and named.get(b"content-encoding", b"identity").strip().lower() == b"identity"
    return head
