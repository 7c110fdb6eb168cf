# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container images in the host's storage, asked of Podman."""

from __future__ import annotations

import subprocess

from ..words.effects import PODMAN
from ..words.types import HostFault

_LIMIT_S = 60.0


class PodmanImages:
    def id_of(self, reference: str) -> str:
        argv = [PODMAN, "image", "inspect", "--format", "{{.Id}}", reference]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except FileNotFoundError:
            return ""
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostFault(f"`{' '.join(argv)}` gave no answer: {error}") from error
        # It has no other words for an image that is not there.
        return done.stdout.strip() if done.returncode == 0 else ""
