# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration when something is wrong, was changed meanwhile, or is not done: every request is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from admin_kit import KEY, MEMORY, MODELS, RELOAD, admin, detail, profile, states
from kit import Answer, on_loop, until


@on_loop
async def test_a_load_that_failed_is_forgotten_once_it_is_served(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        helper.answer = {"exit": 1, "message": "the canary failed"}
        await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        assert (await states(client))["tiny-b"] == "failed"
        # somebody on the host does it, and changes their mind again
        run.write_state(profile={"name": "tiny-b", "served_model_name": "tiny-b"})
        row = (await client.ask("GET", MODELS, None, KEY)).json["models"][1]
        assert (row["runtime_state"], row["last_error"]) == ("loaded", None)
        run.write_state()
        row = (await client.ask("GET", MODELS, None, KEY)).json["models"][1]
        assert (row["runtime_state"], row["last_error"]) == ("unloaded", None)
        # a helper that did it and could not say so
        helper.answer = b"Traceback"
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        await until(lambda: len(helper.lines) == 2)
        run.write_state(profile={"name": "tiny-b", "served_model_name": "tiny-b"})
        helper.free.set()
        assert (await client.answer()).status == 500
        row = (await client.ask("GET", MODELS, None, KEY)).json["models"][1]
        assert (row["runtime_state"], row["last_error"]) == ("loaded", None)


@on_loop
async def test_a_helper_may_say_it_in_pieces_and_at_length(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):
        helper.answer = [b'{"exit": 1, "mess', b'age": "', b"long " * 60_000, b'"}', b"\n"]
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        assert detail(answer) == (500, "model_load_failed", "tiny-b")
        assert answer.json["detail"]["message"] == "long " * 60_000
        helper.answer = [b'{"exit": 0, ', b'"message": "done"}']
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).status == 200
        helper.answer = [b'{"exit": 0, "message": "', *([b"x" * 2**20] * 5)]
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        assert "said more than 4 MiB" in answer.json["detail"]["message"]


@on_loop
@pytest.mark.parametrize(
    "cards",
    [
        [{"node": "a", "used_bytes": "x", "total_bytes": 2**30}],
        [{"node": "a", "used_bytes": True, "total_bytes": -1}],
        ["a card"],
        [None, 7],
        {"a": 1},
        "text",
        7,
    ],
)
async def test_strange_words_about_cards_are_no_figures(tmp_path: Path, cards: Any) -> None:
    async with admin(tmp_path) as (_, client, helper):
        helper.answer = {"exit": 0, "message": "told", "cards": cards}
        answer = await client.ask("GET", MEMORY, None, KEY)
        assert answer.status == 200
        assert all(one["used_mib"] is one["used_over_total"] is None for one in answer.json["gpus"])
        assert len(answer.json["gpus"]) == (len(cards) if isinstance(cards, list) else 0)
        assert (await client.ask("GET", MODELS, None, KEY)).status == 200


@on_loop
async def test_what_goes_wrong_inside_is_answered_and_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admin(tmp_path) as (run, client, helper):

        def broken(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("no such thing")

        async def asked(method: str, path: str) -> None:
            answer = await client.ask(method, path, b"" if method == "POST" else None, KEY)
            assert detail(answer) == (500, "internal_error", None)
            (event,) = [event for event in run.events() if event["event"] == "admin_error"]
            assert (event["path"], event["error"]) == (path, "ZeroDivisionError: no such thing")
            assert event["where"].startswith("test_admin_trouble.py:")
            # the connection goes on
            assert (await client.ask("GET", "/health")).status == 200

        with monkeypatch.context() as patch:
            patch.setattr("frontdoor.admin.models.gpu_memory", broken)
            await asked("GET", MEMORY)
        with monkeypatch.context() as patch:
            patch.setattr("frontdoor.admin.models.row", broken)
            await asked("GET", MODELS)
            # the load itself was done
            await asked("POST", f"{MODELS}/tiny-b/load")
        assert helper.lines[-1] == "load tiny-b root main\n"
        assert (await states(client))["tiny-b"] == "unloaded"
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).status == 200


