# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration of a host with several slots: where a model is served, and where a load puts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from admin_kit import KEY, MEMORY, MODELS, RELOAD, VEC, detail, profile, states, two_slots
from kit import Client, Hold, on_loop, until


async def rows(client: Client) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in (await client.ask("GET", MODELS, None, KEY)).json["models"]}


@on_loop
async def test_a_row_is_of_the_slot_that_serves_the_model(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (run, client, helper, other):
        found = await rows(client)
        assert list(found) == ["large", "tiny-a", "tiny-b", "tiny-bad", "vec"]
        where = {name: (row["slot"], row["slots"], row["runtime_state"]) for name, row in found.items()}
        assert where == {
            "tiny-a": ("main", ["main"], "loaded"),
            "tiny-b": ("main", [], "unloaded"),
            "tiny-bad": ("main", [], "unloaded"),
            "large": ("main", [], "unloaded"),
            "vec": ("aux", ["aux"], "loaded"),
        }
        assert [found[name]["vram_estimate_mib"] for name in ("vec", "tiny-a")] == [321, None]
        helper.answer = {"exit": 0, "message": "told", "cards": []}
        told = (await client.ask("GET", MEMORY, None, KEY)).json["models"]
        assert [(one["name"], one["slot"], one["vram_estimate_mib"]) for one in told][-1] == ("vec", "aux", 321)
        # what only the other slot can take is told of there
        (tmp_path / "slot.json").write_text(json.dumps({"refused_statuses": [], "cards": []}))
        (tmp_path / "profiles" / "tiny-b.json").write_text(json.dumps(profile("tiny-b", cards=1)))
        assert (await rows(client))["tiny-b"]["slot"] == "aux"
        # both serve it
        (tmp_path / "slot.json").unlink()
        other.write(profile={"name": "tiny-b"})
        run.write_state(profile={"name": "tiny-b"})
        both = (await rows(client))["tiny-b"]
        assert (both["slot"], both["slots"]) == ("main", ["main", "aux"])


@on_loop
async def test_queue_and_permits_are_those_of_the_slot(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (run, client, _helper, other):
        engine = other._engine
        engine.script = hold = Hold()
        waiting, aux = [await run.client() for _ in range(2)], run.app.followers[1]
        for count, one in enumerate(waiting, 1):
            one.request("POST", "/v1/completions", b'{"model": "vec", "input": "x"}')
            await until(lambda: aux.limiter.active + aux.limiter.queued == count)  # noqa: B023 - awaited within its turn
        found = await rows(client)
        names = ("loaded_replicas", "runtime_inflight", "queue_depth")
        assert [found["vec"][name] for name in names] == [1, 1, 1]
        assert [found["tiny-a"][name] for name in names] == [1, 0, 0]
        # the slot closes, and those who wait are turned away: that is of no other model
        other.write(sequence=9, phase="switching", open=False, switch={"from": "vec"}, reason="")
        assert (await waiting[1].answer()).status == 503
        hold.go.set()
        assert (await waiting[0].answer()).status == 200
        text = (await client.ask("GET", "/metrics")).body.decode()
        assert 'by_slot_refusals_total{slot="aux",code="switching"} 1' in text
        assert 'by_slot_refusals_total{slot="main",code="switching"} 0' in text


@on_loop
async def test_a_load_goes_where_it_is_told_to(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (run, client, helper, other):
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b'{"slot": "aux"}', KEY)
        second = await run.client()
        await until(lambda: helper.lines)
        assert helper.lines == ["load tiny-b root aux\n"]
        assert (await states(second))["tiny-b"] == "loading"
        # the other slot is free to do something else meanwhile
        assert detail(await second.ask("POST", f"{MODELS}/vec/unload", b"", KEY)) == (409, "model_loading", "tiny-b")
        third = await run.client()
        third.request("POST", f"{MODELS}/large/load", b"", KEY)
        await until(lambda: len(helper.lines) == 2)
        assert helper.lines[1] == "load large root main\n"
        assert {name for name, state in (await states(second)).items() if state == "loading"} == {"tiny-b", "large"}
        other.write(profile={"name": "tiny-b"})
        helper.free.set()
        answer = (await client.answer()).json
        assert (answer["runtime_state"], answer["slot"], answer["slots"]) == ("loaded", "aux", ["aux"])
        assert answer["definition"]["title"] == "tiny-b in aux"
        assert (await third.answer()).json["slot"] == "main"
        logged = [event for event in run.events() if event["event"] == "admin_load"]
        assert [(event["model"], event["slot"]) for event in logged] == [("tiny-b", "aux"), ("large", "main")]


@on_loop
async def test_without_a_slot_a_load_goes_where_it_can(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (_run, client, helper, other):

        async def load(name: str, **wanted: Any) -> Any:
            return await client.ask("POST", f"{MODELS}/{name}/load", json.dumps(wanted).encode(), KEY)

        # served already, wherever that is
        assert (await load("vec")).json["slot"] == "aux"
        assert not helper.lines
        # both could: main
        assert (await load("tiny-b", slot=None)).status == 200
        # by its cards only one could
        (tmp_path / "slot.json").write_text(json.dumps({"refused_statuses": [], "cards": []}))
        for path in tmp_path.glob("profiles/tiny-b.json"):
            path.write_text(json.dumps(profile("tiny-b", cards=1)))
        assert (await load("tiny-b")).status == 200
        # none has so many: the load says so
        assert (await load("large")).status == 200
        # only one has it
        other.write(phase="stopped", open=False, profile=None)
        assert (await load("vec")).status == 200
        assert [line.split()[1::2] for line in helper.lines] == [
            ["tiny-b", "main"],
            ["tiny-b", "aux"],
            ["large", "main"],
            ["vec", "aux"],
        ]


@on_loop
async def test_a_slot_that_cannot_be_meant(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (_run, client, helper, _other):

        async def load(name: str, slot: Any) -> Any:
            return await client.ask("POST", f"{MODELS}/{name}/load", json.dumps({"slot": slot}).encode(), KEY)

        for name, slot, others in (("tiny-a", "aux", "main"), ("vec", "main", "aux"), ("tiny-b", "gpu", "main, aux")):
            answer = await load(name, slot)
            assert detail(answer) == (400, "invalid_load_request", name)
            assert answer.json["detail"]["slots"] == others.split(", ")
            assert answer.json["detail"]["message"].endswith(f"that has {name}; these are: {others}")
        assert (await load("tiny-b", 7)).status == 422
        assert not helper.lines


@on_loop
async def test_several_slots_beside_main_have_to_be_named(tmp_path: Path) -> None:
    async with two_slots(tmp_path, empty=("third",)) as (_run, client, helper, _other):
        (tmp_path / "profiles" / "tiny-b.json").unlink()
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"{}", KEY)
        assert detail(answer) == (400, "invalid_load_request", "tiny-b")
        assert answer.json["detail"]["slots"] == ["aux", "third"]
        assert "say in which one with `slot`" in answer.json["detail"]["message"]
        assert not helper.lines
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b'{"slot": "third"}', KEY)).status == 200
        assert helper.lines == ["load tiny-b root third\n"]


@on_loop
async def test_an_unload_is_of_the_slot_that_serves_the_model(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (run, client, helper, other):
        assert (await client.ask("POST", f"{MODELS}/vec/unload", b"", KEY)).status == 200
        assert helper.lines == ["unload vec root aux\n"]
        # it is served twice, and one of the two is meant
        other.write(profile={"name": "tiny-b"})
        run.write_state(profile={"name": "tiny-b"})
        assert (await client.ask("POST", f"{MODELS}/tiny-b/unload", b'{"slot": "aux"}', KEY)).status == 200
        assert (await client.ask("POST", f"{MODELS}/tiny-b/unload", b"{}", KEY)).status == 200
        assert helper.lines[1:] == ["unload tiny-b root aux\n", "unload tiny-b root main\n"]
        # nothing is done where it is not served
        answer = await client.ask("POST", f"{MODELS}/large/unload", b'{"slot": "aux"}', KEY)
        assert (answer.json["runtime_state"], answer.json["slot"], len(helper.lines)) == ("unloaded", "aux", 3)


@on_loop
async def test_what_a_slot_refuses_is_its_own(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (_run, client, helper, other):
        (tmp_path / "aux" / "slot.json").write_text(json.dumps({"refused_statuses": ["candidate"]}))
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b'{"slot": "aux"}', KEY)
        assert detail(answer) == (400, "invalid_load_request", "tiny-b")
        assert "b70ctl-aux switch tiny-b --accept-status candidate" in answer.json["detail"]["message"]
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b'{"slot": "main"}', KEY)).status == 200
        assert len(helper.lines) == 1
        # a load that failed in one slot, and is served there after all
        (tmp_path / "aux" / "slot.json").write_text("{}")
        helper.answer = {"exit": 1, "message": "the canary failed"}
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b'{"slot": "aux"}', KEY)).status == 500
        failed = (await rows(client))["tiny-b"]
        assert (failed["slot"], failed["runtime_state"], failed["last_error"]) == ("aux", "failed", "the canary failed")
        other.write(profile={"name": "tiny-b"})
        other.write(sequence=9)
        assert (await rows(client))["tiny-b"]["last_error"] is None


