# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hypothesis import HealthCheck, settings

# An example that takes long says something about the machine alone.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Every run has the same examples; `--hypothesis-profile=fresh` asks for others.
settings.register_profile("fixed", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("fixed")
