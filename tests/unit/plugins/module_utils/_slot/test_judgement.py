# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pure judgements: canary answers, identity, units, health replies, profiles, state and journal texts."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import canary, identity, judge
from ansible_collections.arcpro.b70.plugins.module_utils._slot.journal import encode, remember
from ansible_collections.arcpro.b70.plugins.module_utils._slot.profile import CanaryCase, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.progress import engine_hint
from ansible_collections.arcpro.b70.plugins.module_utils._slot.state_file import current_env, parse_state
from ansible_collections.arcpro.b70.plugins.module_utils._slot.symptoms import SYMPTOMS, diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Reply, SlotFault, UnitState
from unit.plugins.module_utils._slot.world import profile_data

PROFILE = parse_profile(json.dumps(profile_data("a")), "a.json")


def case(compare="exact", expected="OK", **changes):
    return CanaryCase(
        **({"name": "c", "prompt": "p", "max_tokens": 8, "compare": compare, "expected": expected} | changes)
    )


def chat(text, **extra):
    return Reply(200, json.dumps({"choices": [{"message": {"content": text}, **extra}]}))


@pytest.mark.parametrize(
    ("compare", "expected", "text", "passed"),
    [
        ("exact", "OK", " OK\n", True),
        ("exact", "OK", "ok", False),
        ("exact", "OK", "OK.", False),
        ("contains", "red", "It is RED.", True),
        ("contains", "red", "blue", False),
        ("regex", r"^\s*42\s*$", "42", True),
        ("regex", r"^\s*42\s*$", "422", False),
        ("sha256", hashlib.sha256(b"satin cobalt orbit").hexdigest(), "satin cobalt orbit ", True),
        ("sha256", "sha256:" + hashlib.sha256(b"x").hexdigest(), "x", True),
        ("sha256", hashlib.sha256(b"x").hexdigest(), "y", False),
    ],
)
def test_compare(compare, expected, text, passed):
    result = canary.evaluate(PROFILE, case(compare, expected), text, 0.5, 1)
    assert result.passed is passed
    assert result.sha256 == hashlib.sha256(text.strip().encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("!" * 12, "character '!'"),
        ("the " * 12, "word 'the'"),
        ("a\ufffdb", "replacement"),
        ("a\x00b", "control"),
    ],
)
def test_degenerate_answers_fail_without_a_baseline(text, words):
    assert words in canary.degenerate(text)
    assert not canary.evaluate(PROFILE, case("regex", ".*"), text, 0.1, 1).passed


@pytest.mark.parametrize(
    "text", ["OK", "7", "satin cobalt orbit", "a\tb\nc", "na na na", "        indented", "1000000"]
)
def test_language_is_not_degenerate(text):
    assert canary.degenerate(text) == ""


def test_a_wanted_run_is_not_degenerate():
    assert canary.degenerate("0" * 20, expected="0" * 20) == ""


def test_long_answers_are_cut():
    assert len(canary.evaluate(PROFILE, case(), "x y " * 500, 0.1, 1).got) <= canary.SHOWN + 1


def test_a_broken_expression_is_named():
    with pytest.raises(SlotFault, match="no regular expression"):
        canary.evaluate(PROFILE, case("regex", "("), "x", 0.1, 1)


def test_payload_is_greedy_and_seeded():
    body = canary.payload(PROFILE, case())
    assert (body["temperature"], body["top_p"], body["seed"], body["stream"]) == (0, 1.0, 20260607, False)
    assert body["model"] == "a"
    assert "chat_template_kwargs" not in body
    data = profile_data("a", frontdoor__chat_template_kwargs={"enable_thinking": False})
    body = canary.payload(parse_profile(json.dumps(data), "x"), case())
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_the_image_of_a_case_is_drawn():
    content = canary.payload(PROFILE, case(image={"width": 3, "height": 2, "colour": "red"}))["messages"][0]["content"]
    url = content[1]["image_url"]["url"]
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    assert zlib.decompress(data[start : start + size]) == (b"\0" + b"\xff\0\0" * 3) * 2
    assert canary.image_url("data:image/png;base64,AA") == "data:image/png;base64,AA"
    with pytest.raises(SlotFault, match="beige"):
        canary.png(1, 1, "beige")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(0, error="timeout"), "timeout"),
        (Reply(500, "boom"), "500 boom"),
        (Reply(200, "<html>"), "<html>"),
        (Reply(200, '{"choices": []}'), "choices"),
    ],
)
def test_no_answer(reply, words):
    with pytest.raises(SlotFault) as caught:
        canary.answer(reply)
    assert words in str(caught.value.got)


