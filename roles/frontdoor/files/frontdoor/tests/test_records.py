# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the records of the host say of the served profile, in /status and in the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from admin_kit import KEY, MODELS, admin
from kit import bench, on_loop

from frontdoor.slot.reports import Records, machine, newest, rows_of, status_here

PROFILE = {"name": "a", "fingerprint": "sha256:1", "examined": "sha256:2", "status": "candidate"}


def row(kind: str, day: int, verdict: str = "passed", **more: object) -> dict[str, object]:
    moment = f"2026-11-{day:02}T04:16:00Z"
    told = {
        "id": f"202611{day:02}T041600Z-{kind}-a-5e1f0c",
        "number": day,
        "kind": kind,
        "began_at": moment,
        "ended_at": moment,
        "slot": "main",
        "profile": "a",
        "fingerprint": "sha256:1",
        **({"examined": "sha256:2"} if kind == "promotion" else {}),
        "verdict": verdict,
        "summary": f"{kind} of day {day}",
    }
    return {**told, **more}


def index(*rows: object) -> bytes:
    return json.dumps({"schema": 1, "machine": machine(), "records": rows}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"[]", b"7", b'{"schema": 2, "records": []}', b'{"schema": 1}'),
        index(row("soak", 1)).replace(b'"schema": 1', b'"schema": 2'),
        index(row("soak", 1, number="1")),
        # of the machine whose disk this one has a copy of
        index(row("soak", 1)).replace(machine().encode(), b"0" * 32),
    ],
)
def test_an_index_that_cannot_be_read_says_nothing(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "index.json"
    file.write_bytes(index(row("soak", 1)))
    records = Records(str(file))
    assert records.of("main", PROFILE)
    file.write_bytes(raw)
    assert records.of("main", PROFILE) == []


def test_rows_that_cannot_be_read_are_left_out() -> None:
    found = rows_of(index(7, {}, row("soak", 1, fingerprint=None), row("soak", 2), row("soak", 3)))
    assert [one["ended_at"][:10] for one in found] == ["2026-11-03", "2026-11-02"]


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([], "candidate"),
        (["passed"], "production"),
        (["failed", "passed"], "production"),
        (["passed", "failed"], "candidate"),
        (["passed", "unfinished"], "production"),
    ],
)
def test_the_last_gate_with_a_verdict_decides_the_status(verdicts: list[str], status: str) -> None:
    rows = rows_of(
        index(row("soak", 9, "failed"), *(row("promotion", day, one) for day, one in enumerate(verdicts, 1)))
    )
    assert status_here("candidate", rows) == status
    assert status_here("rejected", rows) == "rejected"
    taken_back = status == "candidate" and bool(verdicts)
    assert status_here("production", rows) == ("candidate" if taken_back else "production")


def test_the_newest_of_each_kind_is_shown_and_why_it_failed_to_nobody() -> None:
    rows = rows_of(
        index(row("soak", 1), row("soak", 2, "failed", summary="(EngineCore pid=7) secret"), row("benchmark", 1))
    )
    moments = {"benchmark": "2026-11-01T04:16:00Z", "soak": "2026-11-02T04:16:00Z"}
    assert newest(rows) == [
        {"kind": "benchmark", "verdict": "passed", "ended_at": moments["benchmark"], "summary": "benchmark of day 1"},
        {"kind": "soak", "verdict": "failed", "ended_at": moments["soak"], "summary": ""},
    ]


def test_records_of_the_very_profile_count_and_are_read_when_they_changed(tmp_path: Path) -> None:
    file = tmp_path / "index.json"
    records = Records(str(file))
    assert records.of("main", PROFILE) == []
    others = [row("soak", 1, **{name: "other"}) for name in ("slot", "profile", "fingerprint")]
    file.write_bytes(index(row("soak", 2), *others))
    assert [one["kind"] for one in records.of("main", PROFILE)] == ["soak"]
    assert records.of("main", {}) == []
    file.write_bytes(index(row("soak", 2), row("benchmark", 3)))
    assert [one["kind"] for one in records.of("main", PROFILE)] == ["benchmark", "soak"]
    file.unlink()
    assert records.of("main", PROFILE) == []


def test_a_promotion_holds_only_for_what_it_examined(tmp_path: Path) -> None:
    """Other permits leave the fingerprint as it is."""
    file = tmp_path / "index.json"
    file.write_bytes(index(row("soak", 1), row("promotion", 1)))
    records = Records(str(file))
    assert [one["id"][:8] for one in records.of("main", PROFILE)] == ["20261101", "20261101"]
    assert [one["kind"] for one in records.of("main", {**PROFILE, "examined": "sha256:3"})] == ["soak"]


@on_loop
async def test_status_and_metrics_show_them(tmp_path: Path) -> None:
    file = tmp_path / "index.json"
    async with bench(tmp_path, slot={"records_file": str(file)}) as run:
        client = await run.client()
        before = (await client.ask("GET", "/status")).json
        assert before["records"] == []
        served = before["model_slot"]
        mine = {"profile": served["name"], "fingerprint": served["fingerprint"], "slot": served["slot"]}
        mine |= {"examined": "sha256:01"}
        file.write_bytes(index(row("promotion", 1, **mine)))
        status = (await client.ask("GET", "/status")).json
        assert [one["kind"] for one in status["records"]] == ["promotion"]
        assert (served["status"], status["model_slot"]["status"]) != ("production", "candidate")
        assert status["model_slot"]["status"] == "production"
        assert b'status="production"' in (await client.ask("GET", "/metrics")).body


@on_loop
async def test_the_administration_shows_the_same_status(tmp_path: Path) -> None:
    file = tmp_path / "index.json"
    marks = {"fingerprint": "sha256:0", "examined": "sha256:1"}
    gates = [row("promotion", 1, profile=name, **marks) for name in ("tiny-b", "tiny-bad")]
    file.write_bytes(index(*gates))
    async with admin(tmp_path, slot={"records_file": str(file)}) as (_, client, _helper):
        rows = (await client.ask("GET", MODELS, None, KEY)).json["models"]
        assert [one["definition"]["status"] for one in rows] == ["candidate", "production", "rejected"]
        assert [one["configured_enabled"] for one in rows] == [True, True, False]
