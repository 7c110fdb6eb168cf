# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What installing stacks on a host means, decided on the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.module_utils import _stack


def stack_plan(
    stacks: Iterable[tuple[str, Mapping[str, Any]]], host: Mapping[str, Any], root: str
) -> list[dict[str, Any]]:
    """What is to be done for each stack, given as (id, manifest), on a host that b70_host_info looked at."""
    try:
        return _stack.plan(stacks, host, root)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(
            "stack_plan needs pairs of stack id and manifest, the result of b70_host_info with stack_root among its "
            f"paths, and stack_root; {type(error).__name__}: {error}"
        ) from error


def lock_requirements(lock: str, host: Mapping[str, Any]) -> list[str]:
    """The requirements of a lock that apply to a host that b70_host_info looked at."""
    try:
        return _stack.lock_requirements(lock, host)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"lock_requirements: {error}") from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"stack_plan": stack_plan, "lock_requirements": lock_requirements}
