# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the weights into memory while clients are still served, which shortens their wait."""

from __future__ import annotations

from ..look.memory import MEMINFO, SPARED_BYTES, bytes_of, weight_sizes
from .run import Run

LIMIT_S = 600.0  # a switch does not wait longer for a disk than an engine would
_SAY_EVERY_S = 3.0


def prepare(run: Run) -> None:
    """Read the weights of the target ahead, as far as memory allows; errors are left to the engine that needs them."""
    fx, sizes = run.fx, weight_sizes(run.fx, run.profile)
    total, room = sum(sizes.values()), bytes_of(fx.files.read(MEMINFO), "MemAvailable") - SPARED_BYTES
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


def _say(run: Run, text: str) -> None:
    run.progress.say("hint", phase="prepare", text=text)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
