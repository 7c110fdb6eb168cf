# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that look at a whole host, beside those of a slot: what it should be, where its things are."""

    DOCUMENTATION = r"""
options:
  cards:
    description: The expected number of cards. The default is as many as the wanted profiles need.
    type: int
  profiles:
    description: Profiles that the host must be able to serve, besides the served one and the one that starts at boot.
    type: list
    elements: str
    default: []
  manifests:
    description: Stack manifests by name, from the lookup P(arcpro.b70.catalogue#lookup), that versions are compared
      with.
    type: dict
    default: {}
  default_stack:
    description: The manifest that a host with cards is compared with while it uses no stack for them.
    type: str
    default: xpu
  limit:
    description: Seconds that a check may wait for an answer.
    type: int
    default: 60
  unit_dir:
    description: The directory of the administrator's systemd units.
    type: path
    default: /etc/systemd/system
  stack_root:
    description: The directory that holds the stacks.
    type: path
    default: /opt/b70/stacks
  data_dirs:
    description: Directories whose disks must have free space. A report looks for results below the first.
    type: list
    elements: path
    default: [/mnt/fast-ai, /var/cache/b70, /var/lib/b70]
  cache_dirs:
    description: Directories that the service user must be able to write to.
    type: list
    elements: path
    default: [/mnt/fast-ai/vllm-cache-exp, /mnt/fast-ai/llm-cache/hf]
  build_dir:
    description: The directory where stacks are built, with their checkouts.
    type: path
    default: /mnt/fast-ai/src
  build_swap:
    description: The swap that a build may create. The default is none.
    type: dict
    suboptions:
      file:
        description: The swap file. Empty means none.
        type: str
      total_gib:
        description: The total of RAM and swap, in GiB.
        type: int
      reserve_gib:
        description: Space that stays free on the file's disk, in GiB.
        type: int
  driver_source:
    description: The expected source of the cards' driver.
    type: str
    choices: [omix, github, ppa]
    default: omix
  driver_packages:
    description: The driver's packages and their versions. C(*) at the end of a version stands for a suffix that a
      repository adds.
    type: dict
    default: {}
  guc_accepted:
    description: Known bad versions of the GuC firmware that are accepted, given by their prefix.
    type: list
    elements: str
    default: []
  user:
    description: The service user.
    type: str
    default: b70
"""
