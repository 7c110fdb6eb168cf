# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real effects of a host, in one bundle."""

from __future__ import annotations

from ..effects import Effects
from .clock import SystemClock
from .files import HostFiles
from .http import HAS_REQUESTS, NoHttp, RequestsHttp
from .images import PodmanImages
from .locks import FileLocks
from .processes import ProcTable
from .systemd import Systemd


def host_effects(clock: SystemClock) -> Effects:
    """Effects that act on this host. Without `requests` nobody answers over HTTP (see HAS_REQUESTS)."""
    return Effects(
        clock=clock,
        units=Systemd(),
        http=RequestsHttp(clock.waiting) if HAS_REQUESTS else NoHttp(),
        files=HostFiles(),
        locks=FileLocks(clock),
        processes=ProcTable(),
        images=PodmanImages(),
    )
