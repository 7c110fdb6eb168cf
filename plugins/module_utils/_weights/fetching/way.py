# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to the network, in words for errors."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping


def way(environment: Mapping[str, str]) -> str:
    """Return by which proxy a program with these variables reaches others, without the user and the password in it."""
    address = environment.get("https_proxy") or environment.get("http_proxy")
    if not address:
        return "without a proxy (b70_proxy)"
    return f"through the proxy {urllib.parse.urlsplit(address).netloc.rpartition('@')[2] or 'of no address'}"
