#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_weights
short_description: Install model weights on a host and keep them complete
version_added: 0.2.0
description:
  - Copies model directories from the controller to the host, or makes the host download them. Replaces directories that
    differ, and reports whether others are complete.
  - A model that is already correct is only inspected. All models together take one round trip, and a second one if the
    controller must read a large file first.
  - Files are written to a hidden directory beside the model's and verified there. Then that directory is renamed to the
    model's name. An interrupted copy is resumed, and never has the model's name.
  - C(.b70-weights.json) beside the weights records size, time and SHA-256 of every file. A file of 16 MiB or more is
    not read again while its size and time match the record, unless O(verify=checksum).
  - A model of the hub stands at C(NAME@COMMIT), so another revision is installed beside it, and files that are the same
    are hard links. A directory C(NAME) that somebody filled by hand is used as it is for a profile.
  - A running engine keeps its open files. Files in a directory that a slot serves, boots or goes back to, or that a
    process names, are repaired and added to, but never replaced by other ones.
  - Hosts of one play can bring models of the kinds V(hub) and V(url) together, in steps that all of them run, see
    O(step). One host downloads, and the others take the files from hosts that have them. A step reads the results that
    the hosts of the batch have registered as C(__model_weights_now) and C(__model_weights_shared). The role
    arcpro.b70.model_weights runs the steps in order.
extends_documentation_fragment:
  - arcpro.b70.catalogue
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  diff_mode:
    support: full
options:
  directory:
    description: The directory on the host that holds one directory per model.
    type: path
    required: true
  step:
    description:
      - V(bring) does everything on this host, without other hosts.
      - V(find) does the same but leaves downloads to the next steps. It returns what the host has and lacks.
      - V(share) decides which host downloads and which hosts take from which others. In check mode it says so.
      - V(serve) gives the models that other hosts lack to them, until V(close).
      - V(round) brings the models whose turn it is. In each round as many hosts take a model as have it. If a host gets
        wrong bytes, it names the host that gave them and continues with the others.
      - V(close) ends V(serve).
      - V(remove) removes the directories that no profile, slot or process of the host names and that O(models) does not
        list, and says why. Directories without a record, which somebody filled by hand, stay.
    type: str
    choices: [bring, find, share, serve, round, close, remove]
    default: bring
  peers:
    description: How hosts give models to each other.
    type: dict
    default: {}
    suboptions:
      network:
        description: The network in which hosts serve and take, such as V(10.0.0.0/24). The default is that of the
          default route.
        type: str
        default: ''
      port:
        description: The port at which a host serves.
        type: int
        default: 18090
      rate:
        description: The most bytes per second that a host takes from others, such as V(200M). No limit if empty.
        type: str
        default: ''
  models:
    description:
      - The sources of models, by directory name on the host.
      - A source is a dictionary with one key that names the kind.
      - V(path) is a directory on the controller, V(host_path) one on the host such as a share.
      - V(url) is a directory on a web server with C(.b70-weights.json) or C(SHA256SUMS). C(manifest_sha256) pins that
        file. Without it the directory above must have a C(SHA256SUMS) that names the record and is signed, see
        O(options.keyring).
      - V(hub) is a repository of the hub, C(OWNER/NAME). Its C(revision) is a full commit; without one O(pins_file)
        decides. There may be C(include) and C(exclude) (lists of patterns) and C(sha256) (file to digest), and with a
        mirror C(manifest_sha256) as for V(url).
    type: dict
    default: {}
  lenient:
    description:
      - Models of O(models) whose files stay unchanged if they look complete and have no record of their source.
    type: list
    elements: str
    default: []
  profiles:
    description:
      - Profiles whose models are wanted too, if they name a repository of the hub. A source in O(models) for the same
        directory takes precedence.
    type: list
    elements: str
    default: []
  lenient_profiles:
    description: Whether the models of O(profiles) are O(lenient).
    type: bool
    default: true
  revisions:
    description: Commits of repositories, C(OWNER/NAME) to commit. They override those of profiles.
    type: dict
    default: {}
  client:
    description:
      - The environment of the hub's client, as options of M(arcpro.b70.b70_python_environment). It is created if a
        model comes from the hub and no mirror is set.
    type: dict
  pins_file:
    description:
      - A YAML file on the controller with the revisions of repositories for which a source names none.
      - The first host that downloads from such a repository looks up its current revision, and the module records it in
        this file. Every other host uses the same revision, in the same play and later. A host that has another one gets
        the pinned one beside it.
      - A revision that a host already has is added if the file has none.
      - If this is empty or its directory is not writable, a first download fails.
    type: path
    default: ''
  options:
    description:
      - Settings of downloads. The role C(model_weights) describes the variables of the same names.
    type: dict
    default: {}
    suboptions:
      endpoint:
        description: The hub's URL.
        type: str
        default: https://huggingface.co
      mirror:
        description: A directory on a web server with one directory per model. If set, models of the hub come from
          there.
        type: str
        default: ''
      keyring:
        description: The file with the OpenPGP keys that may sign what a web server holds, of which one is enough.
        type: path
        default: /etc/apt/keyrings/b70-mirror.gpg
      accept_unsigned:
        description: Whether to take what a web server gives although neither a signature nor a digest proves it.
        type: bool
        default: false
      exclude:
        description: Patterns of files that are not downloaded from the hub. A source's own patterns replace them.
        type: list
        elements: str
        default: []
      xet:
        description: Whether to use the hub's Xet transport. It is known to hang and cannot resume a download.
        type: bool
        default: false
      stall_s:
        description: Seconds without data after which a connection is closed.
        type: float
        default: 60
      attempts:
        description: Attempts without data after which the download fails.
        type: int
        default: 5
      workers:
        description: Number of files to download at once.
        type: int
        default: 4
      limit_s:
        description: Time limit of one download, in seconds.
        type: int
        default: 86400
      user:
        description: The user that downloads.
        type: str
        default: root
      hub_python:
        description: Python of the environment with the hub's client.
        type: path
        default: /opt/b70/hub/venv/bin/python
      environment:
        description: Additional environment variables for the download, such as C(https_proxy).
        type: dict
        default: {}
  hub_token:
    description: The hub's token. The download gets it as a systemd credential, never as an argument.
    type: str
    default: ''
  config_dir:
    description: The configuration directory of the slot main, which tells with those of the other slots which models
      are needed on the host.
    type: path
    default: /etc/b70-vllm-slot
  state_dir:
    description: The directory with copies of the last verified profiles.
    type: path
    default: /var/lib/b70
  wanted:
    description:
      - The models that must be complete on the host afterwards, by directory name or absolute path.
      - Models with a source in O(models) are installed. Other models must already be there, otherwise the module fails.
      - The default is every model in O(models).
    type: list
    elements: str
  report:
    description:
      - Additional models to inspect, by directory name or absolute path.
      - They are never changed and never cause a failure.
    type: list
    elements: str
    default: []
  verify:
    description:
      - V(stat) reads files below 16 MiB, and larger files whose size or time differs from the record.
      - V(checksum) reads every file.
    type: str
    choices: [stat, checksum]
    default: stat
  request:
    description: Internal. The request of the action plugin to the module on the host.
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

