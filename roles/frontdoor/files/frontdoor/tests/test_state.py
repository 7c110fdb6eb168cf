# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state file and the configuration: what they may say, and what happens when they are wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kit import bench, changed_state, on_loop, serving_state, start_unit

from frontdoor.config import Config, ConfigError, from_table, load
from frontdoor.policy.dialect import PLAIN
from frontdoor.slot.state import StateError, StateFile, parse


def config(path: Path) -> Config:
    start_unit(path.parent)
    return from_table({"slot": {"state_file": str(path), "units_dir": str(path.parent)}})


def test_no_file_means_stopped(tmp_path: Path) -> None:
    file = StateFile(config(tmp_path / "none.json"))
    state = file.poll()
    assert state is not None
    assert (state.phase, state.open) == ("stopped", False)
    assert "none.json cannot be read: No such file" in state.reason
    assert file.poll() is None


def test_a_file_that_comes_changes_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    file = StateFile(config(path))
    file.poll()
    for sequence in (1, 2):
        (tmp_path / "new").write_text(json.dumps({**serving_state("http://h:1"), "sequence": sequence}))
        (tmp_path / "new").rename(path)
        state = file.poll()
        assert state is not None
        assert (state.sequence, state.open) == (sequence, True)
        assert file.poll() is None
    path.write_text("{")
    state = file.poll()
    assert state is not None
    assert not state.open
    assert "not valid JSON" in state.reason
    assert file.poll() is None
    path.unlink()
    state = file.poll()
    assert state is not None
    assert not state.open


def test_without_a_slot_the_fallbacks_serve() -> None:
    table = {"slot": {"state_file": ""}, "admission": {"max_active_generations": 3}}
    file = StateFile(from_table(table))
    state = file.poll()
    assert state is not None
    assert (state.open, state.max_active_generations) == (True, 3)
    assert file.poll() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema 2 is not known"),
        ({"phase": "dancing"}, "phase: 'dancing' is none of"),
        ({"open": "yes"}, "open: expected bool, got 'yes'"),
        ({"sequence": True}, "sequence: expected int, got True"),
        ({"limits": {"max_active_generations": 0}}, "limits.max_active_generations: 0 is below the minimum 1"),
        ({"limits": {"queue_timeout_s": 1e300}}, "limits.queue_timeout_s: 1e+300 is above the maximum"),
        ({"request": {"max_tokens_default": -5}}, "request.max_tokens_default: -5 is below the minimum 1"),
        ({"request": {"max_tokens_cap": -1}}, "request.max_tokens_cap: -1 is below the minimum 1"),
        ({"request": {"max_tokens_cap": 10**9}}, "request.max_tokens_cap: 1000000000 is above the maximum"),
        ({"request": {"model_aliases": ["a", 5]}}, "request.model_aliases: expected a list of strings, got ['a', 5]"),
        ({"retry_after_s": 1e300}, "retry_after_s: 1e+300 is above the maximum"),
        ({"retry_after_s": -1}, "retry_after_s: -1.0 is below the minimum 0"),
        ({"sequence": -1}, "sequence: -1 is below the minimum 0"),
        ({"profile": {"modalities": "text"}}, "profile.modalities: expected a list of strings, got 'text'"),
        ({"profile": {"modalities": ["text", 1]}}, "profile.modalities: expected a list of strings"),
        ({"profile": {"served_model_name": 5}}, "profile.served_model_name: expected str, got 5"),
        ({"switch": {"eta_s": 1e300}}, "switch.eta_s: 1e+300 is above the maximum"),
        ({"switch": {"eta_s": "soon"}}, "switch.eta_s: expected float, got 'soon'"),
        ({"switch": {"started_at": 5}}, "switch.started_at: expected str"),
        ({"engine": {"unit": "../x"}}, "engine.unit: "),
        ({"engine": {"unit": "x\0"}}, "engine.unit: "),
        ({"engine": {"metrics": "x"}}, "engine.metrics: expected a table"),
        ({"engine": {"metrics": {"tokens": "a", "cache": "b c"}}}, "engine.metrics.cache: 'b c' does not match"),
        ({"engine": {"dialect": {**PLAIN._asdict(), "penalty": 1}}}, "engine.dialect.penalty: expected str, got 1"),
        ({"profile": {"reasoning": []}}, "profile.reasoning: expected a table"),
        ({"profile": {"reasoning": {"how": "disabled"}}}, "profile.reasoning.template_kwargs is missing"),
        ({"profile": {"reasoning": {"how": "guess", "template_kwargs": {}}}}, "profile.reasoning.how: 'guess' is none"),
        ({"limits": []}, "limits: expected a table, got []"),
        ({"backend_url": "https://h:1"}, "must look like http://HOST:PORT"),
        ({"request": {"chat_template_kwargs": "x"}}, "request.chat_template_kwargs: expected a table"),
        ({"open": None}, "open: expected bool, got None"),
        ({"request": {"model_policy": "guess"}}, "request.model_policy: 'guess' is none of pass, rewrite, reject"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], message: str) -> None:
    raw = json.dumps(changed_state("http://h:1", changes)).encode()
    with pytest.raises(StateError, match=re.escape(message)):
        parse(raw, from_table({}))


