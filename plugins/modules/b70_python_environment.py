#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_python_environment
short_description: Make a Python environment with uv, step by step and by digest
version_added: 0.2.0
description:
  - Makes a virtual environment and installs steps into it, in their order. A step is looked for in uv's cache first,
    then where the host's configuration, O(find_links) and O(extra_index_urls) say, and only then at its own address.
  - A step without hashes that has an own address is looked for there and in O(find_links), at no other index. What came
    is returned with its digest, so that it can be pinned.
  - A record of what is in it is written last. An environment that was interrupted, whose Python is gone, or that holds
    something else is made anew, from the cache as far as that goes; one that lacks only the last steps gets these.
  - One installation runs at a time for all who share the cache, on several hosts too if they share it.
  - The work goes on when the connection is lost, and its progress is shown. With C(async) it is left to the caller.
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
  path:
    description: The environment. A folder that holds something else is refused.
    type: path
    required: true
  python:
    description:
      - The Python to make it from. A path, or a series such as V(3.12).
      - A series is the system's C(/usr/bin/python3.12) where that exists, else one that uv installs below O(python_dir)
        and checks by the digest that it knows.
    type: str
    default: "3.12"
  python_dir:
    description: Where uv keeps the Pythons that it manages.
    type: path
    default: /opt/b70/python
  python_mirror:
    description: Where uv gets them from, in place of their publisher; laid out as there.
    type: str
    default: ""
  steps:
    description: What is installed, in this order, each requirement without its dependencies.
    type: list
    elements: dict
    required: true
    suboptions:
      label:
        description: What it is, for messages.
        type: str
        required: true
      requirements:
        description: The text of a requirements file. One requirement only where O(steps[].url) is given.
        type: str
        required: true
      hashed:
        description: Whether each requirement has its hashes. A wheel with another one is refused.
        type: bool
        default: true
      index:
        description: Address of the index that has it, asked when nothing nearer has it and never with O(no_index).
        type: str
        default: ""
      url:
        description: Address of the wheel itself, asked in the same way.
        type: str
        default: ""
      compile:
        description: Whether all that is in the environment after this step is compiled to bytecode.
        type: bool
        default: false
      build:
        description:
          - Whether the requirement is a source archive on the host, as C(NAME @ file:///PATH). It is built offline, by
            what uv brings. O(steps[].hashed) may be V(false); then PATH must say what is in the archive.
        type: bool
        default: false
  aliases:
    description: Distributions that are registered under further names, after the last step.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The further name.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      of:
        description: What it is another name of.
        type: str
        required: true
  imports:
    description: What must be importable in it before it counts as finished.
    type: list
    elements: str
    default: []
  more_follows:
    description: Whether a later call adds steps to these. An environment that has such steps already is left as it is.
    type: bool
    default: false
  uv:
    description: The program uv.
    type: path
    default: /opt/b70/tools/bin/uv
  uv_cache_dir:
    description: uv's cache. The lock of all who share it stands beside it.
    type: path
    default: /var/cache/b70/uv
  find_links:
    description: Folders or pages with wheels.
    type: list
    elements: str
    default: []
  extra_index_urls:
    description: Further indexes, beside those that uv is configured for on the host.
    type: list
    elements: str
    default: []
  no_index:
    description: Whether no index and no own address of a step is asked.
    type: bool
    default: false
  timeout:
    description: Limit for one step, in seconds. Others who hold the lock are waited for as long as all steps may take.
    type: int
    default: 1800
  part:
    description: Used between the two halves of this module; leave it alone.
    type: str
    choices: [make, look, progress]
    default: make
"""

EXAMPLES = r"""
- name: Make the environment of a tool, exactly as locked
  arcpro.b70.b70_python_environment:
    path: /opt/b70/tool/venv
    steps:
      - label: all that the lock names
        requirements: "{{ lookup('ansible.builtin.file', 'requirements.txt') }}"
        compile: true

- name: Install a vendor's wheel before the lock
  arcpro.b70.b70_python_environment:
    path: /opt/b70/stacks/mine-0123456789/venv
    python: "3.12"
    steps:
      - label: torch
        requirements: torch==2.14.0+xpu --hash=sha256:05f8f130e25c24d4f7903266af165145e9234fae8ce73ec2613adfc015cba34a
        index: https://download.pytorch.org/whl/xpu
      - label: all that the lock names, and compile bytecode
        requirements: "{{ lookup('ansible.builtin.file', 'mine.lock') }}"
        compile: true
    aliases:
      - {name: pytorch-triton-xpu, version: 3.8.0, of: triton-xpu}
"""

RETURN = r"""
python:
  description: The Python that the environment was made from.
  returned: when the environment is there
  type: str
  sample: /usr/bin/python3.12
reason:
  description: Why something was, or would be, done; empty where nothing is.
  returned: success
  type: str
came:
  description: Where each step came from, in order.
  returned: when the environment is there
  type: list
  elements: dict
  contains:
    label:
      description: The step's label.
      type: str
    place:
      description: The place, in words.
      type: str
wheels:
  description: The digests of what had none, by requirement.
  returned: when the environment is there
  type: dict
  sample: {"vllm==0.31.0+xpu": "sha256:HEX"}
progress:
  description: How far an installation is that runs now.
  returned: to the half on the controller
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import host, plan, spec


def main() -> None:
    module = AnsibleModule(argument_spec=spec.ARGUMENTS, supports_check_mode=True)
    wanted, place = spec.wanted(module.params), spec.place(module.params, os.environ)
    if module.params["part"] == "progress":
        module.exit_json(changed=False, progress=host.progress(place))
    try:
        work, found = host.look(place, wanted)
        before = found
        if work.kind != "nothing" and module.params["part"] == "make" and not module.check_mode:
            work, found = host.make(place, wanted)
    except host.EnvironmentProblem as problem:
        module.fail_json(msg=str(problem))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or place.path}: {error.strerror}")
    changed = work.kind != "nothing"
    after = plan.record(wanted, "", {}, [])
    diff = {
        "before_header": str(place.path),
        "after_header": str(place.path),
        "before": plan.listing(before),
        "after": plan.listing(after if changed else before),
    }
    made = {} if found is None else {"python": found["interpreter"], "came": found["came"], "wheels": found["wheels"]}
    module.exit_json(changed=changed, reason=work.why, diff=diff, **made)


if __name__ == "__main__":
    main()