- name: Remove the weights that nobody needs
  arcpro.b70.b70_weights:
    directory: /mnt/fast-ai/llm-models
    step: remove

- name: Read every byte of the models that are in use
  arcpro.b70.b70_weights:
    directory: /mnt/fast-ai/llm-models
    wanted:
      - gemma4-12b-it-int4-autoround-intel
    verify: checksum
"""

RETURN = r"""
models:
  description: The state of every wanted and reported model by name, in check mode as found.
  returned: always
  type: dict
  contains:
    state:
      description:
        - V(complete), V(missing), V(incomplete) (files are missing or cut off), or V(differs) (from its source or its
          own record).
      type: str
    reason:
      description: The problem or what is unknown, else empty.
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
directories:
  description: The name of the directory in which each model stands, or in check mode would stand.
  returned: unless O(step) is V(share), V(close) or V(remove)
  type: dict
removed:
  description: Names of the directories that were, or in check mode would be, removed, each with the reason.
  returned: for O(step=remove)
  type: dict
kept:
  description: Names of the directories that stay, each with the reason.
  returned: for O(step=remove)
  type: dict
brings:
  description: Directories of the models that were, or in check mode would be, installed.
  returned: always
  type: list
  elements: str
pins:
  description: What was, or in check mode would be, recorded in O(pins_file), one line per repository.
  returned: always
  type: list
  elements: str
  sample:
    - "lab/tiny-a: revision 0123456789abcdef0123456789abcdef01234567 is recorded in /srv/inventory/b70-pins.yml"
left:
  description: The models that are still to be downloaded or taken, with the reason.
  returned: for O(step=find), O(step=serve) and O(step=round)
  type: dict
peers:
  description: What other hosts are told of this one.
  returned: for O(step=find), O(step=serve) and O(step=round)
  type: dict
rounds:
  description: The number of rounds, the same for all hosts, in check mode 0.
  returned: for O(step=share)
  type: int
lacks:
  description: What this host lacks a program for, V(gives) (nginx) and V(takes) (aria2).
  returned: for O(step=share)
  type: list
  elements: str
gives:
  description: The models that it serves before the first round.
  returned: for O(step=share)
  type: list
  elements: str
serves:
  description: Whether it serves at any time.
  returned: for O(step=share)
  type: bool
closes:
  description: Whether there is something for O(step=close) to end.
  returned: for O(step=share)
  type: bool
summary:
  description: The same as readable text, one line per model.
  returned: always
  type: list
  elements: str
  sample:
    - "tiny-a: complete, 5 files, 528.3 kB"
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._weights import service
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from ansible_collections.arcpro.b70.plugins.module_utils._weights.sources import OPTIONS, PEERS, STEPS
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "step": {"type": "str", "choices": list(STEPS), "default": "bring"},
            "peers": {"type": "dict", "default": {}, "options": PEERS},
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
            "weights": {"type": "dict", "default": {}},
            "client": {"type": "dict"},
            "options": {"type": "dict", "default": {}, "options": OPTIONS},
            "pins_file": {"type": "path", "default": ""},
            "hub_token": {"type": "str", "default": "", "no_log": True},
            "config_dir": {"type": "path", "default": _paths.CONFIG_DIR},
            "state_dir": {"type": "path", "default": _paths.STATE_DIR},
        },
        supports_check_mode=True,
    )
    # Engines, nginx and the user of the download read what is written here.
    os.umask(0o022)
    try:
        result = service.answer(
            module.params["directory"],
            module.params["request"],
            write=not module.check_mode,
            token=module.params["hub_token"],
        )
    except (WeightsError, WorkError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['directory']}: {os.strerror(error.errno or 0)}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
