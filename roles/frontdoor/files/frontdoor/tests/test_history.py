# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last switches, from the journal that the slot writes."""

from __future__ import annotations

import json
from pathlib import Path

from kit import bench, on_loop

from frontdoor.slot.reports import KEPT, history, remember


def lines(*entries: object) -> bytes:
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


def begin(name: str, **more: object) -> dict[str, object]:
    return {
        "event": "begin",
        "id": name,
        "at": "2026-06-07T09:08:44Z",
        "kind": "switch",
        "from": "a",
        "to": "b",
        **more,
    }


def test_a_switch_and_its_end() -> None:
    failures = [{"phase": "canary", "message": "canary case sum failed", "log_tail": ["secret"]}, {"message": "x"}]
    raw = lines(
        begin("1"),
        {"event": "phase", "id": "1", "phase": "close"},
        {
            "event": "end",
            "id": "1",
            "outcome": "rolled_back",
            "profile": "a",
            "seconds": 3.5,
            "failures": failures,
            "reason": "phase canary: a canary answer was wrong or missing",
        },
        begin("2", **{"from": None}),
    )
    last, first = remember(raw)
    assert first == {
        "id": "1",
        "at": "2026-06-07T09:08:44Z",
        "kind": "switch",
        "from": "a",
        "to": "b",
        "fingerprint": None,
        "outcome": "rolled_back",
        "way": None,
        "served": "a",
        "seconds": 3.5,
        "failed_phase": "canary",
        "reason": "phase canary: a canary answer was wrong or missing",
    }
    assert (last["id"], last["from"], last["outcome"], last["seconds"]) == ("2", None, None, None)


def test_what_an_older_end_quotes_is_told_to_nobody() -> None:
    failures = [{"phase": "release", "message": "port 18080: pid 7 (sh -c secret)"}]
    (switch,) = remember(lines(begin("1"), {"event": "end", "id": "1", "outcome": "stopped", "failures": failures}))
    assert switch["reason"] == "phase release"


def test_what_cannot_be_read_is_left_out() -> None:
    raw = b'"torn\n[]\n{}\n' + lines({"event": "end", "id": "9", "outcome": "committed"}, begin("1")) + b'{"event":"en'
    assert [switch["id"] for switch in remember(raw)] == ["1"]
    odd = {"event": "end", "id": "1", "outcome": 5, "failures": ["x"], "seconds": "long"}
    (switch,) = remember(lines(begin("1"), odd))
    assert (switch["outcome"], switch["reason"], switch["seconds"]) == (None, None, None)


def test_it_is_read_when_it_changed(tmp_path: Path) -> None:
    journal = tmp_path / "main.jsonl"
    found = history(str(journal))
    assert found.read() == []
    journal.write_bytes(lines(begin("1")))
    assert [switch["id"] for switch in found.read()] == ["1"]
    with journal.open("ab") as handle:
        handle.write(lines(begin("2")))
    assert found.read()[0]["id"] == "2"
    assert found.read() is found.read()
    journal.write_bytes(lines(*(begin(str(number)) for number in range(30))))
    assert [switch["id"] for switch in found.read()] == [str(number) for number in range(29, -1, -1)]
    journal.write_bytes(b"x" * 600_000 + b"\n" + lines(begin("3")))
    assert [switch["id"] for switch in found.read()] == ["3"]
    journal.unlink()
    assert found.read() == []


@on_loop
async def test_status_and_page_show_them(tmp_path: Path) -> None:
    journal = tmp_path / "main.jsonl"
    before = [begin(f"before {number}") for number in range(KEPT)]
    journal.write_bytes(lines(*before, begin("1"), {"event": "end", "id": "1", "outcome": "committed", "profile": "b"}))
    async with bench(tmp_path, slot={"journal_file": str(journal)}) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).json["last_switch"]["outcome"] == "committed"
        switches = (await client.ask("GET", "/frontdoor/activity")).json["switches"]
        assert (switches[0]["id"], switches[0]["to"], len(switches)) == ("1", "b", KEPT)
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).json["last_switch"] is None


@on_loop
async def test_metrics_tell_how_the_last_switch_ended(tmp_path: Path) -> None:
    journal = tmp_path / "main.jsonl"
    end = {"event": "end", "id": "1", "outcome": "rolled_back", "seconds": 3.5, "failures": [{"phase": "canary"}]}
    journal.write_bytes(lines(begin("1"), end, begin("2")))
    async with bench(tmp_path, slot={"journal_file": str(journal)}) as run:
        client = await run.client()
        text = (await client.ask("GET", "/metrics")).body.decode()
        for row in (
            'info{slot="main",kind="switch",outcome="rolled_back",failed_phase="canary"} 1',
            'timestamp_seconds{slot="main"} 1780823324',
            'seconds{slot="main"} 3.5',
        ):
            assert f"b70_frontdoor_by_slot_last_switch_{row}\n" in text
        journal.write_bytes(lines(begin("3"), {"event": "end", "id": "3", "outcome": "committed"}))
        text = (await client.ask("GET", "/metrics")).body.decode()
        assert 'by_slot_last_switch_info{slot="main",kind="switch",outcome="committed",failed_phase=""} 1\n' in text
        assert 'by_slot_last_switch_seconds{slot="main"}' not in text
        assert 'by_slot_phase{slot="main",phase="serving"} 1\n' in text
        assert 'by_slot_phase{slot="main",phase="failed"} 0\n' in text
        served = 'slot="main",profile="tiny-a",served_model_name="tiny-a",fingerprint="sha256:00"'
        assert f"by_slot_info{{{served}}} 1\n" in text
