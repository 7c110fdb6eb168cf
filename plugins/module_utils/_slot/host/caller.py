# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one who runs this, as the host knows it."""

from __future__ import annotations

import getpass
import os


def caller(requested_by: str = "") -> str:
    """Return who runs this, for lock and journal: who asked from elsewhere, else user and SSH client where there is
    one."""
    if requested_by:
        return requested_by
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    client = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return f"{user} from {client}" if client else user
