#!/usr/bin/python
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# All of it runs on the controller: plugins/action/b70_stacks.py.

from __future__ import annotations

DOCUMENTATION = r"""
module: b70_stacks
short_description: Install stacks side by side, built once for all hosts of a play
version_added: 0.2.0
description:
  - Installs stacks from their manifests in steps, which all hosts of a play take together; see O(step). The role
    arcpro.b70.stack calls them in their order.
  - An installed stack is never touched again. One that was interrupted is never used; the next run goes on with what
    was downloaded and compiled.
  - The sources of a stack are built on the first host that can build all that nobody has. The others take its wheels,
    by way of the controller, where they stay for later hosts.
  - Wheels without a digest are taken on trust once; what came is recorded in O(pins_file), and every later host takes
    the same.
  - A step reads what the hosts of the batch have registered from the steps before, as C(__stack_planned),
    C(__stack_looked) and C(__stack_shared).
author:
  - arcpro.b70 contributors (@arcpro-b70)
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    support: full
    details:
      - V(share) says what would be installed and built, and reports a change where there is something.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  step:
    description:
      - V(plan) looks at the host and compares it with the manifests. It refuses what cannot be installed.
      - V(look) asks the host which wheels of sources it has and what building the others would take.
      - V(share) decides who builds what, says it, and has a host give the controller the wheels that others need.
      - V(install) installs what the host lacks, up to where it needs the wheel that another host is building.
      - V(take) installs the rest.
      - V(contents) says what a mirror has to bring for O(names), and changes nothing.
    type: str
    required: true
    choices: [plan, look, share, install, take, contents]
  names:
    description:
      - Manifests by name; an empty list means that nothing is needed.
      - When left out, it is V(xpu) on a host with cards and V(cpu) on one without.
    type: list
    elements: str
  dirs:
    description: Further folders on the controller with manifests.
    type: list
    elements: str
    default: []
  root:
    description: Where stacks stand side by side, each in a directory named by its id.
    type: path
    default: /opt/b70/stacks
  python:
    description: The system's Python. Where a manifest takes another one, uv brings that.
    type: path
    default: /usr/bin/python3
  python_dir:
    description: Where uv keeps the Pythons that it brings.
    type: path
    default: /opt/b70/python
  python_mirror:
    description: Where uv gets them from, in place of their publisher.
    type: str
    default: ""
  tools_dir:
    description: The environment that has uv.
    type: path
    default: /opt/b70/tools
  uv_cache_dir:
    description: uv's cache.
    type: path
    default: /var/cache/b70/uv
  find_links:
    description: Folders or pages with wheels.
    type: list
    elements: str
    default: []
  extra_index_urls:
    description: Further indexes.
    type: list
    elements: str
    default: []
  no_index:
    description: Whether no index is asked.
    type: bool
    default: false
  git_mirrors:
    description: Beginnings of addresses of repositories, and what stands in their place.
    type: dict
    default: {}
  runtime_packages:
    description: Distribution packages that every host with cards needs.
    type: list
    elements: str
    default: []
  build_packages:
    description: Distribution packages that a host needs that builds.
    type: list
    elements: str
    default: []
  user:
    description: The user that must be able to use the stacks, and that builds.
    type: str
    default: b70
  group:
    description: Its group.
    type: str
    default: b70
  work_dir:
    description: Where sources are built.
    type: path
    default: /mnt/fast-ai/src
  wheel_dir:
    description: Where a host keeps finished wheels.
    type: path
    default: /var/cache/b70/wheels
  ccache_dir:
    description: Where compiled objects are found again.
    type: path
    default: /var/cache/b70/ccache
  wheel_store:
    description: Where the controller keeps finished wheels for other hosts.
    type: path
    default: ~/.cache/b70/wheels
  pins_file:
    description: The file on the controller with the digests that were seen first. Empty for none.
    type: str
    default: ""
  oneapi_environment_file:
    description: The compiler's environment, read where a manifest names a compiler.
    type: path
    default: /etc/b70-vllm-slot/oneapi.env
  build_memory_gib:
    description: What RAM and swap are to be together for a build that needs more, in GiB. With V(0) no swap is made.
    type: int
    default: 0
  build_swap_file:
    description: Where swap is made for the time of such a build. Empty for none.
    type: str
    default: ""
  build_swap_reserve_gib:
    description: What must stay free on that disk, in GiB.
    type: int
    default: 10
  install_timeout:
    description: Limit for one installation step, in seconds.
    type: int
    default: 1800
  verify_timeout:
    description: Limit for the verification, in seconds.
    type: int
    default: 300
  source_timeout:
    description: Limit for each step of a checkout, in seconds.
    type: int
    default: 1800
  build_timeout:
    description: Limit for a build, in seconds.
    type: int
    default: 43200
  stall_timeout:
    description: A build that computes nothing for this many seconds is ended.
    type: int
    default: 900
"""

EXAMPLES = r"""
- name: Read what the stack for cards consists of
  arcpro.b70.b70_stacks:
    step: contents
    names: [xpu]
  register: contents

- name: Show which repositories a mirror needs for it
  ansible.builtin.debug:
    msg: "{{ contents.repositories | map(attribute='name') }}"
"""

RETURN = r"""
plan:
  description: The wanted stacks, each with C(id), C(dir), C(installed), C(reason) and what it is made of.
  returned: by V(plan)
  type: list
  elements: dict
lacks:
  description: The ids of those that are not installed.
  returned: by V(plan)
  type: list
  elements: str
cards:
  description: How many cards the host has.
  returned: by V(plan)
  type: int
system:
  description: The host's system.
  returned: by V(plan)
  type: dict
looks:
  description: What the host has of every wheel, by stack and source.
  returned: by V(look)
  type: dict
shares:
  description: For every stack with sources what this host does for each of them, and C(waits), the host it waits for.
  returned: by V(share)
  type: dict
packages_missing:
  description: The distribution packages that are not installed; by V(share) only those that this host needs.
  returned: by V(plan) and V(share)
  type: list
  elements: str
builds:
  description: Whether this host builds.
  returned: by V(share)
  type: bool
swap:
  description: Whether swap is C(wanted) for a build, and of which size and where.
  returned: by V(share)
  type: dict
installed:
  description: The ids of what was installed now.
  returned: by V(install) and V(take)
  type: list
  elements: str
learned:
  description: The digests of what came without one, by requirement.
  returned: by V(install) and V(take)
  type: dict
stacks:
  description: For every stack its C(python) and the lists of its C(wheels).
  returned: by V(contents)
  type: list
  elements: dict
repositories:
  description: Repositories with the commits of sources and patches.
  returned: by V(contents)
  type: list
  elements: dict
"""