@pytest.mark.parametrize("dotted", ["gate", "open", "slot", "limits", "limits.queue_timeout_s", "engine.invocation_id"])
def test_what_the_slot_always_writes_has_no_second_default(dotted: str) -> None:
    table = serving_state("http://h:1")
    part, _dot, name = dotted.rpartition(".")
    del (table[part] if part else table)[name]
    with pytest.raises(StateError, match=f"{dotted} is missing"):
        parse(json.dumps(table).encode(), from_table({}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"listen": {"prot": 1}}, "listen.prot: unknown key; did you mean port?"),
        ({"lisen": {}}, "lisen: unknown key; did you mean listen?"),
        ({"listen": {"port": "8000"}}, "listen.port: expected int, got '8000'"),
        ({"listen": {"port": 70000}}, "listen.port: 70000 is above the maximum 65535"),
        ({"listen": 1}, "listen: expected a table, got 1"),
        ({"limits": {"max_headers": 0}}, "limits.max_headers: 0 is below the minimum 1"),
        ({"backend": {"url": "http://h"}}, "must look like http://HOST:PORT"),
        ({"limits": {"max_buffered_bytes": 5}}, "limits.max_buffered_bytes: must not be below limits.max_body_bytes"),
    ],
)
def test_a_wrong_configuration_is_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", "\\?")):
        from_table(table)


def test_the_file_is_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    with pytest.raises(ConfigError, match=r"c\.toml: cannot be read"):
        load(str(path))
    path.write_text("[listen")
    with pytest.raises(ConfigError, match=r"c\.toml: not valid TOML"):
        load(str(path))
    path.write_text("[listen]\nport = 0\n[backend]\nresponse_timeout_s = 5\n")
    assert load(str(path)).backend.response_timeout_s == 5.0


@on_loop
async def test_status_shows_what_is_true(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        await client.chat()
        for path in ("/status", "/frontdoor/status", "/status/"):
            status = (await client.ask("GET", path)).json
            assert status["ok"] is True
            assert status["model_slot"]["name"] == "tiny-a"
            assert status["model_slot"]["modalities"] == "text"
            assert status["frontdoor"]["auth"] == "none"
            assert status["frontdoor"]["state_sequence"] == 7
            assert status["frontdoor"]["total_generation_requests"] == 1
        assert (await client.ask("GET", "/ready")).status == 200
        assert (await client.ask("HEAD", "/health")).status == 200
        assert (await client.ask("POST", "/status", b"")).status == 405
        run.write_state(verified=False)
        ready = await client.ask("GET", "/ready")
        assert (ready.status, ready.json["reason"]) == (503, "the engine is not verified")


@on_loop
async def test_the_log_tells_of_requests_and_changes_without_their_content(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        await client.ask("POST", "/v1/chat/completions", b'{"secret prompt":1}', "Authorization: Bearer sk-hidden")
        run.write_state(sequence=8, event_log=False)
        await client.chat()
        await run.settled()
        events = run.events()
        text = json.dumps(events)
        assert "secret" not in text
        assert "sk-hidden" not in text
        requests = [e for e in events if e["event"] == "request"]
        assert len(requests) == 1
        assert requests[0]["status"] == 200
        assert requests[0]["outcome"] == "ok"
        assert requests[0]["path"] == "/v1/chat/completions"
        assert [e["sequence"] for e in events if e["event"] == "state_applied"] == [8]


@on_loop
async def test_an_engine_that_was_not_verified_gets_no_requests(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.chat()).status == 200
        start_unit(tmp_path, "1" * 32)
        run.app.poll_state()
        answer = await client.chat()
        assert (answer.status, answer.json["error"]["code"]) == (503, "failed")
        assert "was started again and has not been verified since" in answer.json["error"]["message"]
        status = (await client.ask("GET", "/status")).json
        assert (status["verified"], status["open"], status["frontdoor"]["state_sequence"]) == (False, False, 7)
        (tmp_path / "invocation:b70-slot-main-tiny-a.service").unlink()
        run.app.poll_state()
        assert "does not run any more" in (await client.chat()).json["error"]["message"]
        # without the claim of verification nobody is protected from anything
        run.write_state(verified=False)
        assert (await client.chat()).status == 200
        start_unit(tmp_path, "2" * 32)
        run.write_state(engine={"unit": "b70-slot-main-tiny-a.service", "invocation_id": "2" * 32})
        assert (await client.chat()).status == 200


@on_loop
async def test_what_cannot_be_trusted_closes_the_slot_and_says_why(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        run.write_state(request={"max_tokens_default": -5})
        answer = await client.chat()
        assert (answer.status, answer.header("Retry-After")) == (503, "30")
        assert "request.max_tokens_default: -5" in answer.json["error"]["message"]
        run.write_state()
        assert (await client.chat()).status == 200


@on_loop
async def test_an_older_state_counts_and_is_told(tmp_path: Path) -> None:
    """Who puts an older file back means it, and after a reboot the numbers begin anew; but the log says so."""
    async with bench(tmp_path) as run:
        run.write_state(sequence=9)
        run.write_state(sequence=9)
        (tmp_path / "state.json").write_text("{")
        run.app.poll_state()
        assert not [event for event in run.events() if event["event"] == "state_went_back"]
        run.write_state(sequence=3)
        assert run.app.first.slot.state.sequence == 3
        (told,) = [event for event in run.events() if event["event"] == "state_went_back"]
        assert (told["sequence"], told["was"]) == (3, 9)
