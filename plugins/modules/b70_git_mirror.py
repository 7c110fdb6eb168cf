#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: b70_git_mirror
short_description: Mirror a repository at a pinned commit for a web server
version_added: 0.2.0
description:
  - Fetches one commit with its history and, on request, the repositories of its submodules at their pinned commits.
  - A web server can serve the result as plain files. Each commit has its own branch.
  - With O(files), the result is instead one pack per file, with the trees that lead to it.
extends_documentation_fragment:
  - arcpro.b70.attributes
attributes:
  platform:
    platforms: linux
options:
  dest:
    description: The directory of all repositories. This one is placed at O(name) below it, and is also found with
      C(.git) appended.
    type: path
    required: true
  name:
    description: C(OWNER/NAME).
    type: str
    required: true
  url:
    description: The URL of the repository.
    type: str
    required: true
  commit:
    description: The full commit hash.
    type: str
    required: true
  submodules:
    description: Whether to fetch the repositories of its submodules too.
    type: bool
    default: false
  files:
    description: Fetch only these files of the commit, such as a stack's patches.
    type: list
    elements: str
    default: []
  mirrors:
    description: A mapping of URL prefixes to their replacements.
    type: dict
    default: {}
  timeout:
    description: Time limit of each step, in seconds.
    type: int
    default: 3600
"""

EXAMPLES = r"""
- name: Bring the kernels and what they have as submodules
  arcpro.b70.b70_git_mirror:
    dest: /srv/b70-mirror/git
    name: vllm-project/vllm-xpu-kernels
    url: https://github.com/vllm-project/vllm-xpu-kernels
    commit: 28e1f5e74c15744b69cf3b760f6160ceabd15de0
    submodules: true
"""

RETURN = r"""
brought:
  description: Names and commits of the repositories that were, or in check mode would be, fetched.
  returned: success
  type: list
  elements: str
"""

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._build import mirror
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "commit": {"type": "str", "required": True},
            "submodules": {"type": "bool", "default": False},
            "files": {"type": "list", "elements": "str", "default": []},
            "mirrors": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        if not re.fullmatch(r"[0-9a-f]{40}", given["commit"]) or given["url"].startswith("-"):
            raise BuildError(f"{given['url']} at {given['commit']} is not a repository at a full commit")
        name = mirror.name_of(f"x/{given['name']}")
        wanted = mirror.MirroredRepository(
            name, given["url"], given["commit"], given["submodules"], tuple(given["files"])
        )
        write = not module.check_mode
        brought = mirror.bring(Path(given["dest"]), wanted, given["timeout"], given["mirrors"], write=write)
    except BuildError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['dest']}: {error.strerror}")
    module.exit_json(changed=bool(brought), brought=brought)


if __name__ == "__main__":
    main()
