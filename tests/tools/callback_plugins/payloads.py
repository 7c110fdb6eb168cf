# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what Ansible makes of a module for its hosts from one run to the next.

Each run reads and parses every module and all that it imports anew, which takes up to a second of a processor for each.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from ansible import __version__, constants
from ansible.plugins.callback import CallbackBase
from ansible.utils.collection_loader._collection_finder import _get_collection_path

DOCUMENTATION = """
name: payloads
type: aggregate
short_description: Keep the modules that were made for hosts
description: For work in a checkout.
"""
HOME = Path(__file__).resolve().parents[3] / ".cache" / "payloads"
KEPT_S = 86400


def version(collection: Path) -> str:
    """Return a digest of Ansible's version and of the state of the collection's modules."""
    state = hashlib.sha256(f"{__version__} {collection}".encode())
    for file in sorted(collection.glob("plugins/module*/**/*.py")):
        found = file.stat()
        state.update(f"{file} {found.st_mtime_ns} {found.st_size}\n".encode())
    return state.hexdigest()[:16]


def keep(used: Path, home: Path, collection: Path) -> None:
    """Make the folder ``used`` of this run one that other runs of the same modules share; forget those of others."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Ansible trusts what it finds there.
    if home.stat().st_uid != os.geteuid():
        return
    place = home / version(collection)
    place.mkdir(exist_ok=True)
    os.utime(place)
    for other in home.iterdir():
        if other.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
    used.symlink_to(place)


class CallbackModule(CallbackBase):
    """Share the payloads as the run begins."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "payloads"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Where that cannot be, each run makes its own, as without this plugin.
        with contextlib.suppress(OSError, ValueError):
            keep(Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"), HOME, Path(_get_collection_path("arcpro.b70")))
