# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_soak: has the host soak, and shows how far it is."""

from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.plugin_utils._work import RecordedWork


class ActionModule(RecordedWork):
    """A soak belongs to the host; a second run joins it."""

    MODULE = "arcpro.b70.b70_soak"
    WORK = "the soak"
