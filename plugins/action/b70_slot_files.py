# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_slot_files: renders the catalogue with the settings of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import CATALOGUE, read_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import (
    asks_for_cards,
    may_have_sides,
    render_slot,
)

MODULE = "arcpro.b70.b70_slot_files"
WEIGHTS = "arcpro.b70.b70_weights"
HOST_INFO = "arcpro.b70.b70_host_info"
# Options that the module and the rendering both have.
SHARED = ("slot", "config_dir", "unit_dir", "run_dir", "state_dir")
OWN = ("settings", "host", *CATALOGUE)


class ActionModule(ActionBase):
    """Gives the module the files in place of what they are made from."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = dict(self._task.args)
        missing = [name for name in ("settings", *SHARED) if not given.get(name)]
        if missing:
            raise AnsibleActionFail(f"b70_slot_files needs the option {missing[0]}")
        arguments = {key: value for key, value in given.items() if key not in OWN}
        arguments["files"] = self._files(given, task_vars or {})
        try:
            result.update(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars))
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def _files(self, given: dict[str, Any], variables: dict[str, Any]) -> list[dict[str, str]]:
        profiles, stacks = read_catalogue(self, given, variables)
        settings = {**plain(given["settings"]), **{key: given[key] for key in SHARED}, "stacks": stacks}
        if weights := self._weights(profiles, settings, variables):
            settings["weights"] = weights
        needed = asks_for_cards(profiles)
        if settings.get("cards") in (None, "") and (needed or any(map(may_have_sides, profiles.values()))):
            settings |= self._cards(plain(given.get("host") or {}), variables, needed=needed)
        try:
            return render_slot(profiles, plain(settings))
        except ValueError as error:
            raise AnsibleActionFail(f"b70_slot_files: {error}") from error

    def _weights(
        self, profiles: Mapping[str, Any], settings: Mapping[str, Any], variables: dict[str, Any]
    ) -> dict[str, Any]:
        """Return where the models of the profiles stand on the host, and the digests of their records."""
        listed = [one for profile in profiles.values() for one in profile.get("weights", ())]
        models = {one["directory"]: one["repository"] for one in listed}
        if not models:
            return {}
        arguments = {"directory": settings["models_dir"], "request": {"step": "stand", "models": models}}
        found = self._execute_module(module_name=WEIGHTS, module_args=arguments, task_vars=variables)
        if found.get("failed"):
            raise AnsibleActionFail(f"b70_slot_files: the weights on the host could not be looked at: {found['msg']}")
        return dict(found["models"])

    def _cards(self, known: dict[str, Any], variables: dict[str, Any], *, needed: bool) -> dict[str, Any]:
        """Return the settings `cards` and `mixed` of the host; none where it does not tell, and that is not needed."""
        found = known
        if "cards" not in known:
            found = self._execute_module(module_name=HOST_INFO, module_args={}, task_vars=variables)
        if found.get("failed") or "cards" not in found:
            if not needed:
                return {}
            why = f"the cards of the host could not be counted ({found.get('msg')}); set slot_cards for it"
            raise AnsibleActionFail(f"b70_slot_files: {why}")
        cards = found["cards"]
        mixed = [card["number"] for card in cards] if cards and found.get("other_cards") else None
        return {"cards": len(cards), "mixed": mixed}
