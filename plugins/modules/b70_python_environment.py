#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_python_environment
short_description: Create a Python environment with uv from verified steps
version_added: 0.2.0
description:
  - Creates a virtual environment and installs the steps into it in order. uv searches its cache first, then the sources
    of the host's configuration, O(find_links) and O(extra_index_urls), and last the step's own URL.
  - A step without hashes that has its own URL comes only from there or from O(find_links). The module returns the
    digests of its wheels, so that they can be pinned.
  - A record of the contents is written last. An environment that was interrupted, whose Python is gone, or that
    contains something else is created again, from the cache where possible. One that lacks only the last steps gets
    these.
  - Only one installation at a time runs with the same cache, also across hosts that share it.
  - The installation survives a lost connection, and its progress is shown. With C(async) this is up to the caller.
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  diff_mode:
    support: full
options:
  path:
    description: Path of the environment. The module fails if the folder contains something else.
    type: path
    required: true
  python:
    description:
      - The Python of the environment. A path, or a series such as V(3.12).
      - A series is the system's C(/usr/bin/python3.12) if that exists, else one that uv installs below O(python_dir)
        and verifies by its known digest.
    type: str
    default: "3.12"
  python_dir:
    description: The directory of the Pythons that uv manages.
    type: path
    default: /opt/b70/python
  python_mirror:
    description: The URL from which uv downloads Pythons, instead of their publisher. It must have the same layout.
    type: str
    default: ""
  steps:
    description: The installation steps, in order. Requirements are installed without their dependencies.
    type: list
    elements: dict
    required: true
    suboptions:
      label:
        description: The name of the step, for messages.
        type: str
        required: true
      requirements:
        description: The text of a requirements file. Only one requirement is allowed with O(steps[].url).
        type: str
        required: true
      hashed:
        description: Whether each requirement has hashes. A wheel with another hash is refused.
        type: bool
        default: true
      index:
        description: URL of the index to use if no nearer source has the requirement. It is never used with O(no_index).
        type: str
        default: ""
      url:
        description: URL of the wheel itself, used in the same way.
        type: str
        default: ""
      compile:
        description: Whether to compile the whole environment to bytecode after this step.
        type: bool
        default: false
      build:
        description:
          - Whether the requirement is a source archive on the host, as C(NAME @ file:///PATH). It is built offline,
            with uv's own build backend or with O(steps[].build_requirements). O(steps[].hashed) may be V(false). PATH
            must then identify the contents of the archive.
        type: bool
        default: false
      build_requirements:
        description:
          - With O(steps[].build), the text of a requirements file with hashes of what only the build needs, such as its
            backend. It does not stay in the environment.
        type: str
        default: ""
      build_variables:
        description: With O(steps[].build), environment variables of the build.
        type: dict
        default: {}
      advice:
        description: With O(steps[].build), what to do if it fails, as the end of the message.
        type: str
        default: ""
  aliases:
    description: Distributions that are registered under additional names, after the last step.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The additional name.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      of:
        description: The distribution that gets the additional name.
        type: str
        required: true
  imports:
    description: Modules that must be importable before the environment counts as complete.
    type: list
    elements: str
    default: []
  more_follows:
    description: Whether a later call adds steps to these. An environment that already has such steps stays unchanged.
    type: bool
    default: false
  uv:
    description: The program uv.
    type: path
    default: /opt/b70/tools/bin/uv
  uv_cache_dir:
    description: uv's cache. The lock for its users is beside it.
    type: path
    default: /var/cache/b70/uv
  find_links:
    description: Folders or pages with wheels.
    type: list
    elements: str
    default: []
  extra_index_urls:
    description: Additional indexes, besides those in uv's configuration on the host.
    type: list
    elements: str
    default: []
  no_index:
    description: Whether to use no index and no URL of a step.
    type: bool
    default: false
  timeout:
    description: Time limit of one step, in seconds. The module waits for the lock as long as all steps may take.
    type: int
    default: 1800
  part:
    description: Internal, between the action plugin and the module.
    type: str
    choices: [make, predict, start, look, acknowledge]
    default: make
  token:
    description: Internal. What the action plugin tells its own calls by.
    type: str
    default: ""
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
  description: The reason for a change. Empty if there is none.
  returned: success
  type: str
came:
  description: The source of each step, in order.
  returned: when the environment is there
  type: list
  elements: dict
  contains:
    label:
      description: The step's label.
      type: str
    place:
      description: The source, as text.
      type: str
wheels:
  description: The digests of requirements without one, by requirement.
  returned: when the environment is there
  type: dict
  sample: {"vllm==0.31.0+xpu": "sha256:HEX"}
progress:
  description: The progress of a running installation.
  returned: to the half on the controller
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.arcpro.b70.plugins.module_utils import _proxy
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import job, spec
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError


def main() -> None:
    module = AnsibleModule(argument_spec=spec.ARGUMENTS, supports_check_mode=True)
    _proxy.enter()
    given, part = module.params, module.params["part"]
    try:
        if part in ("make", "predict"):
            place, wanted = spec.place(given, os.environ), spec.wanted(given)
            result = job.answer(place, wanted, write=part == "make" and not module.check_mode)
        else:
            result = job.Installation(given).answer(part)
    except WorkError as error:
        result = {"failed": True, "msg": str(error)}
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
