# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""alertmanager.yml as data: whom an alert reaches and when, and no message about what another message says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOW, _TOMORROW, _DEAD_MAN, _NOBODY = "b70", "b70-tomorrow", "b70-watchdog", "nobody"
# An alert for other alerts: nobody is told of it, and it silences what concerns a host in maintenance.
_MAINTENANCE = "B70HostInMaintenance"
# Another one, for the hosts of a play. What fails in such work is told; what it causes is not.
_WORK = "B70HostInWork"
_OF_WORK = (
    "B70FrontdoorGone|B70FrontdoorRestarts|B70NodeExporterGone|B70EngineMetricsGone|B70CardMetricsOld|B70WatchdogSilent"
    "|B70SlotNotReady|B70SlotClosed|B70SlotDegraded|B70SwitchTakesLong|B70HostDiffers|B70DrainLasts"
)
# The alert that always fires. Whoever misses it knows that nothing here watches any more.
_ALWAYS = "Watchdog"
# A frontdoor that is gone reports nothing. A slot that failed is closed, and one message says why it failed.
_SAID_BY = {
    "B70FrontdoorGone": (
        "instance",
        "B70SlotNotReady|B70SlotFailed|B70SlotClosed|B70FrontdoorRestarts|B70EngineMetricsGone",
    ),
    "B70SlotFailed": ("slot", "B70SlotClosed|B70CanaryFailed"),
    "B70LoadBalancerGone": ("instance", "B70LoadBalancerMetricsGone"),
    "B70NoHostReady": ("site", "B70FewHostsReady|B70LoadBalancerEmpty"),
}

Receiver = Mapping[str, Any]


def _inhibited(source: str, target: str, *equal: str) -> dict[str, Any]:
    """Return a rule: while one alert fires, nobody is told of the other one of the same site."""
    return {"source_matchers": [source], "target_matchers": [target], "equal": ["site", *equal]}


def _about(label: str) -> list[str]:
    return {"site": [], "instance": ["instance"]}.get(label, ["instance", label])


def configuration(
    receiver: Receiver, tomorrow: Receiver | None = None, watchdog: Receiver | None = None
) -> dict[str, Any]:
    """Return the configuration. A receiver is one of Alertmanager without its name: {webhook_configs: [{url: ...}]}.

    :param tomorrow: for warnings, which nobody has to get up for; without one, `receiver` gets them.
    :param watchdog: gets the alert that always fires, once a minute.
    """
    receivers = [{"name": _NOW, **receiver}, {"name": _NOBODY}]
    receivers += [{"name": _TOMORROW, **tomorrow}] if tomorrow else []
    receivers += [{"name": _DEAD_MAN, **watchdog}] if watchdog else []
    always = {"group_wait": "0s", "group_interval": "1m", "repeat_interval": "1m"}
    later = {"group_wait": "2m", "group_interval": "30m", "repeat_interval": "24h"}
    return {
        "route": {
            "receiver": _NOW,
            # many hosts that fail at once are one message
            "group_by": ["site", "alertname"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [
                {"receiver": _NOBODY, "matchers": [f'alertname=~"{_MAINTENANCE}|{_WORK}"']},
                {"receiver": _DEAD_MAN if watchdog else _NOBODY, "matchers": [f"alertname={_ALWAYS}"], **always},
                {"receiver": _TOMORROW if tomorrow else _NOW, "matchers": ["severity=warning"], **later},
            ],
        },
        "inhibit_rules": [
            *(
                _inhibited(f"alertname={alert}", f'alertname=~"{others}"', *_about(label))
                for alert, (label, others) in _SAID_BY.items()
            ),
            _inhibited("severity=critical", "severity=warning", "alertname", "instance", "slot"),
            _inhibited(f"alertname={_MAINTENANCE}", f"alertname!={_MAINTENANCE}", "instance"),
            _inhibited(f"alertname={_WORK}", f'alertname=~"{_OF_WORK}"', "instance"),
        ],
        "receivers": receivers,
    }
