# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Git with a limit, without anybody's settings, and with mirrors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .. import _proxy
from .recipe import BuildError

_GIT_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ASKPASS": "true",
}
WORDS = 600


class Git:
    """Runs git in one checkout with a limit. mirrors: beginnings of addresses and what stands in their place, for
    submodules too."""

    def __init__(self, tree: Path, limit_s: float, mirrors: Mapping[str, str]) -> None:
        self._tree = tree
        self._limit_s = limit_s
        self._options: list[str] = []
        for address, mirror in sorted(mirrors.items()):
            self._options += ["-c", f"url.{mirror}.insteadOf={address}"]

    def __call__(self, *argv: str, check: bool = True, given: bytes = b"") -> subprocess.CompletedProcess[str]:
        done = self.raw(*argv, given=given)
        said = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and said.returncode != 0:
            way = f" {_proxy.here()}" if "fetch" in argv else ""
            raise BuildError(f"`git {' '.join(argv)}` in {self._tree} failed{way}: {said.stderr.strip()[-WORDS:]}")
        return said

    def raw(self, *argv: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run Git and return its result in bytes, whatever the exit status. given: its standard input."""
        try:
            return subprocess.run(
                ["git", *self._options, *argv],
                cwd=self._tree,
                env={**os.environ, **_GIT_ENVIRONMENT},
                input=given,
                capture_output=True,
                timeout=self._limit_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise BuildError("git is not installed on this host") from error
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"`git {argv[0]}` in {self._tree} took longer than {self._limit_s:g} s") from error
