# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: off without keys, and with them in the words of llm-pool's API."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from admin_kit import KEY, KINDS, MEMORY, MODELS, admin, detail, profile, states, write_keys
from kit import Answer, Call, Engine, bench, on_loop, until
from several import start_replica, state

from frontdoor.admin.models import Profiles, refused_overrides, row, runtime_state
from frontdoor.config import from_table
from frontdoor.slot.state import SlotState, fallback


@on_loop
async def test_without_admin_keys_there_is_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for method, path in (("GET", MODELS), ("POST", f"{MODELS}/tiny-a/load"), ("GET", "/v1/admin")):
            answer = await client.ask(method, path, b"" if method == "POST" else None, KEY)
            assert detail(answer) == (404, "unknown_path", None)
        assert (await client.ask("GET", "/status")).json["frontdoor"]["admin"] is False
        assert not run.engine.requests


@pytest.mark.interpreted
@on_loop
async def test_only_an_admin_key_opens_it(tmp_path: Path) -> None:
    keys_file = write_keys(tmp_path / "keys.toml", alice="s-alice")
    async with admin(tmp_path, auth={"keys_file": keys_file}) as (_, client, helper):
        for method, path in (("GET", MODELS), ("POST", f"{MODELS}/tiny-b/load"), ("GET", "/v1/admin/nothing")):
            body = b"{}" if method == "POST" else None
            assert detail(await client.ask(method, path, body)) == (401, "invalid_api_key", None)
            answer = await client.ask(method, path, body, "Authorization: Bearer s-wrong")
            assert detail(answer) == (401, "invalid_api_key", None)
            assert answer.header("WWW-Authenticate")
            answer = await client.ask(method, path, body, "X-Api-Key: s-alice")
            assert detail(answer) == (403, "not_an_admin_key", None)
        assert not helper.lines
        assert (await client.ask("GET", MODELS, None, "X-Api-Key: s-root")).status == 200
        # an admin key is no key for the model
        assert (await client.ask("POST", "/v1/completions", b"{}", KEY)).status == 401
        # a body is not even read from a stranger
        client.request("POST", f"{MODELS}/tiny-b/load", None, "Content-Length: 9000000")
        assert (await client.answer()).status == 401


@on_loop
async def test_a_changed_file_of_admin_keys_counts_at_once(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, _):
        write_keys(tmp_path / "new.toml", root="s-other")
        (tmp_path / "new.toml").rename(tmp_path / "admin-keys.toml")
        run.app._sweep()
        assert (await client.ask("GET", MODELS, None, KEY)).status == 401
        assert (await client.ask("GET", MODELS, None, "Authorization: Bearer s-other")).status == 200


@on_loop
async def test_the_rows(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, _helper):
        answer = await client.ask("GET", MODELS, None, KEY)
        served, other, bad = answer.json["models"]
        assert (served["name"], served["runtime_state"], served["is_loaded"]) == ("tiny-a", "loaded", True)
        assert (other["name"], other["runtime_state"], other["loaded_replicas"]) == ("tiny-b", "unloaded", 0)
        assert (bad["configured_enabled"], bad["definition"]["status_reason"]) == (False, "lies")
        # every field that llm-pool's clients know
        assert set(served) == {
            *(
                "name",
                "resolved_backend",
                "configured_enabled",
                "runtime_state",
                "is_loaded",
                "replicas",
                "replica_max",
            ),
            *("loaded_replicas", "inflight_requests", "queue_depth", "runtime_inflight", "configured_target_inflight"),
            *("effective_target_inflight", "last_error", "vram_estimate_mib", "vram_estimate_replica_count"),
            *("vram_estimate_source", "load_constraints", "load_recommendations", "load_override", "capabilities"),
            *("definition", "fairness"),
            # and what a host with several slots adds
            *("slot", "slots"),
        }
        assert [(one["slot"], one["slots"]) for one in (served, other)] == [("main", ["main"]), ("main", [])]
        assert served["resolved_backend"] == "vllm_serve"
        assert served["capabilities"]["modalities"] == ["text"]
        assert b"geheim" not in answer.body
        assert (await client.ask("HEAD", MODELS, None, KEY)).status == 200
        assert detail(await client.ask("POST", MODELS, b"{}", KEY))[0] == 405
        assert detail(await client.ask("GET", f"{MODELS}/tiny-b/load", None, KEY))[0] == 405
        assert detail(await client.ask("GET", f"{MODELS}/tiny-b", None, KEY))[0] == 404


