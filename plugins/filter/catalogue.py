# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters around the catalogue: ids, names, and the files of a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.arcpro.b70.plugins.module_utils import _render, _render_unit
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue import problems, stacks
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.reading import plain


def stack_id(manifest: Mapping[str, Any]) -> str:
    """``NAME-<10 hex digits>`` of a stack manifest as the lookup arcpro.b70.catalogue (kind=stacks) returns it."""
    if not isinstance(manifest, Mapping):
        raise AnsibleFilterError(f"stack_id needs a stack manifest (a mapping), not {type(manifest).__name__}")
    try:
        return stacks.stack_id(manifest)
    except ValueError as error:
        raise AnsibleFilterError(f"stack_id: {error}") from error


def render_slot(profiles: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """``[{path, content, mode}]`` for every file of a slot; profiles as the lookup returns them."""
    if not isinstance(profiles, Mapping) or not isinstance(settings, Mapping):
        raise AnsibleFilterError(
            "render_slot needs the profiles (a mapping, from the lookup) and the slot's settings (a mapping)"
        )
    try:
        return _render.render_slot(plain(profiles), plain(settings))
    except ValueError as error:
        raise AnsibleFilterError(f"render_slot: {error}") from error
    except KeyError as error:
        raise AnsibleFilterError(
            f"render_slot: a profile has no {error}; take profiles from arcpro.b70.catalogue"
        ) from error


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names of ``known`` that resemble ``name``, best first."""
    if isinstance(known, str) or not isinstance(known, Iterable):
        raise AnsibleFilterError(f"closest needs a list or mapping of known names, not {type(known).__name__}")
    return problems.closest(str(name), [str(item) for item in known], count)


def slot_unit(name: str, slot: str = "main") -> str:
    """The systemd unit of a profile in a slot."""
    return _render_unit.unit_name(str(name), slot)


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, Any]:
        return {"closest": closest, "render_slot": render_slot, "slot_unit": slot_unit, "stack_id": stack_id}
