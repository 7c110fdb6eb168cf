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
    description: Directories whose disks need space; a report looks for sources and results below the first.
    type: list
    elements: path
    default: [/mnt/fast-ai, /var/cache/b70, /var/lib/b70]
  cache_dirs:
    description: Directories that the service user must be able to write to.
    type: list
    elements: path
    default: [/mnt/fast-ai/vllm-cache-exp, /mnt/fast-ai/llm-cache/hf]
  user:
    description: The service user.
    type: str
    default: b70
"""
