# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real effects of a host, in one bundle."""

from __future__ import annotations

from ..words.effects import Effects
from .clock import SystemClock
from .files import HostFiles
from .http import HttpClient
from .images import PodmanImages
from .locks import FileLocks
from .processes import ProcTable
from .systemd import Systemd


def host_effects(clock: SystemClock) -> Effects:
    """Return the effects that act on this host."""
    return Effects(
        clock=clock,
        units=Systemd(),
        http=HttpClient(clock.waiting),
        files=HostFiles(),
        locks=FileLocks(clock),
        processes=ProcTable(),
        images=PodmanImages(),
    )
