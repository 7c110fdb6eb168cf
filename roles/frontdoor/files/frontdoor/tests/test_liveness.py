# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the liveness watchdog tells is shown in the status and as metrics; whatever is in its file, nothing breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kit import Bench, bench, on_loop

SCHEMA = Path(__file__).parents[4] / "slot/files/schema/liveness.schema.json"
AT = "2026-06-07T09:00:00Z"
UNIT = "b70-slot-main-tiny-a.service"
NEXT = {"wanted": "tiny-a is the committed profile", "do": "rest", "why": "it failed; tried twice", "at": AT}
NEXT |= {"looked": 1.5, "book": {"about": "tiny-a", "tries": {}}}


def engine(verdict: str, index: int | None = None) -> dict[str, Any]:
    row = {"index": index, "unit": UNIT, "invocation_id": "0" * 32, "verdict": verdict, "since": AT}
    return {**row, "flat_s": 190, "reason": ""}


def counts(**done: int) -> dict[str, int]:
    return dict.fromkeys(("report", "close", "restart", "rebind", "reboot", "quarantine"), 0) | done


def write(run: Bench, **changes: Any) -> None:
    """The file as the watchdog writes it."""
    told = {"schema": 1, "at": AT, "slot": "main", "profile": "tiny-a", "policy": "report"}
    told |= {"engines": [engine("wedged")], "verification": None, "action": None}
    told |= {"counts": counts(), "cards": [], "next": NEXT, **changes}
    jsonschema.validate(told, json.loads(SCHEMA.read_text()))
    Path(run.state_path).with_name("liveness.json").write_text(json.dumps(told))


async def shown(run: Bench) -> tuple[Any, str]:
    client = await run.client()
    status = (await client.ask("GET", "/status")).json
    return status["slots"]["main"]["liveness"], (await client.ask("GET", "/metrics")).body.decode()


@on_loop
async def test_without_a_watchdog_nothing_is_told(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        told, metrics = await shown(run)
        assert told is None
        assert "b70_frontdoor_engine_wedged{" not in metrics


@on_loop
async def test_who_sleeps_is_shown_with_its_memory(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        one = {"unit": UNIT, "profile": "tiny-b", "fingerprint": "sha256:b", "invocation_id": "1" * 32, "since": AT}
        write(run, standby=[{**one, "bytes": 3 * 2**30, "level": 1}, {**one, "bytes": 0, "level": 2}])
        told, metrics = await shown(run)
        row = {"profile": "tiny-b", "since": AT}
        assert told["standby"] == [{**row, "bytes": 3 * 2**30, "level": 1}, {**row, "bytes": 0, "level": 2}]
        for level, kept in (("1", 3 * 2**30), ("2", 0)):
            assert f'b70_frontdoor_standby_bytes{{slot="main",profile="tiny-b",level="{level}"}} {kept}' in metrics


@on_loop
async def test_a_wedged_engine_is_shown(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        action = {"at": AT, "what": "report", "reason": "it is wedged", "outcome": ""}
        write(run, action=action, counts=counts(report=1))
        told, metrics = await shown(run)
        assert [row["verdict"] for row in told["engines"]] == ["wedged"]
        assert (told["action"]["what"], told["policy"]) == ("report", "report")
        assert told["next"] == {name: NEXT[name] for name in ("wanted", "do", "why", "at")}
        assert 'b70_frontdoor_engine_wedged{slot="main",replica="0"} 1' in metrics
        assert 'b70_frontdoor_watchdog_actions_total{slot="main",action="report"} 1' in metrics
        assert 'b70_frontdoor_watchdog_actions_total{slot="main",action="close"} 0' in metrics
        assert 'b70_frontdoor_liveness_timestamp_seconds{slot="main"} 1780822800' in metrics
        write(run, engines=[engine("busy", 2)])
        assert 'b70_frontdoor_engine_wedged{slot="main",replica="2"} 0' in (await shown(run))[1]


@pytest.mark.interpreted
@on_loop
async def test_memory_and_faults_of_the_cards_are_shown(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        known = {"pci": "0000:03:00.0", "used": 1024, "total": 28 * 2**30, "ecc": True, "faults": 3}
        silent = {"pci": "0000:83:00.0", "used": None, "total": None, "ecc": None, "faults": 0}
        write(run, cards=[known, silent])
        _told, metrics = await shown(run)
        rows = [line.removeprefix("b70_frontdoor_card_") for line in metrics.splitlines() if "frontdoor_card_" in line]
        assert [row for row in rows if not row.startswith("#")] == [
            'memory_bytes{slot="main",pci="0000:03:00.0",kind="used"} 1024',
            'memory_bytes{slot="main",pci="0000:03:00.0",kind="total"} 30064771072',
            'ecc{slot="main",pci="0000:03:00.0"} 1',
            'faults_total{slot="main",pci="0000:03:00.0"} 3',
            'faults_total{slot="main",pci="0000:83:00.0"} 0',
        ]
        assert "# TYPE b70_frontdoor_card_faults_total counter" in metrics


@pytest.mark.parametrize(("passed", "samples"), [(True, ["0"]), (False, ["1"]), (None, [])])
@on_loop
async def test_the_last_verification_is_shown(tmp_path: Path, passed: bool | None, samples: list[str]) -> None:
    async with bench(tmp_path) as run:
        write(run, verification={"at": AT, "passed": passed, "reason": ""})
        _told, metrics = await shown(run)
        found = [line for line in metrics.splitlines() if line.startswith("b70_frontdoor_engine_verification_failed{")]
        assert [line.split()[-1] for line in found] == samples


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "engines": [1]}', "\x00"])
@on_loop
async def test_a_torn_file_tells_nothing(tmp_path: Path, text: str) -> None:
    async with bench(tmp_path) as run:
        write(run)
        assert (await shown(run))[0]
        Path(run.state_path).with_name("liveness.json").write_text(text)
        assert (await shown(run))[0] is None


@on_loop
async def test_the_file_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        write(run)
        assert (await shown(run))[0]
        Path(run.state_path).with_name("liveness.json").unlink()
        assert (await shown(run))[0] is None
