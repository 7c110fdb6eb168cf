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
  - Installs stacks from their manifests in steps that all hosts of a play run together, see O(step). The role
    arcpro.b70.stack runs them in order.
  - An installed stack is never changed again. An interrupted one is never used. The next run continues with the files
    that were downloaded and compiled.
  - The first host that can build all missing wheels of a stack builds them. The others get its wheels through the
    controller, which keeps them for later hosts.
  - A wheel without a digest is trusted on first use. Its digest is recorded in O(pins_file), and every later host uses
    the same wheel.
  - A step reads the results of earlier steps that the hosts of the batch have registered as C(__stack_planned),
    C(__stack_looked) and C(__stack_shared).
extends_documentation_fragment:
  - arcpro.b70.attributes
  - arcpro.b70.attributes.actiongroup_b70
attributes:
  check_mode:
    details:
      - V(share) reports what would be installed and built, and is changed if there is anything.
options:
  step:
    description:
      - V(plan) inspects the host and compares it with the manifests. It fails for a stack that cannot be installed.
      - V(look) finds the wheels of sources that the host has, and what building the others would take.
      - V(share) decides and reports which host builds what, and copies wheels that other hosts need to the controller.
      - V(install) installs missing stacks, up to the point where one needs a wheel that another host builds.
      - V(take) installs the rest.
      - V(contents) returns what a mirror must contain for O(names), and changes nothing.
    type: str
    required: true
    choices: [plan, look, share, install, take, contents]
  names:
    description:
      - Names of the manifests. An empty list means that no stack is needed.
      - The default is V(xpu) on a host with cards and V(cpu) on one without.
    type: list
    elements: str
  dirs:
    description: Additional folders on the controller with manifests.
    type: list
    elements: str
    default: []
  root:
    description: The directory of the stacks, each in a subdirectory named by its id.
    type: path
    default: /opt/b70/stacks
  python:
    description: The system's Python. If a manifest needs another one, uv installs it.
    type: path
    default: /usr/bin/python3
  python_dir:
    description: The directory of the Pythons that uv installs.
    type: path
    default: /opt/b70/python
  python_mirror:
    description: The URL from which uv downloads Pythons, instead of their publisher.
    type: str
    default: ""
  tools_dir:
    description: The virtual environment with uv.
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
    description: Additional package indexes.
    type: list
    elements: str
    default: []
  no_index:
    description: Whether to use no package index.
    type: bool
    default: false
  git_mirrors:
    description: A mapping of repository URL prefixes to their replacements.
    type: dict
    default: {}
  runtime_packages:
    description: Distribution packages that every host with cards needs.
    type: list
    elements: str
    default: []
  build_packages:
    description: Distribution packages that a host needs to build.
    type: list
    elements: str
    default: []
  image_authfile:
    description: A file on the host with logins for registries. Empty for none.
    type: str
    default: ""
  image_mirror:
    description: Where a mirror has images as files. Empty pulls them from their registries.
    type: str
    default: ""
  image_timeout:
    description: Time limit of a pull, in seconds.
    type: int
    default: 7200
  user:
    description: The user that runs the stacks and the builds.
    type: str
    default: b70
  group:
    description: The group of that user.
    type: str
    default: b70
  work_dir:
    description: The directory where sources are built.
    type: path
    default: /mnt/fast-ai/src
  wheel_dir:
    description: The directory of finished wheels on a host.
    type: path
    default: /var/cache/b70/wheels
  ccache_dir:
    description: The directory of ccache's compiled objects.
    type: path
    default: /var/cache/b70/ccache
  wheel_store:
    description: The directory on the controller that keeps finished wheels for other hosts.
    type: path
    default: ~/.cache/b70/wheels
  pins_file:
    description: The file on the controller with the digests of the first use. Empty means none.
    type: str
    default: ""
  oneapi_environment_file:
    description: The file with the compiler's environment. It is read if a manifest names a compiler.
    type: path
    default: /etc/b70-vllm-slot/oneapi.env
  build_memory_gib:
    description: The total of RAM and swap, in GiB, for a build that needs more memory than the host has. V(0) creates
      no swap.
    type: int
    default: 0
  build_swap_file:
    description: The swap file during such a build. Empty creates none.
    type: str
    default: ""
  build_swap_reserve_gib:
    description: Space that must stay free on the swap file's disk, in GiB.
    type: int
    default: 10
  install_timeout:
    description: Time limit of one installation step, in seconds.
    type: int
    default: 1800
  verify_timeout:
    description: Time limit of the verification, in seconds.
    type: int
    default: 300
  source_timeout:
    description: Time limit of each step of a checkout, in seconds.
    type: int
    default: 1800
  build_timeout:
    description: Time limit of a build, in seconds.
    type: int
    default: 43200
  stall_timeout:
    description: A build that uses no processor time, or a pull that moves nothing, for this many seconds is ended.
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
  description: The wanted stacks, each with C(id), C(dir), C(installed), C(reason) and its parts.
  returned: by V(plan)
  type: list
  elements: dict
lacks:
  description: The ids of the missing stacks.
  returned: by V(plan)
  type: list
  elements: str
settled:
  description: Whether the host lacks nothing. Where all hosts are settled, the other steps do nothing.
  returned: by V(plan)
  type: bool
cards:
  description: The number of the host's cards.
  returned: by V(plan)
  type: int
system:
  description: The host's system.
  returned: by V(plan)
  type: dict
looks:
  description: The state of every wheel on the host, by stack and source.
  returned: by V(look)
  type: dict
shares:
  description: For every stack with sources, what this host does for each source, and C(waits), the host that it waits
    for.
  returned: by V(share)
  type: dict
packages_missing:
  description: The distribution packages that are not installed. With V(share), only those that this host needs.
  returned: by V(plan) and V(share)
  type: list
  elements: str
builds:
  description: Whether this host builds.
  returned: by V(share)
  type: bool
swap:
  description: Whether swap is C(wanted) for a build, with its size and file.
  returned: by V(share)
  type: dict
installed:
  description: The ids of the stacks that this run installed.
  returned: by V(install) and V(take)
  type: list
  elements: str
learned:
  description: The digests of requirements without one, by requirement.
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
images:
  description: Images by their digests (C(source)), and the packages of derived ones (C(debs)).
  returned: by V(contents)
  type: list
  elements: dict
"""
