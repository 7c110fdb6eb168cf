# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fixture of the lab: three operators, compiled against the torch that is installed, for the processor."""

from __future__ import annotations

from pathlib import Path

import torch

torch.ops.load_library(next(Path(__file__).parent.glob("_C*.so")))
