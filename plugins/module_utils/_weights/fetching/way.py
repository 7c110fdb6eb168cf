# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way to the network, in words for errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

# A login may have characters that end an address, and an address may lack what follows the login.
ADDRESS = re.compile(r"(\w+://)?([^@]*@)?(?P<told>([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?)/?", re.ASCII)


def way(environment: Mapping[str, str]) -> str:
    """Return by which proxy a program with these variables reaches others, without the user and the password in it."""
    address = environment.get("https_proxy") or environment.get("http_proxy")
    if not address:
        return "without a proxy (b70_proxy)"
    found = ADDRESS.fullmatch(address)
    return f"through the proxy {found['told'] if found else 'of no readable address'}"
