# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No example that is made up by hypothesis fails because a machine is slow."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("frontdoor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frontdoor")
