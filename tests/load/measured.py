# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor, which on SIGUSR1 gives back what its heap does not use, and then writes a byte to a descriptor.

How large a heap was once tells of the machine: the longer the frontdoor is kept from running, the more waits for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from frontdoor.cli import main

_TOLD = int(sys.argv.pop(1))
_LIBC = ctypes.CDLL(None)


def _trim(*_: object) -> None:
    _LIBC.malloc_trim(0)
    os.write(_TOLD, b".")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _trim)
    sys.exit(main())
