# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role monitoring with the real programs: targets are scraped, alerts fire, and each panel has data."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import monitored
import panels
from machine import free_port
from monitored import HOSTS, Watched, watched
from tools import dashboards

#: what is wrong with whom
FIRING = {
    ("B70EngineWedged", "bad"),
    ("B70VerificationFailed", "bad"),
    ("B70WatchdogSilent", "bad"),
    ("B70CanaryFailed", "bad"),
    ("B70CardHot", "bad"),
    ("B70HostQuarantined", "bad"),
    # nobody can say which of two is right
    ("B70HostDiffers", "good"),
    ("B70HostDiffers", "bad"),
    ("B70CertificateExpires", "good"),
}
#: what may be said of the host that is well
WELL = {"B70HostDiffers", "B70CertificateExpires", "B70EngineErrors"}


def test_the_dashboards_are_what_their_table_says() -> None:
    for one in dashboards.dashboards():
        file = dashboards.ROOT / dashboards.FOLDER / f"{one.name}.json"
        assert file.read_text() == dashboards.document(one), "run make docs"
        shown = json.loads(file.read_text())
        numbers = [panel["id"] for panel in shown["panels"]]
        assert len(set(numbers)) == len(numbers)
        titles = [panel["title"] for panel in shown["panels"] if panel["type"] != "row"]
        assert titles == [panel.title for panel in one.panels]


async def lacking(run: Watched) -> list[str]:
    """The queries that have no number now."""
    queries = panels.asked(monitored.INTERVAL_S)
    return [f"{query.panel}: {query.expr}" for query in queries if not panels.has_number(await run.value(query.expr))]


def test_everything_that_is_shown_has_data_and_what_is_wrong_is_told(monitors: Path, tmp_path: Path) -> None:
    asyncio.run(scenario(tmp_path, monitors))


async def scenario(tmp_path: Path, monitors: Path) -> None:
    async with watched(tmp_path, monitors) as run:
        async with run.busy():

            async def shown() -> bool:
                run.read_cards()
                missing[:] = await lacking(run)
                return not missing

            missing: list[str] = []
            try:
                await run.until(shown, "not every panel has data")
            except AssertionError as error:
                raise AssertionError(f"{missing}") from error

        async def told() -> bool:
            rows = await run.value('ALERTS{alertstate="firing"}')
            firing = {(row["metric"]["alertname"], row["metric"].get("instance", "")) for row in rows}
            # Of the host that is well nothing is said that is not so. A look that a busy machine misses is soon over.
            return firing >= FIRING and {alert for alert, name in firing if name == "good"} <= WELL

        await run.until(told, f"not all of {sorted(FIRING)} fire, or others of the host that is well")

        # the engines of all replicas are one scrape
        async def all_engines() -> bool:
            rows = await run.value('vllm:generation_tokens_total{job="b70-engine"}')
            labels = ("instance", "slot", "replica", "engine")
            return sorted(tuple(row["metric"][name] for name in labels) for row in rows) == [
                ("bad", "main", "0", "0"),
                ("good", "main", "0", "0"),
                ("good", "main", "1", "0"),
            ]

        await run.until(all_engines, "not each engine has its row")

        # another host is looked at without a reload, and is known by its name
        run.write_targets(third={"ansible_host": "127.0.0.3", "frontdoor_port": free_port()})

        async def third() -> bool:
            return bool(await run.value('up{job="b70-frontdoor",instance="third"} == 0'))

        await run.until(third, "the third host is not looked at")

        async def all_nodes() -> bool:
            return {row["metric"]["instance"] for row in await run.value('up{job="b70-node"} == 1')} == {*HOSTS, "lb"}

        await run.until(all_nodes, "not each node_exporter is up")
