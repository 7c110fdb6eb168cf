# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pure judgements: identity, units, health replies, profiles, state and journal texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import identity
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide import unit_checks
from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.progress import engine_hint
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import SYMPTOMS, diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import (
    Wanted,
    begins_with_memory,
    encode,
    encode_memory,
    remember,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.load_times import LoadTimes
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.state_file import current_env, parse_state
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault, UnitState
from unit.plugins.module_utils._slot.fake_host import profile_data

PROFILE = parse_profile(json.dumps(profile_data("a")), "a.json")


def models(name, length):
    return Reply(200, json.dumps({"data": [{"id": name, "max_model_len": length}]}))


def test_served_identity():
    assert identity.check_served(PROFILE, models("a", 512)) == "a"
    assert identity.check_served(PROFILE, models("a", None)) == "a"
    for reply in (models("b", 512), models("a", 99), Reply(500), Reply(200, "[]")):
        with pytest.raises(SlotFault):
            identity.check_served(PROFILE, reply)


ARGV = ("/venv/bin/vllm", "serve", "/m", "--port", "18080")


@pytest.mark.parametrize(
    ("cmdline", "words"),
    [
        (ARGV, None),
        (("/venv/bin/python3", *ARGV), None),
        (("VLLM::APIServer",), None),
        (("VLLM::APIServer", "", ""), None),
        ((), None),
        ((*ARGV, "--seed", "1"), "--seed"),
        (ARGV[:-1], "18080"),
        (("/venv/bin/vllm", "serve", "--port", "18080", "/m"), "order"),
    ],
)
def test_command_line(cmdline, words):
    drift = identity.command_drift(ARGV, cmdline)
    assert drift is None if words is None else words in str(drift)


def test_environment():
    assert identity.environment_drift({"A": "1"}, {"A": "1", "B": "2"}) is None
    assert identity.environment_drift({"A": "1"}, {}) is None
    for environ in ({"A": "2"}, {"B": "2"}):
        assert "A" in str(identity.environment_drift({"A": "1"}, environ))


def unit(**changes):
    values: dict[str, Any] = {
        "name": "u",
        "active": "active",
        "sub": "running",
        "main_pid": 7,
        "invocation_id": "1" * 32,
    }
    return UnitState(**(values | changes))


@pytest.mark.parametrize(
    ("state", "up"),
    [
        (unit(), True),
        (unit(active="activating", sub="start", main_pid=0), False),
        (unit(active="inactive", sub="dead", main_pid=0, job=12), False),
        (unit(main_pid=0), "ended"),
        (unit(active="inactive", sub="dead", main_pid=0), "ended"),
        (unit(active="deactivating"), "ended"),
        (
            unit(active="failed", sub="failed", main_pid=0, result="exit-code", exit_code="exited", exit_status="3"),
            "failed",
        ),
        (unit(active="activating", sub="auto-restart", main_pid=0), "loop"),
        (unit(active="activating", sub="auto-restart-queued", main_pid=0), "loop"),
        (unit(active="activating", sub="auto-restart", main_pid=0, exit_code="exited", exit_status="0"), "loop"),
        (unit(restarts=1), "loop"),
    ],
)
def test_came_up(state, up):
    if isinstance(up, bool):
        assert unit_checks.came_up(state, 0) is up
    else:
        with pytest.raises(SlotFault, match=up):
            unit_checks.came_up(state, 0)


def test_stayed_up():
    unit_checks.stayed_up(unit(), "1" * 32, 0)
    unit_checks.stayed_up(unit(restarts=3), "1" * 32, 3)
    for state in (unit(invocation_id="2" * 32), unit(active="inactive", main_pid=0), unit(restarts=1)):
        with pytest.raises(SlotFault):
            unit_checks.stayed_up(state, "1" * 32, 0)


@pytest.mark.parametrize(
    ("reply", "result"),
    [(Reply(200), True), (Reply(503), False), (Reply(0, error="refused"), False), (Reply(404), None)],
)
def test_health(reply, result):
    if result is None:
        with pytest.raises(SlotFault):
            unit_checks.healthy(reply)
    else:
        assert unit_checks.healthy(reply) is result


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"status": "fine"}, "status"),
        ({"unit": None}, "unit is missing"),
        ({"engine__argv": []}, "engine.argv"),
        ({"engine__max_model_len": "512"}, "engine.max_model_len"),
        ({"engine__max_model_len": True}, "engine.max_model_len"),
        ({"canary__cases": []}, "known answer"),
        ({"canary__cases": [{"name": "x"}]}, r"canary.cases\[0\].prompt"),
        ({"frontdoor": []}, "frontdoor"),
    ],
)
def test_a_broken_profile_names_file_and_key(changes, words):
    with pytest.raises(SlotFault, match=words) as caught:
        parse_profile(json.dumps(profile_data("a", **changes)), "/etc/p/a.json")
    assert "/etc/p/a.json" in caught.value.message


