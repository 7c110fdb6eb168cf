# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kind llama-server, judged by what a real one said; tests/tools/llama_server.py writes that, with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import identity
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.unit_checks import healthy
from ansible_collections.arcpro.b70.plugins.module_utils._slot.do.progress import engine_hint
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kind import Weights
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.llama_server import LLAMA_SERVER
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look import guards
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault
from unit.plugins.module_utils._slot import exchanges
from unit.plugins.module_utils._slot.fake_host import LAYOUT, LOST, profile_data

FOLDER = Path(__file__).parent / "llama_server"


def said(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())["said"]


def reply(name: str) -> Reply:
    status, text = said(name)
    return Reply(status, text)


class Recorded:
    """Answers what the real one answered to the same request; what it was not asked fails."""

    def __init__(self, **instead: str) -> None:
        self.left: dict[str, list[tuple[int, str]]] = {}
        for asked, (status, text) in said("switch"):
            for right, wrong in instead.items():
                text = text.replace(f'"content":"{right}"', f'"content":"{wrong}"')
            self.left.setdefault(asked, []).append((status, text))

    def __call__(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, str]:
        return self.left[exchanges.key(path, body)].pop(0)


def test_the_slot_switches_to_it():
    fake_host, engine = exchanges.llama_host(), Recorded()
    result = exchanges.switched(fake_host, engine)
    assert (result["outcome"], fake_host.open, fake_host.running) == ("committed", True, [fake_host.unit("tiny").name])
    # It asks what the real one was asked, all of it and nothing else.
    assert not any(engine.left.values())


def test_a_wrong_answer_is_not_let_in():
    result = exchanges.switched(exchanges.llama_host(), Recorded(OK="KO"))
    assert result["outcome"] == "stopped"
    assert "canary case exact_ok of tiny failed" in result["msg"]


def test_its_canary_asks_cold_and_warm_in_turn():
    cold, warm = json.loads(reply("again_cold").text)["usage"], json.loads(reply("warm").text)["usage"]
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    assert warm["prompt_tokens_details"]["cached_tokens"] > 0
    # A salt is nothing to it: that is why it gets none.
    assert json.loads(reply("salted").text)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert LLAMA_SERVER.apart({}, "s") == {"cache_prompt": False}
    assert LLAMA_SERVER.apart({}, "s", again=True) == {"cache_prompt": True}


def test_it_is_healthy_when_its_model_is_loaded():
    assert healthy(reply("health"))
    assert not healthy(reply("health_while_loading"))


def test_it_tells_the_context_of_one_slot():
    assert LLAMA_SERVER.served(reply("models_idle")) == ("tiny", 1024)
    data = profile_data("tiny", engine__kind="llama-server", engine__max_model_len=2048)
    with pytest.raises(SlotFault) as raised:
        identity.check_served(parse_profile(json.dumps(data), "x"), reply("models_idle"))
    assert (raised.value.expected, raised.value.got) == ("max_model_len 2048", "max_model_len 1024")


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        (exchanges.SETTINGS, 1024),
        ({"ctx_size": 8192, "parallel": 1}, 8192),
        ({"ctx_size": 1000, "parallel": 3}, 512),  # rounded up, as it does
        ({"ctx_size": 8192, "parallel": 4, "kv_unified": True}, 8192),
        ({"ctx_size": 8192, "parallel": 4, "kv_unified": True, "kv_unified_per_slot": 4096}, 4096),
        ({"ctx_size": 8192}, 8192),  # its own number of slots share one cache
        ({"ctx_size": 0, "parallel": 2}, None),
        ({"parallel": 2}, None),
    ],
)
def test_the_context_of_a_request_follows_from_the_settings(settings, length):
    assert LLAMA_SERVER.context_length(settings) == length


def test_its_metrics_have_the_names_that_are_read():
    text = reply("metrics").text
    names = LLAMA_SERVER.metrics
    assert f"\n{names.tokens} " in text
    assert "cache_usage" not in text
    assert names.cache == ""


def test_it_ends_well_by_the_signal_that_it_gets():
    assert (LLAMA_SERVER.kill_signal, said("log")["status"], said("interrupted")["status"]) == ("SIGTERM", 0, 0)


def log(name: str) -> list[str]:
    return [line for line in said(name)["log"].splitlines() if line]


@pytest.mark.parametrize(
    ("name", "symptom", "words"),
    [
        ("no_such_option", "removed_argument", "--no-such-option"),
        ("no_such_model", "missing_weights", "model_weights"),
        ("port_in_use", "port_in_use", "ss -ltnp"),
    ],
)
def test_why_it_does_not_start_is_found_in_its_log(name, symptom, words):
    assert said(name)["status"] == 1
    match = diagnose(log(name), kind=LLAMA_SERVER)
    assert match is not None
    assert (match.symptom.id, words in match.advice) == (symptom, True)


