# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile out of a Compose file or a configuration of llama-swap."""

from __future__ import annotations

DOCUMENTATION = r"""
name: imported_profile
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Make a profile of a Compose file or a configuration of llama-swap
description:
  - Returns the profile that serves the same model with the same engine, and what became of every value of the file.
  - Options of the engine become C(engine.settings) where the release that the stack pins has them, else
    C(engine.extra_args). What the catalogue refuses is left out, with the catalogue's reason. Where a combination is
    known to be bad on the stack, the remedy of its rule is taken.
  - Variables of a Compose file come from C(.env) beside it, else from the file's own defaults. Other files, such as
    those of C(extends), C(include) and C(env_file), are not read; C(docker compose config) writes one file of all.
  - Secrets are refused with the place where they belong. The lines show no value of a variable.
  - Runs on the controller and needs nothing but what ansible-core brings.
options:
  _terms:
    description: The file. A relative path starts at the current directory.
    type: list
    elements: path
    required: true
  name:
    description: The name of the profile.
    type: str
    required: true
  form:
    description: What the file is.
    type: str
    choices: [compose, llama_swap]
    default: compose
  entry:
    description: The service or the model. By default the only one that starts vLLM or llama-server.
    type: str
    default: ""
  stacks:
    description: The stack manifests by name, as the lookup arcpro.b70.catalogue returns them; the shipped ones without.
    type: dict
    default: {}
seealso:
  - plugin: arcpro.b70.catalogue
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show what would become of a Compose file
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.imported_profile', 'compose.yaml', name='mine').lines }}"
"""

RETURN = r"""
_raw:
  description: One entry per file.
  type: list
  elements: dict
  contains:
    profile:
      description: The profile.
      type: dict
    text:
      description: The profile as YAML.
      type: str
    lines:
      description: One line for each part of the file, with what became of it.
      type: list
      elements: str
"""

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._imported.profile import as_yaml, import_text, lines
from ansible_collections.arcpro.b70.plugins.plugin_utils._imported.reading import Unusable, environment_of


class LookupModule(LookupBase):
    """The lookup as Ansible finds it."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        return [self._imported(Path(os.environ.get("PWD", "."), Path(term).expanduser())) for term in terms]

    def _imported(self, file: Path) -> dict[str, Any]:
        beside = file.parent / ".env"
        try:
            profile, fates = import_text(
                file.read_text(encoding="utf-8"),
                self.get_option("name"),
                plain(self.get_option("stacks")) or load_stacks(),
                form=self.get_option("form"),
                chosen=self.get_option("entry"),
                variables=environment_of(beside.read_text(encoding="utf-8")) if beside.is_file() else {},
            )
        except (OSError, UnicodeDecodeError) as error:
            raise AnsibleLookupError(f"{file} cannot be read: {error}") from error
        except (Unusable, CatalogueError, ValueError) as error:
            raise AnsibleLookupError(f"{file}: {error}") from error
        return {"profile": profile, "text": as_yaml(profile), "lines": lines(fates)}
