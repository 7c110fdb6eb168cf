#!/usr/bin/python3 -I
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs b70ctl as it is installed, up to a phase: `crash-at PHASE DIRECTION STATE HOW -- ARGUMENTS OF b70ctl`.

At the progress record that says so (STATE: begin or end) it kills itself with SIGKILL (HOW: kill), or writes
/run/b70-sim/reached and waits there until it is told to end or the host goes away (HOW: wait).
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, "/opt/b70/lib")

from b70slot.do.progress import ProgressFile  # type: ignore[import-not-found]

PHASE, DIRECTION, STATE, HOW = sys.argv[1:5]
REACHED = Path("/run/b70-sim/reached")
say = ProgressFile.say


def crashing_say(self: Any, event: str, **fields: Any) -> None:
    say(self, event, **fields)
    if event != "phase" or (fields["phase"], fields["direction"]) != (PHASE, DIRECTION) or fields["state"] != STATE:
        return
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    REACHED.touch()
    # The product takes notice of a SIGTERM once, and ignores it from then on: that is how it shows here.
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        time.sleep(0.02)


ProgressFile.say = crashing_say
# The controller, which heals at once, may hold the slot's lock.
sys.argv = ["/opt/b70/bin/b70ctl", *sys.argv[6:], "--lock-timeout", "240"]
runpy.run_path(sys.argv[0], run_name="__main__")