@on_loop
async def test_a_row_tells_of_its_replicas(tmp_path: Path) -> None:
    engines = [Engine() for _ in range(3)]
    for index, engine in enumerate(engines):
        await engine.start()
        start_replica(tmp_path, index)
    async with admin(tmp_path, state=state(engines, 4, 0, closed=(1,))) as (_, client, _helper):
        mine = profile("tiny-a", frontdoor={"max_active_generations": 12})
        mine["engine"]["replicas"] = [{"index": index} for index in range(3)]
        (tmp_path / "profiles" / "tiny-a.json").write_text(json.dumps(mine))
        served, other, _bad = (await client.ask("GET", MODELS, None, KEY)).json["models"]
        names = (
            "replicas",
            "replica_max",
            "loaded_replicas",
            "configured_target_inflight",
            "effective_target_inflight",
        )
        assert [served[name] for name in names] == [3, 3, 2, 4, 4]
        assert [other[name] for name in names] == [1, 1, 0, 2, 2]
    for engine in engines:
        await engine.kill()


@on_loop
async def test_the_rows_tell_how_slots_are_shared(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", alice="s-alice", bob="s-bob")
    limits = {"limits": {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}}
    async with admin(tmp_path, auth={"keys_file": keys}, state=limits) as (run, client, _helper):
        free = asyncio.Event()

        async def held(call: Call) -> None:
            await free.wait()
            await call.json({})

        run.engine.script = held
        waiting = []
        for name in ("alice", "bob", "bob"):
            one = await run.client()
            one.request("POST", "/v1/completions", b"{}", f"Authorization: Bearer s-{name}")
            waiting.append(one)
            await run.arrived(len(waiting))
        served, other, _bad = (await client.ask("GET", MODELS, None, KEY)).json["models"]
        assert served["fairness"] == {
            "rejected_per_key_limit": 0,
            "rejected_executor_limit": 0,
            "keys": [
                {"fairness_key": "alice", "pending": 0, "active": 1, "weight": 1.0, "score": 1},
                {"fairness_key": "bob", "pending": 2, "active": 0, "weight": 1.0, "score": 0},
            ],
        }
        assert other["fairness"] == {"rejected_per_key_limit": 0, "rejected_executor_limit": 0, "keys": []}
        free.set()
        for one in waiting:
            assert (await one.answer()).status == 200
            one.leave()


@on_loop
async def test_the_memory_of_the_cards(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):
        cards = [
            {"node": "/dev/dri/renderD128", "used_bytes": 3 << 30, "total_bytes": 24 << 30},
            {"node": "/dev/dri/renderD129", "used_bytes": None, "total_bytes": None},
        ]
        helper.answer = {"exit": 0, "message": "told", "cards": cards}
        told = (await client.ask("GET", MEMORY, None, KEY)).json
        assert helper.lines == ["cards\n"]
        assert told["error"] is None
        assert told["gpus"] == [
            {
                "index": 0,
                "name": "/dev/dri/renderD128",
                "used_mib": 3072,
                "total_mib": 24576,
                "used_over_total": "3072MiB / 24576MiB",
            },
            {
                "index": 1,
                "name": "/dev/dri/renderD129",
                "used_mib": None,
                "total_mib": None,
                "used_over_total": None,
            },
        ]
        assert [(one["name"], one["is_loaded"]) for one in told["models"]][:2] == [("tiny-a", True), ("tiny-b", False)]
        assert set(told["models"][0]) == {
            *("name", "runtime_state", "is_loaded", "slot", "slots"),
            *("configured_target_inflight", "effective_target_inflight"),
            *("vram_estimate_mib", "vram_estimate_replica_count", "vram_estimate_source"),
        }
        # the connection goes on
        helper.answer = {"exit": 0, "message": "this host shows no cards", "cards": []}
        none = (await client.ask("GET", MEMORY, None, KEY)).json
        assert (none["gpus"], none["error"]) == ([], "this host shows no cards")
        helper.answer = b"no JSON"
        broken = (await client.ask("GET", MEMORY, None, KEY)).json
        assert broken["gpus"] == []
        assert "gave no answer" in broken["error"]
        assert detail(await client.ask("POST", MEMORY, b"{}", KEY))[0] == 405
        assert (await client.ask("GET", MEMORY)).status == 401


@on_loop
async def test_who_asks_for_the_memory_may_leave(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        helper.free.clear()
        impatient = await run.client()
        impatient.request("GET", MEMORY, None, KEY)
        await until(lambda: helper.lines)
        impatient.leave()
        helper.free.set()
        assert (await client.ask("GET", MODELS, None, KEY)).status == 200


@on_loop
async def test_load_waits_for_the_switch_and_tells_the_new_state(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b"{}", KEY)
        other = await run.client()
        await until(lambda: helper.lines)
        assert helper.lines == ["load tiny-b root main\n"]
        assert await states(other) == {"tiny-a": "loaded", "tiny-b": "loading", "tiny-bad": "unloaded"}
        # the same again is no second switch, anything else has to wait
        assert (await other.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).json["runtime_state"] == "loading"
        assert detail(await other.ask("POST", f"{MODELS}/tiny-bad/load", b"", KEY)) == (409, "model_loading", "tiny-b")
        assert detail(await other.ask("POST", f"{MODELS}/tiny-b/unload", b"", KEY)) == (409, "model_loading", "tiny-b")
        assert detail(await other.ask("POST", f"{MODELS}/tiny-a/unload", b"", KEY)) == (409, "model_loading", "tiny-b")
        run.write_state(phase="switching", open=False, switch={"from": "tiny-a", "to": "tiny-b"})
        assert (await states(other))["tiny-a"] == "unloading"
        run.write_state(profile={"name": "tiny-b", "served_model_name": "tiny-b", "modalities": ["text"]})
        helper.free.set()
        answer = await client.answer()
        assert (answer.status, answer.json["name"], answer.json["runtime_state"]) == (200, "tiny-b", "loaded")
        assert helper.lines == ["load tiny-b root main\n"]
        assert (await other.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)).json["is_loaded"]
        # the connection of the one who waited goes on
        assert (await client.ask("GET", "/health")).status == 200
        logged = [event for event in run.events() if event["event"].startswith("admin_")]
        assert [(event["event"], event["model"]) for event in logged] == [
            ("admin_load", "tiny-b"),
            ("admin_load_ended", "tiny-b"),
        ]


@on_loop
async def test_a_failed_load_is_remembered_until_the_next(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):
        helper.answer = {"exit": 1, "message": "the canary failed; tiny-a is served again"}
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"{}", KEY)
        assert detail(answer) == (500, "model_load_failed", "tiny-b")
        assert "canary" in answer.json["detail"]["message"]
        row = (await client.ask("GET", MODELS, None, KEY)).json["models"][1]
        assert (row["runtime_state"], row["last_error"]) == ("failed", helper.answer["message"])
        assert (await client.ask("POST", f"{MODELS}/tiny-b/unload", b"", KEY)).json["runtime_state"] == "failed"
        helper.answer = {"exit": 4, "message": "another switch works"}
        assert detail(await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)) == (409, "model_loading", "tiny-b")
        assert (await states(client))["tiny-b"] == "unloaded"


