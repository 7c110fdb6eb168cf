# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several modules share, as they stand in plugins/doc_fragments: slot.py and recorded_work.py."""

from __future__ import annotations

from typing import Any

from . import _paths

Arguments = dict[str, dict[str, Any]]

SLOT_PATHS: Arguments = {
    "slot": {"type": "str", "default": "main"},
    "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
    "run_dir": {"type": "path", "default": _paths.RUN_DIR},
    "state_dir": {"type": "path", "default": _paths.STATE_DIR},
    "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
}
SLOT: Arguments = {**SLOT_PATHS, "frontdoor_url": {"type": "str", "default": "http://127.0.0.1:8000"}}
JOURNAL: Arguments = {"requested_by": {"type": "str", "default": ""}}
RECORDS: Arguments = {"records_dir": {"type": "path", "default": _paths.RECORDS_DIR}}
RECORDED_WORK: Arguments = {
    **SLOT,
    **RECORDS,
    "host_name": {"type": "str", "default": "host"},
    "reconnect_timeout": {"type": "float", "default": 600},
    "step": {"type": "str", "choices": ["start", "look", "acknowledge"], "default": "start"},
    "token": {"type": "str", "default": "", "no_log": False},
}