@on_loop
async def test_a_reload_is_about_the_profiles_of_all_slots(tmp_path: Path) -> None:
    async with two_slots(tmp_path) as (_run, client, _helper, other):
        aux = tmp_path / "aux" / "profiles"

        async def reload() -> Any:
            return await client.ask("POST", RELOAD, b"", KEY)

        (tmp_path / "profiles" / "tiny-a.json").write_text(json.dumps(profile("tiny-a", fingerprint="sha256:00")))
        answer = await reload()
        assert detail(answer) == (409, "settings_reload_conflict", None)
        assert answer.json["detail"]["conflicts"] == ["engine.models.vec"]
        other.write(profile={**VEC, "fingerprint": "sha256:0"})
        told = (await reload()).json
        assert (told["added_models"], told["updated_models"]) == ([], ["large", "tiny-a"])
        # one slot has another rendering, one has one more, and one has lost one that the other keeps
        (aux / "tiny-b.json").write_text(json.dumps(profile("tiny-b", cards=1, title="anew")))
        (aux / "extra.json").write_text(json.dumps(profile("extra")))
        (aux / "large.json").unlink()
        told = (await reload()).json
        assert told["added_models"] == ["extra"]
        assert told["updated_models"] == ["large", "tiny-b"]
        assert told["removed_models"] == []
        (aux / "extra.json").write_text("{")
        answer = await reload()
        assert detail(answer) == (400, "invalid_settings", None)
        assert "aux/profiles/extra.json is no profile" in answer.json["detail"]["message"]


@pytest.mark.parametrize("verb", ["load", "unload"])
@on_loop
async def test_a_frontdoor_that_stops_tells_those_who_wait_for_any_slot(tmp_path: Path, verb: str) -> None:
    async with two_slots(tmp_path) as (run, client, helper, _other):
        helper.free.clear()
        name = "tiny-b" if verb == "load" else "vec"
        client.request("POST", f"{MODELS}/{name}/{verb}", b'{"slot": "aux"}', KEY)
        await until(lambda: helper.lines)
        run.app.drain()
        assert detail(await client.answer()) == (503, "stopping", name)
        helper.free.set()
