#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_weights
short_description: Install model weights on a host and keep them complete
version_added: 0.1.0
description:
  - Copies model directories from the controller to the host, or has the host fetch them, replaces those that differ,
    and says for others whether they are complete.
  - A model that is there and right costs nothing but a look. All models together take one round trip, and a second one
    when a large file has to be read on the controller first.
  - Files arrive in a hidden directory beside the model's and are verified there; then that directory takes the model's
    name. A copy that was cut off is taken up where it ended, and never bears the model's name.
  - Next to the weights lies C(.b70-weights.json) with size, time and SHA-256 of every file. As long as size and time of
    a file of 16 MiB or more are the recorded ones it is not read again, unless O(verify=checksum).
  - A running engine keeps the files that it has opened.
author:
  - arcpro.b70 contributors (@arcpro-b70)
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  directory:
    description: The directory on the host that holds one directory per model.
    type: path
    required: true
  models:
    description:
      - Where models come from - the name of the directory on the host, and its source.
      - A source is a dictionary with one key that names its kind.
      - V(path) is a directory on the controller, V(host_path) one on the host such as a share.
      - V(url) is a directory on a web server with C(.b70-weights.json) or C(SHA256SUMS), a file that C(manifest_sha256)
        may pin.
      - V(hub) is a repository of the hub, C(OWNER/NAME). Its C(revision) is a full commit; without one O(pins_file)
        decides. There may be C(include) and C(exclude) (lists of patterns) and C(sha256) (file to digest).
    type: dict
    default: {}
  lenient:
    description:
      - Models of O(models) whose files are left as they are when they look whole and nobody recorded where they are
        from.
    type: list
    elements: str
    default: []
  profiles:
    description:
      - Profiles whose models are wanted too, as far as they name a repository of the hub. A source of O(models) for the
        same directory wins.
    type: list
    elements: str
    default: []
  lenient_profiles:
    description: Whether the models of O(profiles) are O(lenient).
    type: bool
    default: true
  revisions:
    description: Commits of repositories, C(OWNER/NAME) to commit. They win over those that profiles name.
    type: dict
    default: {}
  profile_dirs:
    description: Further folders with profiles on the controller, as of the lookup P(arcpro.b70.catalogue#lookup).
    type: list
    elements: str
    default: []
  stack_dirs:
    description: Further folders with stack manifests on the controller.
    type: list
    elements: str
    default: []
  inline_profiles:
    description: Profiles as data, C(name) to profile.
    type: dict
    default: {}
  client:
    description:
      - The environment of the hub's client, as options of M(arcpro.b70.b70_python_environment). It is made where a
        model comes from the hub and no mirror is named.
    type: dict
  pins_file:
    description:
      - A YAML file on the controller with the revisions of repositories for which a source names none.
      - The first host that fetches from such a repository asks which revision it has, and records it there. Every other
        host takes the same, in the same play and later. A host that has another one is a failure that names both.
      - A revision that a host has, and that is not recorded yet, is added.
      - When it is empty or its directory cannot be written, a first download is refused.
    type: path
    default: ''
  options:
    description:
      - How the host fetches, as the role C(model_weights) describes the variables of the same names.
    type: dict
    default: {}
    suboptions:
      endpoint:
        description: The hub's address.
        type: str
        default: https://huggingface.co
      mirror:
        description: A directory on a web server with one directory per model; from there models of the hub come then.
        type: str
        default: ''
      exclude:
        description: Patterns of files that are not fetched from the hub, where a source names none.
        type: list
        elements: str
        default: []
      xet:
        description: Whether the hub's Xet transport is used. It is known to hang; nothing is resumed with it.
        type: bool
        default: false
      stall_s:
        description: Seconds without a byte after which a connection is given up.
        type: float
        default: 60
      attempts:
        description: Attempts without a byte after which the download is given up.
        type: int
        default: 5
      workers:
        description: Files at once.
        type: int
        default: 4
      limit_s:
        description: Seconds that one download may take.
        type: int
        default: 86400
      user:
        description: The user that fetches.
        type: str
        default: root
      hub_python:
        description: Python of the environment with the hub's client.
        type: path
        default: /opt/b70/hub/venv/bin/python
      environment:
        description: Further variables for the download, such as C(https_proxy).
        type: dict
        default: {}
  hub_token:
    description: The hub's token. It reaches the download as a credential of systemd, never as an argument.
    type: str
    default: ''
  wanted:
    description:
      - The models that must be complete on the host afterwards, by name of directory, or an absolute path.
      - Those in O(models) are brought. One that is not must already be there, otherwise the module fails.
      - Left out, it is every model in O(models).
    type: list
    elements: str
  report:
    description:
      - Further models to look at, by name of directory or absolute path.
      - They are never changed and never a reason to fail.
    type: list
    elements: str
    default: []
  verify:
    description:
      - V(stat) reads files below 16 MiB, and larger ones whose size or time is not the recorded one.
      - V(checksum) reads every file.
    type: str
    choices: [stat, checksum]
    default: stat
  request:
    description: What the half on the controller asks of the half on the host. Not for use in playbooks.
    type: dict
"""

EXAMPLES = r"""
- name: Bring a model and look at another
  arcpro.b70.b70_weights:
    directory: /mnt/fast-ai/llm-models
    models:
      tiny-a:
        path: "{{ playbook_dir }}/models/tiny-a"
    report:
      - gemma4-12b-it-int4-autoround-intel

- name: Read every byte of the models that are in use
  arcpro.b70.b70_weights:
    directory: /mnt/fast-ai/llm-models
    wanted:
      - gemma4-12b-it-int4-autoround-intel
    verify: checksum
"""

RETURN = r"""
models:
  description: What every wanted and reported model is now, or in check mode what it was found to be, by name.
  returned: always
  type: dict
  contains:
    state:
      description:
        - V(complete), V(missing), V(incomplete) (parts are missing), or V(differs) (from its source or its own record).
      type: str
    reason:
      description: What is wrong or not known, else empty.
      type: str
    files:
      description: Number of files.
      type: int
    size:
      description: Bytes of all files.
      type: int
    adopted:
      description: Whether its files were right but not recorded yet, in check mode. Otherwise V(false).
      type: bool
    brought:
      description: Number of files that were copied, 0 in check mode.
      type: int
brings:
  description: Directories of the models that were brought, or would be in check mode.
  returned: always
  type: list
  elements: str
pins:
  description: What was recorded in O(pins_file), or would be in check mode, one line for each repository.
  returned: always
  type: list
  elements: str
  sample:
    - "lab/tiny-a: revision 0123456789abcdef0123456789abcdef01234567 is recorded in /srv/inventory/b70-pins.yml"
summary:
  description: The same for people, one line for each model.
  returned: always
  type: list
  elements: str
  sample:
    - "tiny-a: complete, 5 files, 528.3 kB"
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._weights import service
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from ansible_collections.arcpro.b70.plugins.module_utils._weights.sources import OPTIONS


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "models": {"type": "dict", "default": {}},
            "wanted": {"type": "list", "elements": "str"},
            "report": {"type": "list", "elements": "str", "default": []},
            "verify": {"type": "str", "choices": ["stat", "checksum"], "default": "stat"},
            "request": {"type": "dict"},
            "lenient": {"type": "list", "elements": "str", "default": []},
            "profiles": {"type": "list", "elements": "str", "default": []},
            "lenient_profiles": {"type": "bool", "default": True},
            "revisions": {"type": "dict", "default": {}},
            "profile_dirs": {"type": "list", "elements": "str", "default": []},
            "stack_dirs": {"type": "list", "elements": "str", "default": []},
            "inline_profiles": {"type": "dict", "default": {}},
            "client": {"type": "dict"},
            "options": {"type": "dict", "default": {}, "options": OPTIONS},
            "pins_file": {"type": "path", "default": ""},
            "hub_token": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    try:
        result = service.answer(
            module.params["directory"],
            module.params["request"],
            write=not module.check_mode,
            token=module.params["hub_token"],
        )
    except WeightsError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['directory']}: {os.strerror(error.errno or 0)}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
