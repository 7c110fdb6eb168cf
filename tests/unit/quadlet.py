# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units as Podman's generator (Quadlet) prints them, and as we write them: what is compared of both."""

from __future__ import annotations

import shlex
from pathlib import Path

GENERATED = Path(__file__).parent / "plugins/plugin_utils/_render/quadlet"


def directives(text: str, section: str = "Service") -> list[tuple[str, str]]:
    """The directives of a section of a unit, lines that go on joined."""
    lines = text.replace("\\\n", " ").partition(f"[{section}]\n")[2].partition("\n[")[0].splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]  # type: ignore[misc]


SHORT = {"-v": "--volume"}


def words(command: str) -> tuple[list[str], list[str]]:
    """(options of `podman run`, sorted and each one word; image and what follows it)."""
    found = shlex.split(command)
    assert found[:2] == ["/usr/bin/podman", "run"], command
    options: list[str] = []
    rest = found[2:]
    while rest[0].startswith("-"):
        word = SHORT.get(rest[0], rest[0])
        alone = "=" in word or word in ("--replace", "--rm", "-d", "--read-only")
        # Podman reads names of capabilities in either case, and its generator writes them in lower case.
        value = rest[1].upper() if word == "--cap-add" else rest[1]
        options.append(word if alone else f"{word}={value}")
        rest = rest[1 if alone else 2 :]
    return sorted(options), rest
