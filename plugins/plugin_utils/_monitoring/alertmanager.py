# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Alertmanager: whom an alert reaches and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._templates import render

Receiver = Mapping[str, Any]


def configuration(
    receiver: Receiver,
    tomorrow: Receiver | None = None,
    watchdog: Receiver | None = None,
    template_dirs: Sequence[str] = (),
) -> str:
    """Return the configuration. A receiver is one of Alertmanager without its name: {webhook_configs: [{url: ...}]}.

    :param tomorrow: for warnings, which nobody has to get up for; without one, `receiver` gets them.
    :param watchdog: gets the alert that always fires, once a minute.
    """
    named = {"b70-tomorrow": tomorrow, "b70-watchdog": watchdog}
    receivers = [{"name": "b70", **receiver}, {"name": "nobody"}]
    receivers += [{"name": name, **one} for name, one in named.items() if one]
    data = {"receivers": receivers, "tomorrow": tomorrow, "watchdog": watchdog}
    return render("alertmanager.yml", data, template_dirs)
