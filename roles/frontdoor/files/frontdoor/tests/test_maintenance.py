# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in maintenance: load balancers are told to leave it alone, and whoever asks it directly is served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import bench, on_loop

from frontdoor.slot.reports import lease, maintenance

SINCE = "2026-06-07T09:08:44Z"
RECORD = json.dumps({"schema": 1, "since": SINCE, "who": "ann", "reason": "a fan"})


@pytest.mark.parametrize(
    ("record", "since"), [(RECORD, SINCE), ("{torn", "an unknown time"), ("[]", "an unknown time")]
)
def test_a_record_holds_also_if_it_cannot_be_read(tmp_path: Path, record: str, since: str) -> None:
    file = tmp_path / "maintenance.json"
    host = maintenance(str(file))
    assert host.read() == ""
    file.write_text(record)
    assert (host.read(), host.read()) == (since, since)
    file.unlink()
    assert host.read() == ""
    file.mkdir()
    assert host.read() == "an unknown time"
    assert maintenance("").read() == ""


def test_a_lease_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    file = tmp_path / "fleet-lease.json"
    play = lease(str(file))
    assert play.read() == ""
    file.write_text(json.dumps({"run": "1", "owner": "ann", "what": "a rollout", "since": SINCE, "until": SINCE}))
    assert play.read() == SINCE
    file.write_text("{torn")
    assert play.read() == ""


@on_loop
async def test_the_lease_of_a_play_is_told_and_turns_nobody_away(tmp_path: Path) -> None:
    file = tmp_path / "fleet-lease.json"
    async with bench(tmp_path, slot={"lease_file": str(file)}) as run:
        client = await run.client()
        assert b"b70_frontdoor_lease_until_timestamp_seconds 0\n" in (await client.ask("GET", "/metrics")).body
        file.write_text(json.dumps({"until": SINCE}))
        assert (await client.ask("GET", "/ready")).status == 200
        assert (await client.ask("GET", "/status")).json["lease_until"] == SINCE
        assert b"b70_frontdoor_lease_until_timestamp_seconds 17808233" in (await client.ask("GET", "/metrics")).body


@on_loop
async def test_only_load_balancers_are_turned_away(tmp_path: Path) -> None:
    file = tmp_path / "maintenance.json"
    async with bench(tmp_path, slot={"maintenance_file": str(file)}) as run:
        client = await run.client()
        assert (await client.ask("GET", "/ready")).status == 200
        assert b"b70_frontdoor_maintenance_timestamp_seconds 0\n" in (await client.ask("GET", "/metrics")).body
        file.write_text(RECORD)
        ready = await client.ask("GET", "/ready")
        assert (ready.status, ready.json["reason"]) == (503, f"the host is in maintenance since {SINCE}")
        status = (await client.ask("GET", "/status")).json
        assert (status["ok"], status["maintenance"]) == (True, SINCE)
        assert b"b70_frontdoor_maintenance_timestamp_seconds 17808233" in (await client.ask("GET", "/metrics")).body
