# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: exit_code
type: aggregate
short_description: End a run with the exit code that a task asks for
version_added: 0.2.0
author: arcpro.b70 contributors (@arcpro-b70)
description:
  - If a task failed and its result has C(b70_exit_code), C(ansible-playbook) ends with that instead of 2. The playbook
    C(status) ends with 3 if a host that should serve does not.
  - Enable it last, because callbacks after it don't see the end of such a run.
requirements:
  - enable it with C(callbacks_enabled=arcpro.b70.exit_code) in C(ansible.cfg)
"""

import typing as t

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Remember the first code that a failed task asks for, and exit with it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "arcpro.b70.exit_code"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: t.Any = None, options: t.Any = None) -> None:
        super().__init__(display=display, options=options)
        self._code = 0

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        found = result.result if hasattr(result, "result") else result._result
        if not ignore_errors:
            self._code = self._code or int(found.get("b70_exit_code") or 0)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self._code:
            # No Exception: Ansible reports those of a callback and goes on.
            raise SystemExit(self._code)
