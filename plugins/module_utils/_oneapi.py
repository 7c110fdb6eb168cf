# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment that one oneAPI compiler needs, as data: what its own script sets, nothing of any other release.

Functions of plain values; the module b70_oneapi_env runs the script and writes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils._environment import SYSTEM_PATH, Variable, environment_file

# The variables that the script starts with, so that none of the caller's ends up in the file.
CLEAN = {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"}
# Variables that a shell sets by itself; CLEAN's own values are left out because they do not change.
_OF_THE_SHELL = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "BASH_ENV"})
_RELEASE = re.compile(r"\d{4}\.\d+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CaptureProblem(Exception):
    """The environment cannot be used; the text says why and what to do."""


def capture_argv(script: str) -> list[str]:
    """Return the command that runs `script` in a clean environment and prints its variables, NUL-separated.

    The vendor ships the environment as a shell script and nothing else, and it must be sourced: this is the one place
    where a shell reads something. The path is an argument of the shell, not part of its program.
    """
    clean = [f"{name}={value}" for name, value in CLEAN.items()]
    program = 'file=$1; shift; . "$file" >&2 && exec env -0'
    return ["env", "-i", *clean, "bash", "--noprofile", "--norc", "-c", program, "bash", script]


def parse(output: str) -> dict[str, str]:
    """Return the variables in the output of `env -0` that the script has set or changed."""
    found = {}
    for item in output.split("\0"):
        name, equals, value = item.partition("=")
        if equals and _NAME.fullmatch(name) and name not in _OF_THE_SHELL and CLEAN.get(name) != value:
            found[name] = value
    return found


def releases(root: Path) -> list[str]:
    """Return the compiler releases below `root`/compiler, oldest first; links such as `latest` are not releases."""
    folder = root / "compiler"
    if not folder.is_dir():
        return []
    names = [entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
    return sorted(
        (name for name in names if _RELEASE.fullmatch(name)), key=lambda name: [int(n) for n in name.split(".")]
    )


def check(variables: Mapping[str, str], root: Path, release: str, required: Iterable[str]) -> None:
    """Raise CaptureProblem unless `variables` has all that is required and names no other compiler release."""
    missing = [name for name in required if not variables.get(name)]
    if missing:
        raise CaptureProblem(
            f"the script of compiler {release} did not set {', '.join(missing)}; reinstall its package, or set them "
            "in oneapi_environment"
        )
    compiler = str(root / "compiler")
    for name, value in variables.items():
        if re.search(r"[\x00-\x1f\x7f]", value):
            raise CaptureProblem(f"the value of {name} has control characters, which no environment file can hold")
        for word in value.split(":"):
            rest = word.removeprefix(compiler + "/")
            other = rest.split("/")[0]
            if rest != word and other != release:
                raise CaptureProblem(f"{name} names {compiler}/{other}, another compiler than {release}: {value}")
    if str(root / "compiler" / release) not in variables.get("PATH", ""):
        raise CaptureProblem(f"PATH does not name {compiler}/{release}: is this the script of that compiler?")


def text(captured: Mapping[str, str], extra: Mapping[str, str], script: str, release: str) -> str:
    """Return the systemd EnvironmentFile: the variables of script and operator, each with its origin."""
    variables = {name: Variable(value, script) for name, value in captured.items()}
    variables |= {name: Variable(value, "oneapi_environment") for name, value in extra.items()}
    header = (
        f"The environment of Intel's oneAPI compiler {release}, captured from its own script.\n"
        "Units and builds read this file. Written by the role arcpro.b70.oneapi; what you change here is changed back."
    )
    return environment_file(dict(sorted(variables.items())), header)
