# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What shortens the wait of clients and can be done while they are still served: the weights are read into memory."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .kinds.kind import Weights
from .kinds.table import kind_of
from .profile import Profile
from .run import Run

LIMIT_S = 600.0  # a switch does not wait longer for a disk than an engine would
SPARED_BYTES = 4 * 2**30  # of the available memory, for the engine that starts
MEMINFO = PurePosixPath("/proc/meminfo")
_SAY_EVERY_S = 3.0
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


def available_bytes(meminfo: str | None) -> int:
    """MemAvailable in the text of /proc/meminfo; 0 where it has none."""
    found = _AVAILABLE.search(meminfo or "")
    return int(found[1]) * 1024 if found else 0


def prepare(run: Run) -> None:
    """Reads the weights of the target, as far as memory allows. What fails here is told by the engine that needs it."""
    fx, sizes = run.fx, _sizes(run, run.profile)
    total, room = sum(sizes.values()), available_bytes(fx.files.read(MEMINFO)) - SPARED_BYTES
    if not total:
        return
    if total > room:
        _say(run, f"the weights ({_gb(total)}) are not read ahead: memory has room for {_gb(max(0, room))}")
        return
    begun = said = fx.clock.monotonic()
    read = 0
    for path in sizes:
        try:
            for piece in fx.files.prefetch(path):
                read += piece
                fx.clock.sleep(0)  # where being told to end takes effect
                now = fx.clock.monotonic()
                if now - begun > LIMIT_S:
                    _say(run, f"only {_gb(read)} of {_gb(total)} of the weights were read within {LIMIT_S:g} s")
                    return
                if now - said >= _SAY_EVERY_S:
                    said = now
                    _say(run, f"{_gb(read)} of {_gb(total)} of the weights are in memory")
        except OSError as error:
            _say(run, f"the weights are not read ahead: {error.strerror or error}: {error.filename or path}")
            return


def _sizes(run: Run, profile: Profile) -> dict[PurePosixPath, int]:
    folder, files = PurePosixPath(profile.model_path), run.fx.files
    weights = Weights(profile.name, folder, files.names(folder), profile.engine.argv, files.read)
    paths = [folder / name for name in kind_of(profile.engine.kind).weight_files(weights)]
    return {path: files.size(path) or 0 for path in paths}


def _say(run: Run, text: str) -> None:
    run.progress.say("hint", phase="prepare", text=text)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
