# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue on the controller, as data."""

from __future__ import annotations

DOCUMENTATION = r"""
name: catalogue
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Read the catalogue of profiles, stack manifests or known models
description:
  - Reads the shipped profiles and those of your own folders and variables, resolves C(extends), validates the result
    and returns the complete profiles by name. Abstract profiles (their names start with C(_)) are not returned.
  - Every fault of every file is reported at once, with the file and the path inside it.
  - Runs on the controller and needs nothing but what ansible-core brings.
options:
  _terms:
    description: Return only what has these names; none means all.
    type: list
    elements: str
  kind:
    description: What to return.
    type: str
    choices: [profiles, stacks, models, directories]
    default: profiles
  dirs:
    description:
      - Further folders with one profile per YAML file; a profile of a later folder replaces one of the same name.
      - A relative path is looked for beside the inventory, then beside the playbook.
    type: list
    elements: str
    default: []
  stack_dirs:
    description: Further folders with one stack manifest per YAML file, found like O(dirs).
    type: list
    elements: str
    default: []
  inline:
    description: Profiles as data, C(name) to profile; they come after all folders.
    type: dict
    default: {}
  weights:
    description:
      - What the site says of the weights of profiles. It decides which commit of a repository a profile's model is, and
        so in which directory it stands on a host.
      - C(sources) and C(revisions) are the variables C(model_weights_models) and C(model_weights_revisions),
        C(pins_file) is the file with the recorded commits.
    type: dict
    default: {}
seealso:
  - module: arcpro.b70.b70_slot_files
  - plugin: arcpro.b70.stack_id
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show which profiles there are
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.catalogue', dirs=b70_profile_dirs) | list }}"

- name: Show the limits of one profile
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.catalogue', 'minimax-m27-c1')['minimax-m27-c1'].frontdoor }}"

- name: Show the id of every stack
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.catalogue', kind='stacks').values() | map('arcpro.b70.stack_id') }}"
"""

RETURN = r"""
_raw:
  description:
    - For profiles, C(name) to the complete profile, with C(origins) (dotted path to the name of the
      profile that wrote the value), C(origin_files) (dotted path to the file it is written in) and C(source_file).
      C(weights) lists the directories of its models, with C(directory), C(base) and C(repository).
    - For models, C(name) to the list with C(source), C(precisions), C(notes) and C(models).
    - For directories, the list of the directories in which the models of the profiles stand, also those without a
      commit, which somebody fills by hand. Relative ones are below the directory of the weights.
    - For stacks, C(name) to the complete manifest, with C(source_file) and, where it names a C(lock), C(lock_file) and
      C(lock_sha256).
  type: list
  elements: raw
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.models import load_models
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.places import WeightsSettings, directories
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError, did_you_mean
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.shared import Reading, shared_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._pins import PinsError

NAMED = 12  # a list of more names helps nobody


class LookupModule(LookupBase):
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        places = [str(place) for key in ("inventory_dir", "playbook_dir") if (place := (variables or {}).get(key))]
        try:
            if self.get_option("kind") == "models":
                return [_chosen(load_models(), terms, "list of models")]
            folders = _folders(self.get_option("stack_dirs"), places)
            # A play's workers are processes: what one of them has read, all others find in the folder of this run.
            run = Path(constants.DEFAULT_LOCAL_TMP)
            if self.get_option("kind") == "stacks":
                return [_chosen(shared_stacks(folders, run), terms, "stack")]
            read = Reading(
                folders=tuple(_folders(self.get_option("dirs"), places)),
                stack_folders=tuple(folders),
                inline=plain(self.get_option("inline")),
                site=_site(self.get_option("weights")),
            )
            profiles = _chosen(read.shared(run), terms, "profile")
            return [directories(profiles) if self.get_option("kind") == "directories" else profiles]
        except (CatalogueError, PinsError) as error:
            raise AnsibleLookupError(str(error)) from error


def _site(weights: dict[str, Any]) -> WeightsSettings:
    path = weights.get("pins_file")
    pins = _pins_file.read(str(path)).values("weights") if path else {}
    # A template's own kind of mapping can be neither copied nor written as JSON.
    return WeightsSettings(plain(weights.get("sources") or {}), plain(weights.get("revisions") or {}), pins)


def _folders(named: list[str], places: list[str]) -> list[Path]:
    """Return the folders, relative ones below the first place that has them."""
    found = []
    for name in named:
        path = Path(name).expanduser()
        candidates = [path] if path.is_absolute() else [Path(place, path) for place in places or ["."]]
        existing = [candidate for candidate in candidates if candidate.is_dir()]
        if not existing:
            tried = ", ".join(map(str, candidates))
            raise AnsibleLookupError(f"the folder {name} does not exist (tried {tried}); correct or remove its entry")
        found.append(existing[0])
    return found


def _those(names: Collection[str]) -> str:
    if len(names) > NAMED:
        return f"; there are {len(names)}, and ansible-playbook arcpro.b70.show_models lists them"
    return f"; there are {', '.join(names)}"


def _chosen(everything: dict[str, dict[str, Any]], names: list[str], kind: str) -> dict[str, dict[str, Any]]:
    missing = [
        f'there is no {kind} "{name}"{did_you_mean(name, everything, 3) or _those(everything)}'
        for name in names
        if name not in everything
    ]
    if missing:
        raise AnsibleLookupError("\n".join(missing))
    return {name: everything[name] for name in names} if names else everything
