# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP on both sides: the listener, client connections, heads, bodies, relays, connections to the engine."""
