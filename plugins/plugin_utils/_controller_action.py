# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of actions that have no module: they run on the controller and reach no host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase


class ControllerAction(ActionBase):
    """Checks the arguments, and adds what ``answer`` returns to Ansible's own result; unchanged unless it says so."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False
    OPTIONS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _checked, given = self.validate_argument_spec(argument_spec=self.OPTIONS)
        return {**result, "changed": False, **self.answer(given, task_vars or {})}

    @abstractmethod
    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result for checked arguments and the variables of the task."""
