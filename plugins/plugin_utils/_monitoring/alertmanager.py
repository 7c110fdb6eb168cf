# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""alertmanager.yml as data: one receiver, and no message about what another message already says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RECEIVER = "b70"
# An alert for other alerts: nobody is told of it, and it silences what concerns a host in maintenance.
_MAINTENANCE, _NOBODY = "B70HostInMaintenance", "nobody"
# A frontdoor that is gone reports nothing. A slot that failed is closed, and one message says why it failed.
_SAID_BY = {
    "B70FrontdoorGone": ("instance", "B70SlotNotReady|B70SlotFailed|B70SlotClosed|B70FrontdoorRestarts"),
    "B70SlotFailed": ("slot", "B70SlotClosed|B70CanaryFailed"),
}


def configuration(receiver: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration.

    `receiver` is a receiver of Alertmanager without its name, such as {webhook_configs: [{url: ...}]}.
    """
    inhibited = [
        {
            "source_matchers": [f"alertname={alert}"],
            "target_matchers": [f'alertname=~"{others}"'],
            "equal": ["instance"] if label == "instance" else ["instance", label],
        }
        for alert, (label, others) in _SAID_BY.items()
    ]
    inhibited.append(
        {
            "source_matchers": ["severity=critical"],
            "target_matchers": ["severity=warning"],
            "equal": ["alertname", "instance", "slot"],
        }
    )
    inhibited.append(
        {
            "source_matchers": [f"alertname={_MAINTENANCE}"],
            "target_matchers": [f"alertname!={_MAINTENANCE}"],
            "equal": ["instance"],
        }
    )
    return {
        "route": {
            "receiver": _RECEIVER,
            "group_by": ["alertname", "instance"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [{"receiver": _NOBODY, "matchers": [f"alertname={_MAINTENANCE}"]}],
        },
        "inhibit_rules": inhibited,
        "receivers": [{"name": _RECEIVER, **receiver}, {"name": _NOBODY}],
    }
