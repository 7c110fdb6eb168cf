# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of actions that have no module: they run on the controller and reach no host. And the catalogue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible.errors import AnsibleLookupError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

# For the lookup catalogue: what the process of the play has imported, its forks, one for each task and host, have too.
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import shared  # noqa: F401  # pylint: disable=unused-import

# The options of the fragment arcpro.b70.catalogue.
CATALOGUE: dict[str, dict[str, Any]] = {
    "profile_dirs": {"type": "list", "elements": "str", "default": []},
    "stack_dirs": {"type": "list", "elements": "str", "default": []},
    "inline_profiles": {"type": "dict", "default": {}},
    "weights": {"type": "dict", "default": {}},
}


def read_catalogue(
    action: ActionBase, given: Mapping[str, Any], variables: Mapping[str, Any], names: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the complete profiles and the stack manifests, each by name, that the options of a task name.

    :param names: only these profiles.
    :raises AnsibleLookupError: with all faults of the catalogue, or if a name is not in it.
    """
    lookup = lookup_loader.get("arcpro.b70.catalogue", loader=action._loader, templar=action._templar)
    stack_dirs = given.get("stack_dirs") or []
    named = {"dirs": "profile_dirs", "inline": "inline_profiles", "weights": "weights"}
    words = {word: given[option] for word, option in named.items() if given.get(option)}
    profiles = lookup.run(list(names), variables, kind="profiles", stack_dirs=stack_dirs, **words)[0]
    return profiles, lookup.run([], variables, kind="stacks", stack_dirs=stack_dirs)[0]


class ControllerAction(ActionBase):
    """Checks the arguments, and adds what ``answer`` returns to Ansible's own result; unchanged unless it says so."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False
    OPTIONS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _checked, given = self.validate_argument_spec(argument_spec=self.OPTIONS)
        try:
            answer = self.answer(given, task_vars or {})
        except AnsibleLookupError as error:  # what is wrong with the catalogue, in the words of the catalogue alone
            answer = {"failed": True, "msg": str(error)}
        return {**result, "changed": False, **answer}

    @abstractmethod
    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result for checked arguments and the variables of the task."""
