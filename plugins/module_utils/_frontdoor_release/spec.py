# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of b70_frontdoor_release, and what they mean in its code's own terms."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from .types import File, Identity, Release, ReleasePaths

UNIT_DIR = "/etc/systemd/system"
TEXT = {"type": "str"}
SECRET = {"type": "str", "no_log": True, "default": ""}
DIRECTORY = "/opt/b70/frontdoor"
CONFIG_DIR = "/etc/b70-frontdoor"
BUILD = "B70_FRONTDOOR_BUILD="  # in the unit

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "build": TEXT,
    "certificate": {"type": "str", "default": ""},
    "environment": {"type": "path"},
    "status_url": TEXT,
    "config": TEXT,
    "unit": TEXT,
    "helper_unit": {"type": "str", "default": ""},
    "helper_socket": {"type": "str", "default": ""},
    "api_keys": SECRET,
    "admin_keys": SECRET,
    "group": {"type": "str", "default": "b70-frontdoor"},
    "directory": {"type": "path", "default": DIRECTORY},
    "link": {"type": "path", "default": f"{DIRECTORY}/venv"},
    "config_dir": {"type": "path", "default": CONFIG_DIR},
    "start_timeout": {"type": "int", "default": 30},
    "stop_timeout": {"type": "int", "default": 70},
}
REQUIRED_IF = [("state", "present", ["build", "environment", "status_url", "config", "unit"])]


def place(given: Mapping[str, Any]) -> ReleasePaths:
    """Return the places of the frontdoor that the options name."""
    return ReleasePaths(given["link"], given["directory"], given["config_dir"], UNIT_DIR, given["group"])


def release(given: Mapping[str, Any]) -> Release:
    """Return the release that the options describe."""
    where = place(given)
    program = (f"{given['environment']}/bin/python", "-I", "-m", "frontdoor")
    analyze = ("systemd-analyze", "verify", "--man=no")
    unit, helper, socket = where.unit_files
    build = given["build"]
    settings = hashlib.sha256((given["config"] + given["certificate"]).encode()).hexdigest()

    def keys(path: str, text: str) -> File:
        return File(path, text or None, "0640", where.group, secret=True, check=(*program, "--check-keys"))

    return Release(
        place=where,
        identity=Identity(f"{build}.{settings}", given["environment"], given["status_url"]),
        config=File(where.config_file, given["config"], check=(*program, "--check-config", "--config")),
        units=(
            File(unit, given["unit"].replace(BUILD, BUILD + build), check=analyze),
            File(helper, given["helper_unit"] or None),
            File(socket, given["helper_socket"] or None),
        ),
        keys=(keys(where.key_files[0], given["api_keys"]), keys(where.key_files[1], given["admin_keys"])),
        start_timeout=given["start_timeout"],
        stop_timeout=given["stop_timeout"],
    )