@on_loop
async def test_a_job_that_breaks_tells_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admin(tmp_path) as (run, client, _):

        async def broken(*_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("frontdoor.admin.api.question", broken)
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        assert detail(answer) == (500, "model_load_failed", "tiny-b")
        assert "admin_error" in [event["event"] for event in run.events()]
        assert (await states(client))["tiny-b"] == "failed"


@on_loop
async def test_a_profile_that_goes_while_it_is_loaded(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        await until(lambda: helper.lines)
        (tmp_path / "profiles" / "tiny-b.json").unlink()
        helper.free.set()
        answer = await client.answer()
        assert (answer.status, answer.json["name"]) == (200, "tiny-b")
        # refused by the helper, which looks for itself
        helper.answer = {"exit": 64, "message": "the engine in the slot is not that of tiny-a"}
        answer = await client.ask("POST", f"{MODELS}/tiny-a/unload", b"", KEY)
        assert detail(answer) == (409, "model_not_loaded", "tiny-a")


@on_loop
async def test_a_refused_status_is_not_loaded_over_http(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        answer = await client.ask("POST", f"{MODELS}/tiny-bad/load", b"", KEY)
        assert detail(answer) == (400, "invalid_load_request", "tiny-bad")
        assert "b70ctl switch tiny-bad --accept-status rejected" in answer.json["detail"]["message"]
        assert "lies" in answer.json["detail"]["message"]
        assert not helper.lines
        # what is refused is the slot's to say
        (tmp_path / "slot.json").write_text('{"schema": 1, "refused_statuses": ["candidate"], "legacy_units": []}')
        rows = {one["name"]: one for one in (await client.ask("GET", MODELS, None, KEY)).json["models"]}
        assert [rows[name]["configured_enabled"] for name in ("tiny-b", "tiny-bad")] == [False, True]
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).status == 400
        assert (await client.ask("POST", f"{MODELS}/tiny-bad/load", b"", KEY)).status == 200
        # served all the same, by somebody on the host
        run.write_state(profile={"name": "tiny-b", "served_model_name": "tiny-b"})
        assert (await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).json["is_loaded"]


@on_loop
async def test_a_rendering_that_waits_is_what_a_load_takes(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_run, client, _helper):
        waits = tmp_path / "pending" / "tiny-b.json"
        waits.parent.mkdir()

        async def title() -> str:
            rows = (await client.ask("GET", MODELS, None, KEY)).json["models"]
            return str(next(one["definition"]["title"] for one in rows if one["name"] == "tiny-b"))

        before = await title()
        new = json.dumps(profile("tiny-b", title="rendered anew"))
        waits.write_text(json.dumps({"schema": 1, "name": "tiny-b", "unit": "", "env": "", "profile": new}))
        assert (before, await title()) == (before, "rendered anew")
        waits.unlink()
        assert await title() == before


@pytest.mark.interpreted
@on_loop
async def test_a_reload_tells_what_changed(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, _):
        profiles = tmp_path / "profiles"

        def write(name: str, **more: Any) -> None:
            served = {"fingerprint": "sha256:00"} if name == "tiny-a" else {}
            (profiles / f"{name}.json").write_text(json.dumps(profile(name, **{**served, **more})))

        async def reload() -> Answer:
            return await client.ask("POST", RELOAD, b"", KEY)

        # a file that is none spoils it, and nothing is forgotten
        write("tiny-a")
        answer = await reload()
        assert detail(answer) == (400, "invalid_settings", None)
        assert "torn.json is no profile" in answer.json["detail"]["message"]
        (profiles / "torn.json").unlink()
        (profiles / "tiny-bad.json").unlink()
        write("tiny-b", title="Another")
        write("tiny-c")
        assert (await reload()).json == {
            "added_models": ["tiny-c"],
            "removed_models": ["tiny-bad"],
            "updated_models": ["tiny-a", "tiny-b"],
            "unchanged_models": [],
            "service_restart_required": False,
        }
        assert (await reload()).json["unchanged_models"] == ["tiny-a", "tiny-b", "tiny-c"]
        # written in place, without a trace in the directory
        write("tiny-b", title="A third")
        assert (await reload()).json["updated_models"] == ["tiny-b"]
        (row,) = [one for one in (await client.ask("GET", MODELS, None, KEY)).json["models"] if one["name"] == "tiny-b"]
        assert row["definition"]["title"] == "A third"
        # a profile that was torn is what it was
        (profiles / "tiny-b.json").write_text("{")
        assert (await reload()).status == 400
        assert (await states(client))["tiny-b"] == "unloaded"
        write("tiny-b", title="A third")
        # what runs cannot become another model under its clients
        write("tiny-a", fingerprint="sha256:01")
        answer = await reload()
        assert detail(answer) == (409, "settings_reload_conflict", None)
        assert answer.json["detail"]["conflicts"] == ["engine.models.tiny-a"]
        (profiles / "tiny-a.json").unlink()
        assert (await reload()).status == 409
        run.write_state(phase="stopped", open=False, profile=None)
        assert (await reload()).json["removed_models"] == ["tiny-a"]
        assert [event["event"] for event in run.events()].count("admin_reload") == 4
        assert detail(await client.ask("GET", RELOAD, None, KEY))[0] == 405
        assert (await client.ask("POST", RELOAD, b"")).status == 401


@on_loop
async def test_a_reload_reads_the_slots_state_and_the_keys(tmp_path: Path) -> None:
    async with admin(tmp_path, slot={"poll_interval_s": 3600}) as (run, client, _):
        (tmp_path / "profiles" / "torn.json").unlink()
        (tmp_path / "profiles" / "tiny-a.json").unlink()
        state = json.loads(Path(run.state_path).read_text())
        Path(run.state_path).write_text(json.dumps({**state, "phase": "stopped", "open": False, "sequence": 99}))
        assert (await client.ask("POST", RELOAD, b"", KEY)).json["removed_models"] == ["tiny-a"]
        assert (await client.ask("GET", "/status")).json["frontdoor"]["state_sequence"] == 99
