# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission: who is let in, when, and how much each may take. Pure code."""
