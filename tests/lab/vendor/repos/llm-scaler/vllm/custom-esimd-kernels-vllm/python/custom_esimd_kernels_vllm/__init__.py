# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fixture of the lab: one operator for the processor in the place of the INT4 kernels."""

from __future__ import annotations

import torch  # noqa: F401
