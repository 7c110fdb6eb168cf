# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container images in the host's storage, asked of Podman."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from ..words.effects import PODMAN
from ..words.types import HostFault
from .commands import ran

_LIMIT_S = 60.0
# Podman writes to its storage even to read it, and needs root's capabilities. Some that ask have neither: the helper of
# the frontdoor and the service of a node. So it runs in a unit of its own.
_UNIT = (
    *("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--no-ask-password"),
    *(f"--property=RuntimeMaxSec={_LIMIT_S:g}", "--setenv=HOME=/root"),
)
_FAILED, _MISSING = 125, 1

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def inspected(reference: str, run: Run, *words: str) -> str | None:
    """Return what `podman image inspect` prints; None if the storage lacks the image. Raise HostFault if Podman cannot
    tell.

    words: options of the inspection.
    """
    done = run([PODMAN, "image", "inspect", *words, reference])
    if done.returncode == 0:
        return done.stdout
    # An inspection fails in one way for every reason; this question has a status for an image that is not there.
    if done.returncode == _FAILED and run([PODMAN, "image", "exists", reference]).returncode == _MISSING:
        return None
    said = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
    raise HostFault(f"Podman does not tell whether this host has the image {reference}: {said}")


def _apart(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return ran([*_UNIT, "--", *argv], _LIMIT_S)


class PodmanImages:
    def id_of(self, reference: str) -> str:
        return (inspected(reference, _apart, "--format", "{{.Id}}") or "").strip()
