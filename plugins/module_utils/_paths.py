# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default paths on a host: the same as in the role paths, for modules.

What the slot engine needs itself stands in its own package, which travels alone.
"""

from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words import types

CONFIG_DIR = str(types.CONFIG_DIR)
RUN_DIR = str(types.RUN_DIR)
STATE_DIR = str(types.STATE_DIR)
BIN_DIR = "/opt/b70/bin"
CACHE_DIR = "/var/cache/b70"
DATA_DIR = "/mnt/fast-ai"
EVIDENCE_DIR = "/opt/b70/evidence"
HUB_DIR = "/opt/b70/hub"
LIB_DIR = "/opt/b70/lib"
MIRROR_KEYRING = "/etc/apt/keyrings/b70-mirror.gpg"
PYTHON_DIR = "/opt/b70/python"
RECORDS_DIR = f"{STATE_DIR}/records"
STACK_ROOT = "/opt/b70/stacks"
TOOLS_DIR = "/opt/b70/tools"
UV_CACHE_DIR = f"{CACHE_DIR}/uv"