@on_loop
async def test_unload(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        answer = await client.ask("POST", f"{MODELS}/tiny-b/unload", b"{}", KEY)
        assert (answer.status, answer.json["runtime_state"], helper.lines) == (200, "unloaded", [])
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-a/unload", b"", KEY)
        other = await run.client()
        await until(lambda: helper.lines)
        assert (await states(other))["tiny-a"] == "unloading"
        answer = await other.ask("POST", f"{MODELS}/tiny-a/load", b"", KEY)
        assert detail(answer) == (409, "model_unloading", "tiny-a")
        run.write_state(phase="stopped", open=False, verified=False, profile=None, reason="stopped on request")
        helper.free.set()
        answer = await client.answer()
        assert (answer.status, answer.json["runtime_state"]) == (200, "unloaded")
        assert helper.lines == ["unload tiny-a root main\n"]
        run.write_state()
        helper.answer = {"exit": 1, "message": "it does not stop"}
        answer = await client.ask("POST", f"{MODELS}/tiny-a/unload", b"", KEY)
        assert detail(answer) == (500, "model_unload_failed", "tiny-a")


@on_loop
async def test_wrong_requests(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):

        async def load(body: bytes, name: str = "tiny-b", verb: str = "load") -> Answer:
            return await client.ask("POST", f"{MODELS}/{name}/{verb}", body, KEY)

        assert detail(await load(b"{}", "no-such")) == (404, "unknown_model", "no-such")
        assert detail(await load(b"{}", "no-such", "unload")) == (404, "unknown_model", "no-such")
        assert detail(await load(b"{}", "..%2Ftiny-b"))[0] == 404
        for body in (
            *(b"{", b"[]", b'{"replica":2}', b'{"b70ctl":"--gate=none"}', b'{"vllm_gpu":1}'),
            *(b'{"replicas":true}', b'{"replicas":"x"}', b'{"replicas":0}', b'{"replicas":1.5}', b'{"replicas":[1]}'),
            *(b'{"vllm_max_model_len":"512"}', b'{"vllm_kv_cache_dtype":8}', b'{"llama_server_spec_draft_p_min":"x"}'),
        ):
            answer = await load(body)
            assert answer.status == 422, body
            (about,) = answer.json["detail"]
            assert about["loc"] == ["body"]
            assert about["msg"]
        assert (await load(b'{"replicas":1}', verb="unload")).status == 422
        # a field that is there counts, also with null
        for body in (
            *(b'{"vllm_max_model_len":512}', b'{"replicas":2}', b'{"gguf_n_ctx":null}', b'{"replicas":null}'),
            *(b'{"replicas":1,"vllm_max_model_len":4096}', b'{"vllm_kv_cache_dtype":"fp8"}'),
        ):
            assert detail(await load(body)) == (400, "invalid_load_request", "tiny-b")
            assert detail(await load(body, "tiny-a")) == (400, "invalid_load_request", "tiny-a")
        assert not helper.lines
        # one is what there is, but on a loaded model nothing can be set
        assert detail(await load(b'{"replicas":1}', "tiny-a")) == (400, "invalid_load_request", "tiny-a")
        assert (await load(b"{}", "tiny-a")).status == 200
        assert not helper.lines
        assert (await load(b'{"replicas":1}')).status == 200


@on_loop
async def test_a_client_that_leaves_ends_nothing(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        await until(lambda: helper.lines)
        client.leave()
        other = await run.client()
        await until(lambda: len(run.app.connections) == 1)
        assert (await states(other))["tiny-b"] == "loading"
        helper.answer = {"exit": 1, "message": "it failed"}
        helper.free.set()
        while (await states(other))["tiny-b"] == "loading":
            await asyncio.sleep(0.001)
        assert (await states(other))["tiny-b"] == "failed"


@on_loop
async def test_a_frontdoor_that_stops_says_that_the_load_goes_on(tmp_path: Path) -> None:
    async with admin(tmp_path) as (run, client, helper):
        helper.free.clear()
        client.request("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        await until(lambda: helper.lines)
        run.app.drain()
        answer = await client.answer()
        assert detail(answer) == (503, "stopping", "tiny-b")
        assert answer.header("Retry-After")
        assert await client.closed()
        helper.free.set()


@on_loop
@pytest.mark.parametrize("trouble", ["absent", "silent", "nonsense"])
async def test_a_helper_in_trouble(tmp_path: Path, trouble: str) -> None:
    async with admin(tmp_path, timeout_s=1 if trouble == "silent" else 60) as (_, client, helper):
        if trouble == "absent":
            (tmp_path / "admin.sock").unlink()
        elif trouble == "silent":
            helper.free.clear()
        else:
            helper.answer = b"Traceback"
        answer = await client.ask("POST", f"{MODELS}/tiny-b/load", b"", KEY)
        assert detail(answer) == (500, "model_load_failed", "tiny-b")
        words = {"absent": "is its socket unit active?", "silent": "within 1 s", "nonsense": "journalctl"}
        assert words[trouble] in answer.json["detail"]["message"]
        helper.free.set()


def slot(**changes: Any) -> SlotState:
    return dataclasses.replace(fallback(from_table({}), is_open=False, reason=""), **changes)


@pytest.mark.parametrize(
    ("state", "running", "expected"),
    [
        (slot(phase="stopped"), {}, ("unloaded", "unloaded")),
        (slot(phase="serving", profile={"name": "a"}), {}, ("loaded", "unloaded")),
        (slot(phase="failed", profile={"name": "a"}), {}, ("failed", "unloaded")),
        (slot(phase="switching", switch={"from": "a", "to": "b"}), {}, ("unloading", "loading")),
        (
            slot(phase="verifying", switch={"from": "a", "to": "b"}, profile={"name": "b"}),
            {},
            ("unloaded", "loading"),
        ),
        (slot(phase="switching", switch={"from": "a", "to": "b", "loading": True}), {}, ("unloaded", "loading")),
        (slot(phase="switching", switch={"from": "a", "to": None}), {}, ("unloading", "unloaded")),
        (slot(phase="verifying", switch={"from": "a", "to": "a"}), {}, ("loading", "unloaded")),
        (slot(phase="serving", profile={"name": "a"}), {"b": "loading"}, ("loaded", "loading")),
        (slot(phase="serving", profile={"name": "a"}), {"a": "unloading"}, ("unloading", "unloaded")),
    ],
)
def test_the_state_of_a_profile(state: SlotState, running: dict[str, str], expected: tuple[str, str]) -> None:
    assert tuple(runtime_state(name, state, running, failed=False) for name in "ab") == expected
    if expected[1] == "unloaded" and not running:
        assert runtime_state("b", state, running, failed=True) == "failed"


@on_loop
async def test_a_load_may_ask_for_what_the_profile_has(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, helper):
        settings = {
            "max_model_len": 512,
            "mm_processor_kwargs": {"max_pixels": 200704},
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        }
        engine = {"kind": "vllm", "served_model_name": "tiny-b", "settings": settings}
        path = tmp_path / "profiles" / "tiny-b.json"
        path.write_text(json.dumps(profile("tiny-b", engine=engine)))

        async def load(**wanted: Any) -> Answer:
            return await client.ask("POST", f"{MODELS}/tiny-b/load", json.dumps(wanted).encode(), KEY)

        same = {"vllm_max_model_len": 512, "vllm_max_pixels": 200704, "vllm_speculative_method": "mtp", "replicas": 1}
        unset = {"vllm_kv_cache_dtype": "auto", "vllm_kv_cache_memory_bytes": None, "vllm_speculative_model": None}
        assert (await load(**same, **unset, vllm_num_speculative_tokens=2)).status == 200
        assert helper.lines == ["load tiny-b root main\n"]
        # null counts too
        for field, value in (("vllm_max_model_len", 1024), ("vllm_max_model_len", None), ("vllm_max_pixels", 1)):
            answer = await load(**{**same, field: value})
            assert detail(answer) == (400, "invalid_load_request", "tiny-b")
            message = answer.json["detail"]["message"]
            assert field in message
            assert "vllm_speculative_method" not in message
            assert "ansible-playbook switch.yml -e profile=" in message
        assert "engine.settings.mm_processor_kwargs.max_pixels of the profile is 200704" in message
        # what llm-pool takes of nobody is told first
        for field, value, told in (
            ("vllm_max_model_len", 300, "300, no multiple of 256"),
            ("vllm_max_model_len", 128, "128, not at least 256"),
            ("vllm_kv_cache_dtype", "int3", "int3, none of auto, fp8, fp8_e4m3, fp8_e5m2"),
            ("vllm_kv_cache_memory_bytes", 1000, "1000, not at least 268435456"),
        ):
            answer = await load(**{field: value})
            assert detail(answer) == (400, "invalid_load_request", "tiny-b")
            assert f"{field} is {told}" in answer.json["detail"]["message"]
        # of another engine
        assert (
            "llama_server_n_ctx is none of vllm_serve" in (await load(llama_server_n_ctx=8)).json["detail"]["message"]
        )
        path.write_text(json.dumps(profile("tiny-b", engine={"kind": "llama-server", "settings": {"ctx_size": 512}})))
        assert (await load(llama_server_n_ctx=512, llama_server_spec_type=None)).status == 200
        told = (await load(llama_server_spec_draft_n_max=7)).json["detail"]["message"]
        assert "llama_server_spec_draft_n_max is 7, not from 1 to 6" in told
        assert len(helper.lines) == 2
        # as a profile of two replicas is resolved
        rows = [{"index": index} for index in range(2)]
        path.write_text(json.dumps(profile("tiny-b", engine={**engine, "replicas": rows})))
        answer = await load(replicas=1)
        assert "replicas of the profile is 2, and replicas is 1" in answer.json["detail"]["message"]
        assert (await load(replicas=2)).status == 200
        assert len(helper.lines) == 3


def test_what_a_load_may_say_is_what_the_profile_has() -> None:
    settings = {"max_model_len": 33000, "kv_cache_memory_bytes": 8603448832, "speculative_config": {"method": "mtp"}}
    engine = {"kind": "vllm", "settings": settings}
    found = row("x", {"engine": engine}, "unloaded", None, {}, True, kinds=KINDS)
    own = {"replicas": 1, "vllm_max_model_len": 33000, "vllm_kv_cache_memory_bytes": 8603448832}
    texts = {"vllm_speculative_method": "mtp", "vllm_kv_cache_dtype": "auto"}
    assert found["load_recommendations"] == {**own, **texts}
    assert found["load_constraints"] == {
        **{field: {"kind": "integer", "min": value, "max": value, "step": 1} for field, value in own.items()},
        **{field: {"kind": "enum", "values": [value]} for field, value in texts.items()},
    }
    assert found["load_override"] is None
    # what llm-pool would not take of others is taken where it is what the profile has
    profile = {"engine": engine}
    assert refused_overrides("x", {"vllm_max_model_len": 33000}, profile, KINDS, settled=False) is None


@pytest.mark.parametrize(
    ("engine", "backend", "modes", "formats", "turns"),
    [
        ({"kind": "vllm"}, "vllm_serve", ["default"], ["json_schema"], True),
        (
            {"kind": "vllm", "reasoning": {"how": "disabled", "template_kwargs": {"enable_thinking": False}}},
            *("vllm_serve", ["default", "disabled", "enabled"], ["json_schema"], True),
        ),
        (
            {"kind": "llama-server", "reasoning": {"how": "inline", "template_kwargs": {}}},
            *("llama_server", ["default", "enabled"], ["json_schema"], True),
        ),
        ({"kind": "vllm", "task": "embed"}, "vllm_serve", ["default"], [], False),
        ({"kind": "openai"}, "openai_remote", ["default"], [], True),
    ],
)
def test_capabilities_are_those_of_the_profile(
    engine: dict[str, Any], backend: str, modes: list[str], formats: list[str], turns: bool
) -> None:
    found = row("x", {"engine": engine, "modalities": ["text"]}, "loaded", None, {}, True, kinds=KINDS)
    assert found["resolved_backend"] == backend
    assert found["capabilities"] == {
        "modalities": ["text"],
        "file_inputs": [],
        "multi_turn": turns,
        "thinking_modes": modes,
        "response_formats": formats,
    }


@pytest.mark.parametrize(("size", "mib"), [(1.048576, 1000), (24, 22888), (None, None), (0, None), (True, None)])
def test_memory_is_estimated_by_the_weights(size: Any, mib: int | None) -> None:
    found = row("x", {"model": {"size_gb": size}}, "unloaded", None, {}, True)
    source = "unavailable" if mib is None else "model_artifact_size"
    told = [found[f"vram_estimate_{name}"] for name in ("mib", "replica_count", "source")]
    assert told == [mib, None if mib is None else 1, source]


def test_memory_is_what_was_estimated_for_the_profile_as_it_is_now(tmp_path: Path) -> None:
    profiles, estimates = tmp_path / "profiles", tmp_path / "main.json"
    profiles.mkdir()
    (profiles / "x.json").write_text(orjson.dumps({"fingerprint": "new"}).decode())
    told = {"x": {"fingerprint": "new", "held_mib": 29390}, "y": {"fingerprint": "odd", "held_mib": True}}
    estimates.write_text(orjson.dumps({"schema": 1, "profiles": told}).decode())
    known = Profiles(str(profiles), str(estimates))
    assert known.estimates.read() == {"new": 29390}
    found = row("x", {"model": {"size_gb": 24}}, "unloaded", None, {}, True, held_mib=29390)
    assert [found[f"vram_estimate_{name}"] for name in ("mib", "replica_count", "source")] == [
        *(29390, 1, "model_artifact_size"),
    ]
    for torn in ("", "{", "[]", '{"profiles": [1]}'):
        estimates.write_text(torn)
        assert known.estimates.read() == {}
    assert Profiles(str(profiles)).estimates.read() == {}
