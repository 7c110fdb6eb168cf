# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a program: its variables with their origins, and the file from which systemd reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Stands in a file whose values have no quotes.
PLAIN = "Values are as they are, as podman --env-file reads them."
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Variable:
    """One environment variable with where it comes from, in words."""

    value: str
    origin: str


def quoted(value: str) -> str:
    """Return a value for a systemd EnvironmentFile.

    Inside double quotes systemd takes four characters after a backslash, and nothing else.
    """
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'


def environment_file(variables: Mapping[str, Variable], header: str) -> str:
    """Return the text of a systemd EnvironmentFile: a comment with the origin above each variable."""
    lines = [f"# {line}" for line in header.splitlines()]
    for name, variable in variables.items():
        lines += [f"# from {variable.origin}", f"{name}={quoted(variable.value)}"]
    return "\n".join(lines) + "\n"