def test_a_profile_that_is_no_json():
    with pytest.raises(SlotFault, match="not JSON"):
        parse_profile("{", "x.json")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 2}', '{"schema": 1, "sequence": "x", "phase": "a"}'])
def test_an_unreadable_state_is_none(text):
    assert parse_state(text) is None


def test_state_keeps_unknown_fields_out():
    fields = {"schema": 1, "slot": "main", "sequence": 3, "updated_at": "", "phase": "serving", "later": 1}
    state = parse_state(json.dumps(fields))
    assert state is not None
    assert (state.sequence, state.open) == (3, False)
    assert parse_state(state.to_json()) == state


def test_current_env_is_quoted():
    data = profile_data("a", title='a "quoted" \\ title\nnext')
    text = current_env("main", parse_profile(json.dumps(data), "x"), verified=True)
    assert 'B70_PROFILE_TITLE="a \\"quoted\\" \\\\ title next"' in text.splitlines()
    assert 'B70_VERIFIED="1"' in text.splitlines()


def test_the_journal_is_folded():
    compared = {"sha256": "5e", "request": "9a", "steady": True}
    lines = [
        encode("begin", id="1", at="t1", kind="switch", mode="switch", who="ann", **{"from": None, "to": "a"}),
        encode("phase", id="1", phase="health", direction="forward"),
        encode(
            "end",
            id="1",
            at="t2",
            outcome="committed",
            kind="switch",
            profile="a",
            fingerprint="f",
            verified=True,
            seconds=12.5,
            key="a on s",
            loads=[{"key": "a on s", "seconds": 8.25}],
            canary=[
                {"profile": "a", "name": "ok", "passed": True, "attempt": 3, **compared},
                {"profile": "b", "name": "no", "passed": True, "attempt": 3},
            ],
        ),
        "torn {",
        "[]",
        encode("begin", id="2", at="t3", kind="switch", **{"from": "a", "to": "b"}),
        encode("phase", id="2", phase="stop", direction="forward"),
    ]
    memory = remember(lines)
    assert memory.verified is not None
    case = {"name": "ok", "repeats": 3, **compared}
    assert (memory.verified.profile, memory.verified.cases) == ("a", (case,))
    assert memory.wanted == Wanted("a", "f", "verified", "t2", "ann")
    assert memory.load_times == LoadTimes({"a on s": (8.25,)}, {"a on s": (12.5,)})
    # The next file begins with all of it.
    head = encode_memory(memory)
    assert begins_with_memory(head)
    assert remember(head.splitlines()) == memory
    assert remember(['{"event":"memory","attempts":[{"no":1}]}', *lines]) == memory
    assert memory.interrupted is not None
    assert (memory.interrupted.id, memory.interrupted.phase) == ("2", "stop")
    memory = remember([*lines, encode("end", id="2", outcome="interrupted")])
    assert memory.interrupted is None
    assert memory.verified is not None
    # A failure leaves the way back as it was.
    assert (
        remember([*lines, encode("end", id="2", outcome="stopped", failures=[{"message": "m"}])]).verified is not None
    )


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ((), None),
        (("nothing to see",), None),
        (
            ("INFO 06-07 09:00:01 [default_loader.py:502] Loading weights took 3.12 seconds",),
            "weights loaded in 3.12 s",
        ),
        (("a\rLoading safetensors checkpoint shards:  62% Completed | 5/8 [00:12<00:07]",), "loading weights 62 %"),
        (("Loading safetensors using Runai Model Streamer:  40% Completed | 2/5",), "loading weights 40 %"),
        (("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|██  | 2/5 [00:01]",), "capturing graphs 40 %"),
        (("(Worker_TP0 pid=8) INFO [r.py:6582] Graph capturing finished in 4 secs, took 0.49 GiB",), "graphs captured"),
        (("INFO [backends.py:278] Compiling a graph for compile range (1, 4096) takes 55.98 s",), "compiling"),
        (("INFO [monitor.py:48] torch.compile takes 8.29 s in total",), "compiled in 8.29 s"),
        (("INFO [monitor.py:20] torch.compile took 8.29 s in total",), "compiled in 8.29 s"),
        (("INFO [r.py:5150] Model loading took 2.8871 GiB memory and 6.44 seconds",), "model loaded, 2.8871 GiB"),
        (("INFO [kv_cache_utils.py:1319] GPU KV cache size: 188,512 tokens",), "KV cache for 188,512 tokens"),
        (
            ("INFO [core.py:403] init engine (profile, create kv cache, warmup model) took 14.77 s",),
            "engine initialised in 14.77 s",
        ),
        (("INFO [model.py:733] Resolved architecture: Qwen3ForCausalLM", "x"), "starting Qwen3ForCausalLM"),
        (("INFO:     Application startup complete.",), "about to answer"),
        (("INFO 06-07 09:00:01 [other.py:3] warmed 30 % of it",), "warmed 30 % of it"),
        (("5% " + "x" * 500,), "5% " + "x" * 116 + "…"),
    ],
)
def test_hints(lines, hint):
    assert engine_hint(lines) == hint


