# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status page for people: one file, no asset from anywhere else."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path


@functools.cache
def page() -> tuple[bytes, bytes]:
    """The page, and the header line that lets the browser run exactly its own script and style."""
    html = (Path(__file__).parent / "page.html").read_bytes()

    def source(tag: str) -> str:
        found = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), html, re.DOTALL)
        assert found
        return base64.b64encode(hashlib.sha256(found[1]).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{source('script')}'; style-src 'sha256-{source('style')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, f"Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n".encode()
