# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial's rendering, and what the engine's log says of its cache, in the words of its releases."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._context_search.lengths import Trial
from ansible_collections.arcpro.b70.plugins.module_utils._context_search.trial import (
    length_of,
    longest,
    read_trial,
    refused_trial,
    with_length,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.rendering import Rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault
from unit.plugins.module_utils._slot.fake_host import profile_data

PREFIX = "(EngineCore_DP0 pid=812) INFO 06-07 09:00:00 [kv_cache_utils.py:1314]"
LOG = (
    f"{PREFIX} GPU KV cache size: 667,253 tokens",
    f"{PREFIX} Maximum concurrency for 15,616 tokens per request: 42.73x",
    "(APIServer pid=1) INFO 06-07 09:00:01 [api_server.py:1] Application startup complete.",
)
UNIT = "[Service]\nExecStart=/opt/b70/vllm serve \\\n    --port 18080 \\\n    --max-model-len 15616 \\\n    --seed 0\n"


def rendered(unit: str = UNIT, *words: str) -> Rendering:
    argv = ["/opt/b70/vllm", "serve", "--port", "18080", *(words or ("--max-model-len", "15616")), "--seed", "0"]
    settings = {"max_model_len": 15616, "max_num_seqs": 64}
    data = profile_data("b", engine__argv=argv, engine__max_model_len=15616, engine__settings=settings)
    return Rendering("b", unit, "{}", json.dumps(data))


# vLLM 0.32.0 on a processor; with cards of Intel the first word is XPU.
ONE_LINE = (
    "(EngineCore pid=22782) INFO 11-23 16:32:12 [kv_cache_utils.py:2327] CPU KV cache size: 2,097,152 tokens, "
    "Maximum concurrency for 2,048 tokens per request: 1024.00x"
)


@pytest.mark.parametrize("device", ["CPU", "XPU", "GPU", "XPU + host"])
def test_a_release_that_says_it_in_one_line_and_names_the_device_is_read(device: str) -> None:
    lines = ["Using LBHNC KV cache layout.", ONE_LINE.replace("CPU KV", f"{device} KV")]
    assert read_trial(2048, lines, 5.0) == Trial(2048, 2097152, 1024.0, seconds=5.0)


def test_only_the_length_and_the_fingerprint_change() -> None:
    before = rendered()
    after = with_length(before, 4480)
    assert after.unit == before.unit.replace("15616", "4480")
    old, new = json.loads(before.profile), json.loads(after.profile)
    assert new["engine"]["argv"] == [word.replace("15616", "4480") for word in old["engine"]["argv"]]
    assert (new["engine"]["max_model_len"], new["engine"]["settings"]["max_model_len"]) == (4480, 4480)
    assert new["fingerprint"] != old["fingerprint"]
    assert with_length(before, 4096).profile != after.profile
    same = {**new, "engine": old["engine"], "fingerprint": old["fingerprint"]}
    assert same == old
    assert (length_of(before), length_of(after)) == (15616, 4480)


def test_a_flag_and_its_value_in_one_word() -> None:
    after = with_length(rendered(UNIT.replace("len 15616", "len=15616"), "--max-model-len=15616"), 4480)
    assert "--max-model-len=4480 " in after.unit
    assert "--max-model-len=4480" in json.loads(after.profile)["engine"]["argv"]


def test_another_flag_that_begins_alike_stays() -> None:
    unit = UNIT.replace("--seed 0", "--max-model-len-x 15616 \\\n    --x--max-model-len 15616")
    assert with_length(rendered(unit), 4480).unit.count("15616") == 2


def test_what_the_engine_says_of_its_cache() -> None:
    assert read_trial(15616, LOG, 66.21) == Trial(15616, 667253, 42.73, seconds=66.2)


def test_the_last_size_counts() -> None:
    again = (f"{PREFIX} GPU KV cache size: 600,000 tokens", LOG[1])
    assert read_trial(15616, (*LOG, *again), 1).kv_tokens == 600000


@pytest.mark.parametrize(
    "lines",
    [
        (),
        LOG[:1],
        LOG[1:],
        (LOG[0], f"{PREFIX} Maximum concurrency for 4,096 tokens per request: 71.29x"),
        # What a client may have sent says nothing.
        (LOG[0], "(APIServer pid=1) INFO Maximum concurrency for 15,616 tokens per request: 99.00x"),
    ],
)
def test_a_log_that_does_not_tell_is_no_trial(lines: tuple[str, ...]) -> None:
    with pytest.raises(SlotFault, match="does not say how many sequences fit"):
        read_trial(15616, lines, 1)


def test_an_engine_that_did_not_start_tells_what_would_fit() -> None:
    line = "ValueError: To serve at least one request ... the estimated maximum model length is 13,520."
    assert refused_trial(262144, (line,), 40.04) == Trial(262144, None, 0.0, 13520, 40.0)
    assert refused_trial(262144, (), 40).most is None


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ('{"max_position_embeddings": 262144}', 262144),
        ('{"text_config": {"max_position_embeddings": 131072}}', 131072),
        ('{"max_position_embeddings": 512}', 4096),
        ("{}", 4096),
        ("[]", 4096),
        ("no JSON", 4096),
        (None, 4096),
    ],
)
def test_the_longest_context_of_a_model(config: str | None, length: int) -> None:
    assert longest(config, 4096) == length
