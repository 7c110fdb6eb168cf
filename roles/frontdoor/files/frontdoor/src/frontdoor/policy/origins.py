# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Web pages that may use the frontdoor from a browser, by their origin (CORS)."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: every page
ANY = "*"
_EXPOSED = b"Access-Control-Expose-Headers: Retry-After, X-Request-Id\r\n"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null|\*", re.ASCII)


def checked(origins: Iterable[str]) -> frozenset[str]:
    """Return the origins as browsers name them; raise ValueError, which names one that no browser would."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"{origin!r} is no origin; write https://HOST or http://HOST:PORT, without a path, or {ANY}"
            )
    return frozenset(origins)


class Origins:
    """Origins that browsers may use; without any, the engine's own headers are passed on."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._allowed = frozenset(origin.encode() for origin in origins)
        #: whether browsers are told at all
        self.on = bool(self._allowed)

    def fields(self, origin: bytes) -> bytes:
        """Return the header lines for a request of this origin; a page that may not is told nothing that lets it."""
        if ANY.encode() in self._allowed:
            return b"Access-Control-Allow-Origin: *\r\n" + _EXPOSED
        # caches keep an answer for each origin
        vary = b"Vary: Origin\r\n" if self.on else b""
        return (
            b"Access-Control-Allow-Origin: %b\r\n%b%b" % (origin, _EXPOSED, vary) if origin in self._allowed else vary
        )
