# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of pins on the controller. Every host of a play reads it; the first host that sees a value adds it.

Each host of a play is a process of its own, and plays may run at the same time. So a pin is added under a lock on the
directory of the file, and the file is replaced in one step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils import _files, _lock
from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_run import user
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import Entry, Pins, PinsError

LOCK_LIMIT_S = 60.0
NOWHERE = "this inventory is no file, so there is no place beside it: set b70_pins_file to a file on the controller"


def read(path: str) -> Pins:
    """Return the pins of a file; no pins if the file does not exist. Raise PinsError if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return _pins.parse(stream.read(), path)
    except FileNotFoundError:
        return Pins()
    except (OSError, UnicodeDecodeError) as error:
        raise PinsError(f"{path} cannot be read ({error}): correct its owner and mode, or its content") from error


def seen(section: str, value: str, host: str, origin: str) -> Entry:
    """Return an entry for what ``host`` has just seen at ``origin``, in the name of the current user."""
    return _pins.seen(section, value, host, origin, user(), datetime.now(UTC))


def problem(path: str) -> str:
    """Return why the file cannot be written; empty if it can. Called before long work begins."""
    if not path:
        return NOWHERE
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"there is no directory {folder}: make it, or set b70_pins_file to a file that can be written"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written: correct its mode, or set b70_pins_file to a file that can be written"
    return ""


def add(path: str, section: str, found: Mapping[str, Entry]) -> Pins:
    """Add what has no entry yet and return the resulting pins; raise PinsError."""
    why = problem(path)
    if why:
        raise PinsError(why)
    with _lock.hold(Path(os.path.abspath(path)).parent, LOCK_LIMIT_S, PinsError):
        before = read(path)
        after = _pins.with_new(before, section, found)
        if after.values(section) != before.values(section):
            _replace(path, _pins.render(after))
        return after


def _replace(path: str, text: str) -> None:
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
    _files.replace(Path(os.path.realpath(path)), text.encode(), mode)
