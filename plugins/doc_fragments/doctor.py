# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that look at a whole host, beside those of a slot: what it should be, where its things are."""

    DOCUMENTATION = r"""
options:
  cards:
    description: How many cards there should be. Left out, what the wanted profiles need.
    type: int
  profiles:
    description: Profiles to judge the host by, beside what is served and what starts at boot.
    type: list
    elements: str
    default: []
  manifests:
    description: Stack manifests by name, from the lookup P(arcpro.b70.catalogue#lookup), to judge versions by.
    type: dict
    default: {}
  default_stack:
    description: The manifest by which a host with cards and no used stack for them is judged.
    type: str
    default: xpu
  limit:
    description: After how many seconds what has not answered is reported as such.
    type: int
    default: 60
  unit_dir:
    description: Where the administrator's systemd units are.
    type: path
    default: /etc/systemd/system
  stack_root:
    description: The directory that holds the stacks.
    type: path
    default: /opt/b70/stacks
  data_dirs:
    description: Directories whose disks need space; a report looks for results below the first.
    type: list
    elements: path
    default: [/mnt/fast-ai, /var/cache/b70, /var/lib/b70]
  cache_dirs:
    description: Directories that the service user must be able to write to.
    type: list
    elements: path
    default: [/mnt/fast-ai/vllm-cache-exp, /mnt/fast-ai/llm-cache/hf]
  build_dir:
    description: Where stacks are built, with their checkouts.
    type: path
    default: /mnt/fast-ai/src
  build_swap:
    description: The swap that a build may make for itself. Left out, none.
    type: dict
    suboptions:
      file:
        description: The file; empty for none.
        type: str
      total_gib:
        description: What memory and swap come to with it.
        type: int
      reserve_gib:
        description: What stays free on its disk.
        type: int
  driver_source:
    description: The source that the cards' driver is to come from.
    type: str
    choices: [omix, github, ppa]
    default: omix
  driver_packages:
    description: The driver's packages and their versions; C(*) at the end stands for what a repository adds.
    type: dict
    default: {}
  guc_accepted:
    description: Versions of the firmware GuC that are taken although they are bad, by how they begin.
    type: list
    elements: str
    default: []
  user:
    description: The service user.
    type: str
    default: b70
"""
