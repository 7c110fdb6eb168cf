# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs uv with what its cache has, and with the network only where that is not enough.

The arguments are uv's command line. uv on its own asks the index about every package even when the cache holds all the
wheels; a second host with a common cache, or a site without a network, must not need that. One process decides and
installs, so that a lock around it covers both. Exits as uv does.
"""

from __future__ import annotations

import subprocess
import sys


def main(command: list[str]) -> int:
    cached = subprocess.run([*command, "--offline"], capture_output=True, check=False)
    if cached.returncode == 0:
        print("from the cache")
        return 0
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
