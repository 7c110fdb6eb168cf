# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A look at a unit of the host that costs it next to nothing; a module would cost most of a second. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

MARK = "==b70-look=="
ALIVE = ("active", "activating", "deactivating", "reloading")  # systemd's words for a unit that has not ended
# systemd may give no answer once. After so many looks without a live unit there will be no result.
GONE_LOOKS = 4


@dataclass(frozen=True)
class Look:
    """What one look found. progress: new text of the progress file."""

    progress: str
    finished: bool
    alive: bool


def poll_script(progress: str, result_file: str, offset: int, unit: str) -> str:
    """Return a shell script for one cheap look: new bytes of the progress file, whether a result exists, the unit.

    The unit comes first: if it ends between two commands, it has left its result.
    """
    return (
        f"alive=$(systemctl is-active {shlex.quote(unit)}); "
        f"tail -c +{offset + 1} {shlex.quote(progress)} 2>/dev/null; printf '\\n{MARK}\\n'; "
        f"test -e {shlex.quote(result_file)} && echo finished; printf '\\n{MARK}\\n'; echo \"$alive\"; true"
    )


def read_look(text: str) -> Look:
    """Return the parts of an answer. A truncated answer counts as a look that found nothing new."""
    parts = text.replace("\r\n", "\n").split(f"\n{MARK}\n")
    if len(parts) != 3:
        return Look("", finished=False, alive=True)
    return Look(parts[0], finished="finished" in parts[1], alive=parts[2].strip() in ALIVE)
