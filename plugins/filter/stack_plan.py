# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What installing stacks on a host means, decided on the controller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.module_utils import _stack, _stack_build

Plan = Collection[Mapping[str, Any]]


def stack_plan(
    stacks: Iterable[tuple[str, Mapping[str, Any]]],
    host: Mapping[str, Any],
    root: str,
    patch_url: str = "",
    patch_dir: str = "",
) -> list[dict[str, Any]]:
    """What is to be done for each stack, given as (id, manifest), on a host that b70_host_info looked at."""
    try:
        return _stack.plan(stacks, host, root, patch_url, patch_dir)
    except (KeyError, TypeError, ValueError, OSError) as error:
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


def stack_questions(plan: Plan, plans: Mapping[str, Plan]) -> list[str]:
    """Which wheels a host is asked about: STACK_ID/SOURCE."""
    try:
        return _stack_build.questions(plan, plans)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"stack_questions needs plans of stack_plan; {error}") from error


def stack_shares(
    plans: Mapping[str, Plan], looks: Mapping[str, Mapping[str, Mapping[str, Any]]], store: str
) -> dict[str, Any]:
    """Who builds each wheel, and where the others get it."""
    try:
        stored = sorted(record.parent.name for record in Path(store).expanduser().glob("*/build.json"))
        return _stack_build.shares(plans, looks, stored)
    except (KeyError, TypeError, OSError) as error:
        raise AnsibleFilterError(
            f"stack_shares needs plans of stack_plan, and what b70_source_build found; {type(error).__name__}: {error}"
        ) from error


def stack_said(item: Mapping[str, Any], shares: Mapping[str, Any], looks: Mapping[str, Any], host: str) -> list[str]:
    """What is done for every source of a stack on a host, in words."""
    try:
        return _stack_build.said(item, shares, looks, host)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"stack_said needs one answer of stack_plan; {error}") from error


def stack_built(item: Mapping[str, Any], looks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was built into a stack."""
    try:
        return _stack_build.built(item, looks)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(
            f"stack_built needs one answer of stack_plan and its finished wheels; {error}"
        ) from error


def stack_repositories(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a mirror needs of Git for a manifest."""
    try:
        return _stack_build.repositories(manifest)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"stack_repositories needs a manifest of the lookup; {error}") from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "lock_requirements": lock_requirements,
            "stack_built": stack_built,
            "stack_plan": stack_plan,
            "stack_questions": stack_questions,
            "stack_repositories": stack_repositories,
            "stack_said": stack_said,
            "stack_shares": stack_shares,
        }
