# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page on which a person tries the served model: its files, and what the browser lets it do.

`make chat` builds the files from roles/frontdoor/files/chat. They load nothing from elsewhere, no script stands in the
page, and HTML is made by DOMPurify alone.
"""

from __future__ import annotations

import functools
from pathlib import Path

from frontdoor.config import Config
from frontdoor.policy.routes import CHAT_PAGE_PATHS

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"
)
#: header lines of its files
FIELDS = (
    f"Content-Security-Policy: {_POLICY}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cache-Control: no-cache\r\n"
).encode()
_FILES = dict(
    zip(
        CHAT_PAGE_PATHS,
        (("chat.html", "text/html"), ("app.js", "text/javascript"), ("app.css", "text/css")),
        strict=True,
    )
)


def is_on(config: Config) -> bool:
    """Tell whether the page is served."""
    return config.pages.chat == "on" or (config.pages.chat == "auto" and not config.auth.keys_file)


@functools.cache
def file_at(path: str) -> tuple[bytes, str]:
    """Return the content of one of CHAT_PAGE_PATHS, and its media type."""
    name, kind = _FILES[path]
    return (Path(__file__).parent / name).read_bytes(), f"{kind}; charset=utf-8"