def test_a_log_of_a_good_run_has_no_symptom():
    assert diagnose(log("log"), kind=LLAMA_SERVER) is None


@pytest.mark.parametrize(
    "line",
    [
        "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)Exception caught at file:x.cpp, line:1",
        "0.01.403.969 E srv    send_error: task id = 16, error: UR_RESULT_ERROR_DEVICE_LOST",
    ],
)
def test_no_line_of_it_isolates_a_host(line):
    # It prints a grammar that a client sent over several lines: whoever asks could write such a line.
    match = diagnose([line], kind=LLAMA_SERVER)
    assert match is None or not match.symptom.quarantines


def test_its_end_while_it_served_isolates_no_host_either():
    fake_host = exchanges.llama_host()
    assert exchanges.switched(fake_host, Recorded())["outcome"] == "committed"
    assert fake_host.state.engine["metrics"] == {"tokens": "llamacpp:tokens_predicted_total", "cache": ""}
    fake_host.log_lines = (LOST,)
    assert quarantine.lost_while_serving(fake_host.effects(), fake_host.state, ()) is None
    of_vllm = replace(fake_host.state, engine={**fake_host.state.engine, "kind": "vllm"})
    assert quarantine.lost_while_serving(fake_host.effects(), of_vllm, ()) is not None


def test_what_stands_further_on_in_a_line_is_not_believed():
    line = "0.01.403.969 E srv    send_error: task id = 16, error: failed to open GGUF file 'x'"
    assert diagnose([line], kind=LLAMA_SERVER) is None


def test_how_far_a_start_is():
    lines = log("log")
    begun = next(index for index, line in enumerate(lines) if "loading model" in line)
    assert engine_hint(lines[: begun + 1], LLAMA_SERVER) == "loading weights"
    loaded = next(index for index, line in enumerate(lines) if "n_slots" in line)
    assert engine_hint(lines[: loaded + 1], LLAMA_SERVER) == "weights loaded, preparing 2 slots"
    assert engine_hint(lines[: loaded + 2], LLAMA_SERVER) == "about to answer"


PATH = PurePosixPath("/models/m")


def lacking(names: list[str], *words: str) -> str:
    try:
        LLAMA_SERVER.check_weights(Weights("m", PATH, names, ["llama-server", *words], lambda _path: None))
    except SlotFault as fault:
        return fault.message.removeprefix("the weights of m are incomplete: ")
    return ""


def test_every_file_that_its_command_line_names_is_there():
    assert lacking(["README.md"]) == "no GGUF file in /models/m"
    assert lacking(["a.gguf"], "--model", "/models/m/a.gguf") == ""
    assert lacking(["a.gguf"], "--model", "/models/m/b.gguf") == "/models/m has no b.gguf"
    words = ("--model", "/models/m/a.gguf", "--mmproj", "/models/m/mmproj-f16.gguf")
    assert lacking(["a.gguf"], *words) == "/models/m has no mmproj-f16.gguf"
    assert lacking(["a.gguf", "mmproj-f16.gguf"], *words) == ""


def test_every_part_of_a_split_file_is_there():
    words = ("--model", "/models/m/q-00001-of-00003.gguf")
    parts = [f"q-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert lacking(parts, *words) == ""
    assert lacking(parts[:2], *words) == "/models/m has no q-00003-of-00003.gguf"


def guarded(*words: str, companions: tuple[str, ...] = (), **files: str) -> str:
    """What the guard says of a profile's weights, with these files on the host."""
    fake_host = exchanges.llama_host(engine__argv=["/x/llama-server", *words])
    for path in files.values():
        fake_host.put(PurePosixPath(path), "GGUF")
    text = fake_host.texts[LAYOUT.profiles_dir / f"{exchanges.NAME}.json"][0]
    profile = parse_profile(text, "x")
    profile = replace(profile, model=replace(profile.model, companions=companions))
    try:
        guards.check_weights(fake_host.effects(), profile)
    except SlotFault as fault:
        return fault.message
    return ""


def test_a_file_in_a_folder_and_a_model_beside_the_own_are_looked_for():
    first, second = (f"/models/tiny/Q4/m-0000{number}-of-00002.gguf" for number in (1, 2))
    assert "has no Q4/m-00002-of-00002.gguf" in guarded("--model", first, one=first)
    assert guarded("--model", first, one=first, two=second) == ""
    draft = "/models/draft/d.gguf"
    words = ("--model", "/models/tiny/tiny-a.gguf", "--spec-draft-model", draft)
    assert "/models/draft is empty or not there" in guarded(*words, companions=("/models/draft",))
    assert guarded(*words, companions=("/models/draft",), one=draft) == ""
