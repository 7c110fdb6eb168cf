#!/usr/bin/python3 -I
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the installed watchdog, which looks every second here and takes a patience of less than three minutes."""

from __future__ import annotations

import runpy
import sys

sys.path.insert(0, "/opt/b70/lib")

from b70slot import profile, watch  # type: ignore[import-not-found]

watch.LOOK_S = 1.0
profile.MIN_PATIENCE_S = 1.0
sys.argv = ["/opt/b70/bin/b70ctl", "watch"]
runpy.run_path(sys.argv[0], run_name="__main__")
