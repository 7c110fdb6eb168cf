# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy of requests: what they may ask for, and what is changed in their bodies."""