def test_answer_of_a_reasoning_model():
    assert canary.answer(Reply(200, json.dumps({"choices": [{"message": {"reasoning_content": "hm"}}]}))) == "hm"


@pytest.mark.parametrize(
    ("reply", "nan"),
    [
        (chat("x", logprobs={"content": [{"logprob": -0.5}]}), False),
        (chat("x", logprobs={"content": [{"logprob": float("nan")}]}), True),
        (chat("x"), False),
        (Reply(500, "Out of range float values are not JSON compliant: nan"), True),
        (Reply(500, "other"), False),
    ],
)
def test_nan_is_found(reply, nan):
    assert canary.nan_logprob(reply) is nan


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
        (unit(restarts=1), "loop"),
    ],
)
def test_came_up(state, up):
    if isinstance(up, bool):
        assert judge.came_up(state, 0) is up
    else:
        with pytest.raises(SlotFault, match=up):
            judge.came_up(state, 0)


def test_stayed_up():
    judge.stayed_up(unit(), "1" * 32, 0)
    judge.stayed_up(unit(restarts=3), "1" * 32, 3)
    for state in (unit(invocation_id="2" * 32), unit(active="inactive", main_pid=0), unit(restarts=1)):
        with pytest.raises(SlotFault):
            judge.stayed_up(state, "1" * 32, 0)


@pytest.mark.parametrize(
    ("reply", "result"),
    [(Reply(200), True), (Reply(503), False), (Reply(0, error="refused"), False), (Reply(404), None)],
)
def test_health(reply, result):
    if result is None:
        with pytest.raises(SlotFault):
            judge.healthy(reply)
    else:
        assert judge.healthy(reply) is result


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
    state = parse_state('{"schema": 1, "slot": "main", "sequence": 3, "phase": "serving", "later": 1}')
    assert state is not None
    assert (state.sequence, state.open) == (3, False)
    assert parse_state(state.to_json()) == state


def test_current_env_is_quoted():
    data = profile_data("a", title='a "quoted" \\ title\nnext')
    text = current_env("main", parse_profile(json.dumps(data), "x"), verified=True)
    assert 'B70_PROFILE_TITLE="a \\"quoted\\" \\\\ title next"' in text.splitlines()
    assert 'B70_VERIFIED="1"' in text.splitlines()


def test_the_journal_is_folded():
    lines = [
        encode("begin", id="1", at="t1", kind="switch", **{"from": None, "to": "a"}),
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
            canary=[{"profile": "a", "name": "ok"}, {"profile": "b", "name": "no"}],
        ),
        "torn {",
        "[]",
        encode("begin", id="2", at="t3", kind="switch", **{"from": "a", "to": "b"}),
        encode("phase", id="2", phase="stop", direction="forward"),
    ]
    memory = remember(lines)
    assert memory.verified is not None
    assert (memory.verified.profile, memory.verified.cases, memory.seconds) == ("a", ("ok",), {"a": 12.5})
    assert memory.interrupted is not None
    assert (memory.interrupted.id, memory.interrupted.phase) == ("2", "stop")
    memory = remember([*lines, encode("end", id="2", outcome="interrupted")])
    assert memory.interrupted is None
    assert memory.verified is not None
    assert remember([*lines, encode("end", id="2", outcome="stopped", failures=[{"message": "m"}])]).verified is None


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ((), None),
        (("nothing to see",), None),
        (("INFO 06-07 09:00:01 [loader.py:1] Loading weights took 3.1 seconds",), "Loading weights took 3.1 seconds"),
        (
            ("(EngineCore pid=3) INFO 06-07 09:00:01 [gpu_model_runner.py:33] Capturing CUDA graphs", "x"),
            "Capturing CUDA graphs",
        ),
        (("a\rLoading safetensors checkpoint shards:  62% Completed | 5/8",), "62%"),
        (("Capturing graphs " + "x" * 500,), "…"),
    ],
)
def test_hints(lines, hint):
    found = engine_hint(lines)
    assert found is None if hint is None else hint in str(found)


@pytest.mark.parametrize(
    ("line", "symptom", "words"),
    [
        (
            "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            "device_lost",
            "reboot",
        ),
        ("ur error UR_RESULT_ERROR_OUT_OF_RESOURCES", "out_of_resources", "max_num_seqs"),
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
