# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's proxy as the role host has written it on a host, for root alone: its address may have a password in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ._weights.fetching.way import way

FILE = "/etc/b70-proxy.json"


def variables(file: str = "") -> dict[str, str]:
    """Return the variables by which programs find the proxy; none where the site has none."""
    try:
        text = Path(file or FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {str(name): str(value) for name, value in json.loads(text).items()}


def enter() -> None:
    """Let this process and its children use the proxy. It has what Ansible's `environment` would show in argv."""
    os.environ.update(variables())


def here() -> str:
    """Return the way of this process to the network, in words for errors."""
    return way(os.environ)