@pytest.mark.parametrize(
    ("line", "symptom", "words"),
    [
        (
            "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            "device_lost",
            "Reboot the host",
        ),
        ("ur error UR_RESULT_ERROR_OUT_OF_RESOURCES", "out_of_resources", "gpu_memory_utilization"),
        ("the estimated maximum model length is 114432. Try", "context_does_not_fit", "114432"),
        ("To serve at least one request with the models's max seq len (118000)", "context_does_not_fit", "Lower"),
        ("ImportError: x.so: undefined symbol: _ZN5torch7Library4_defE", "kernels_abi", "vllm-xpu-kernels"),
        ("AssertionError: Handler already registered for aten", "duplicate_handler", "2.11.0"),
        ("vllm: error: unrecognized arguments: --async-engine", "removed_argument", "--async-engine"),
        ("InvalidCxxCompiler: No working C++ compiler found in (None, 'g++')", "no_compiler", "g++"),
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
            "engine_core_died",
            "journalctl",
        ),
        ("OSError: [Errno 98] Address already in use", "port_in_use", "ss -ltnp"),
        ("Main process exited, code=killed, status=9/KILL", "too_little_memory", "journalctl -k"),
        ("ModuleNotFoundError: No module named 'vllm._C'", "missing_module", "vllm._C"),
        ("ocloc failed with 245", "compiler_crash", "Harmless"),
        ("WARNING Unknown vLLM environment variable detected: VLLM_XPU_X", "unknown_variable", "VLLM_XPU_X"),
    ],
)
def test_symptoms(line, symptom, words):
    match = diagnose(["INFO nothing", line, "INFO nothing more"])
    assert match is not None
    assert match.symptom.id == symptom
    assert words in match.advice


def test_the_telling_symptom_outranks_the_harmless_one():
    match = diagnose(["UR_RESULT_ERROR_DEVICE_LOST", "Unknown vLLM environment variable detected: X"])
    assert match is not None
    assert match.symptom.id == "device_lost"
    assert diagnose(["all is well"]) is None
    assert all(not (symptom.fatal and symptom.harmless) for symptom in SYMPTOMS)
