# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused, and what the message says."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from unit.shipped import load_inline

STACKS = load_stacks()
GOOD: dict[str, Any] = {
    "name": "x",
    "status": "experiment",
    "stack": "cpu",
    "cards": 0,
    "modalities": ["text"],
    "model": {"directory": "x"},
    "engine": {"settings": {"max_model_len": 512, "max_num_seqs": 4, "shutdown_timeout": 10}, "env": {"A": "1"}},
    "frontdoor": {"max_active_generations": 2},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good profile with one value set; ``...`` removes it."""
    profile = copy.deepcopy(GOOD)
    node = profile
    *parents, last = path.split("/")
    for key in parents:
        node = node.setdefault(key, {})
    if value is ...:
        node.pop(last)
    else:
        node[last] = value
    return profile


def refused(*profiles: dict[str, Any]) -> list[str]:
    """Return the messages, each as ``path: message`` without the file."""
    with pytest.raises(CatalogueError) as caught:
        load_inline({profile["name"]: profile for profile in profiles}, stacks=STACKS)
    return [str(problem).split(": ", 1)[1] for problem in caught.value.problems]


def test_the_good_profile_is_good():
    profile = load_inline({"x": GOOD})["x"]
    assert profile["title"] == profile["engine"]["served_model_name"] == profile["engine"]["cache_key"] == "x"
    assert profile["model"]["hf_repo"] is None
    assert profile["source_file"] == "b70_profiles[x]"


SETTINGS = "engine/settings/"
SHAPE = {"prompt_tokens": 8, "output_tokens": 8}
BROKEN = [
    ("titel", "X", 'titel: unknown key "titel"; did you mean "title"?'),
    (SETTINGS + "max_model_length", 1, '"max_model_length"; did you mean "max_model_len"?'),
    (SETTINGS + "max-num-seqs", 1, 'did you mean "max_num_seqs"?'),
    (SETTINGS + "host", "0.0.0.0", 'engine.settings.host: unknown key "host"'),
    (SETTINGS + "max_num_seqs", "8", "must be a whole number, not the text '8' (write it without quotes)"),
    (SETTINGS + "max_num_seqs", 0, "0 is below the smallest allowed value 1"),
    (SETTINGS + "max_num_seqs", True, "must be a whole number, not True"),
    (SETTINGS + "max_num_seqs", 1.5, "must be a whole number, not 1.5"),
    (SETTINGS + "enforce_eager", "yes", "must be true or false, not the text 'yes'"),
    (SETTINGS + "gpu_memory_utilization", 95, "95 is above the largest allowed value 1"),
    (SETTINGS + "gpu_memory_utilization", 0, "must be above 0"),
    (SETTINGS + "dtype", "bfloat", "is none of auto, half, float16, bfloat16"),
    (SETTINGS + "compilation_config", "{}", "must be a mapping, not '{}'"),
    (SETTINGS + "limit_mm_per_prompt", {"pictures": 1}, "as a name: 'pictures' is none of image, video, audio"),
    (SETTINGS + "limit_mm_per_prompt", {"image": 4}, "allows images, but modalities is ['text']"),
    (SETTINGS + "max_num_batched_tokens", 2, "2 is below max_num_seqs (4)"),
    (SETTINGS + "shutdown_timeout", 240, "240 must be above engine.settings.shutdown_timeout (240)"),
    (SETTINGS + "max_model_len", ..., "engine.settings.max_model_len: is missing"),
    (SETTINGS + "max_model_len", 8, "8 leaves no room in max_model_len (8)"),
    (SETTINGS + "tokenizer", "@modell_path@", '@modell_path@ is no placeholder; did you mean "model_path"?'),
    ("power_cap_w", 100, "power_cap_w: 100 is below the smallest allowed value 160"),
    ("power_cap_w", 210, "power_cap_w: caps the power of cards, but cards is 0"),
    ("warmup", {"shapes": [{"prompt_tokens": 8}]}, "warmup.shapes[0].output_tokens: is missing"),
    (
        "warmup",
        {"shapes": [{"prompt_tokens": 512, "output_tokens": 1}]},
        "prompt and answer have 513 tokens, but max_model",
    ),
    ("warmup", {"shapes": [{**SHAPE, "concurrency": 5}]}, "5 is above max_num_seqs (4): the rest would wait"),
    ("engine/env/A", 1, "engine.env.A: must be text, not 1 (put it in quotes)"),
    ("engine/env/A", True, "must be text, not True (put it in quotes)"),
    ("engine/env/a", "1", "as a name: 'a' must be upper-case letters"),
    ("engine/env/A", "x\ny", "engine.env.A: must be one line"),
    ("engine/env/A", "\x07", "holds a control character"),
    ("engine/env/A", "@nowhere@", "@nowhere@ is no placeholder"),
    ("engine/env/VLLM_HOST", "0.0.0.0", "belongs to the slot; use the role variable slot_backend_host"),
    ("engine/env/VLLM_PORT", "8000", "internal rendezvous port"),
    ("engine/env/VLLM_CACHE_ROOT", "/x", "use engine.cache_key"),
    ("engine/env/VLLM_MAX_MODEL_LEN", "1", "use engine.settings.max_model_len"),
    ("engine/env/FRONTDOOR_PORT", "8000", "is not read by the engine"),
    ("engine/extra_args", ["--max-num-seqs", "8"], "it already stands in engine.settings.max_num_seqs"),
    ("engine/extra_args", ["--max_num_seqs=8"], "it already stands in engine.settings.max_num_seqs"),
    ("engine/extra_args", ["--no-enable-prefix-caching"], "write engine.settings.enable_prefix_caching"),
    ("engine/extra_args", ["--new-flag", "1", "--new-flag=2"], "engine.extra_args[2]: --new-flag is given twice"),
    ("engine/extra_args", ["--port", "1"], "--port belongs to the slot"),
    ("engine/extra_args", ["--api-key", "1"], "use the frontdoor"),
    ("engine/extra_args", ["value"], "'value' is a value without a flag"),
    ("engine/extra_args", ["-q", "fp8"], "'-q' is a short flag"),
    ("engine/extra_args", "--x", "must be a list, not '--x'"),
    ("engine/env/CCL_TOPO_P2P_ACCESS", "1", "is set by engine.collectives.memory; use that, or slot_env"),
    ("engine/devices", [0], "engine.devices: names cards, but cards is 0"),
    ("engine/devices", [0, 0], "engine.devices: holds an entry twice"),
    ("engine/collectives", {"memory": "p2pp"}, "'p2pp' is none of p2p, usm"),
    ("engine/collectives", {"iface": "lo"}, 'unknown key "iface"; did you mean "interface"?'),
    ("engine/task", "embedding", 'is none of generate, embed, classify, score, transcription; did you mean "embed"?'),
    ("engine/online_quantization", {"method": "sym_int4"}, "no release of vLLM quantises to sym_int4; a stack whose"),
    ("engine/numa", {"policy": "bind"}, "engine.numa.nodes: is missing: the policy bind needs nodes"),
    ("engine/numa", {"nodes": [0]}, "engine.numa.policy: is missing: say what the nodes are for"),
    ("engine/numa", {"policy": "preferred", "nodes": [0, 1]}, "only one can be preferred"),
    ("engine/numa", {"cpus": "0-"}, "must be a list like 0-17,72-89"),
    ("engine/kind", "vlm", 'is none of vllm, llama-server, openai; did you mean "vllm"?'),
    ("engine/kill_signal", "SIGKILL", "is none of SIGINT, SIGTERM, SIGQUIT"),
    ("engine/cache_key", "a/b", "must be one folder name without slashes"),
    ("engine/stop_timeout_s", 5, "5 must be above engine.settings.shutdown_timeout (10)"),
    ("frontdoor/max_active_generations", 5, "5 is above engine.settings.max_num_seqs (4)"),
    ("frontdoor/queue_timeout_s", -1, "-1 is below"),
    ("frontdoor/chat_template_kwargs", "{}", "must be a mapping"),
    ("canary/same_answers_as", "nobody", 'canary.same_answers_as: must name another profile; there is no "nobody"'),
    ("frontdoor/max_active", 1, 'did you mean "max_active_generations"?'),
    ("status", "prodution", "'prodution' is none of production, baseline, candidate, research, experiment"),
    ("status", ..., "status: is missing, here and in every profile that this one extends"),
    ("status", "rejected", "status_reason: is required when the status is rejected"),
    ("modalities", ["text", "text"], "holds an entry twice"),
    ("modalities", [], "needs at least 1 entry"),
    ("modalities", ["text", "picture"], "modalities[1]: 'picture' is none of"),
    ("stack", "cpx", 'there is no stack manifest "cpx"; did you mean "cpu"?'),
    ("cards", -1, "-1 is below"),
    ("model/directory", ..., "model.directory: is missing"),
    ("model/hf_repo", "no-owner", "must be OWNER/NAME"),
    ("model/sha256", {"config.json": "abc"}, "model.sha256.config.json: 'abc' must be 64 lower-case hex digits"),
    ("canary/cases", [], "needs at least 1 entry"),
    ("canary/cases", [{"name": "a"}], "canary.cases[0].compare: is missing"),
    ("canary/repeats", 0, "0 is below"),
    ("extends", "_b70", 'there is no profile "_b70" to extend; did you mean "_b70-xpu"?'),
    ("extends", 5, "extends: must be text, not 5"),
]


@pytest.mark.parametrize(("path", "value", "message"), BROKEN)
def test_a_broken_profile_is_refused(path, value, message):
    assert message in "\n".join(refused(changed(path, value)))


def test_cards_must_suffice():
    profile = changed("cards", 2)
    profile["engine"]["settings"] |= {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    assert refused(profile) == [
        "cards: tensor_parallel_size 2 x pipeline_parallel_size 2 needs 4 cards, but cards is 2"
    ]
    profile = changed("cards", 2)
    profile["engine"]["devices"] = [0, 1, 2]
    assert "engine.devices: names 3 cards ([0, 1, 2]), but cards is 2" in refused(profile)[0]


def test_what_is_said_twice_is_refused():
    profile = changed("engine/task", "embed")
    profile["engine"]["settings"] |= {"runner": "generate", "speculative_config": {"method": "mtp"}}
    assert refused(profile) == [
        "engine.settings.runner: is given twice: engine.task sets it as well",
        "engine.settings.speculative_config: speculates on tokens, but engine.task is embed",
    ]
    profile = changed("engine/online_quantization", {"method": "fp8"})
    profile["engine"]["settings"]["quantization"] = "fp8"
    assert "given twice: engine.online_quantization.method sets it" in refused(profile)[0]


def test_experts_need_cards_to_be_spread_over():
    profile = changed("cards", 2)
    profile["engine"]["settings"]["enable_expert_parallel"] = True
    assert "nothing to spread experts over" in refused(profile)[0]
    profile["engine"]["settings"]["data_parallel_size"] = 2
    assert "x" in load_inline({"x": profile}, stacks=STACKS)


def test_an_image_case_needs_images():
    case = {"name": "a", "prompt": "p", "max_tokens": 1, "compare": "exact", "expected": "x"}
    case["image"] = "data:image/png;base64,AAAA"
    assert "the profile takes no images" in refused(changed("canary/cases", [case]))[0]


def test_a_language_model_has_no_images():
    profile = changed("modalities", ["text", "image"])
    profile["engine"]["settings"]["language_model_only"] = True
    assert "leaves out every encoder" in refused(profile)[0]


def test_all_faults_are_reported_at_once_and_once():
    bad = changed("titel", "X")
    bad["engine"]["settings"]["dtype"] = "nope"
    other = {**copy.deepcopy(GOOD), "name": "y", "stack": "nope", "extends": "gone"}
    found = refused(bad, other)
    assert [line.split(":")[0] for line in found] == ["engine.settings.dtype", "titel", "extends"]


def test_an_inherited_fault_is_reported_where_it_is_written():
    parent = changed("frontdoor/max_active_generations", 9)
    children = [{"name": name, "extends": "x", "status": "experiment"} for name in ("y", "z")]
    with pytest.raises(CatalogueError) as caught:
        load_inline({item["name"]: item for item in [parent, *children]})
    assert [(item.file, item.path) for item in caught.value.problems] == [
        ("b70_profiles[x]", "frontdoor.max_active_generations")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nname: x\n", 'line 2: the key "name" is given twice'),
        ("name: x\nengine:\n  settings:\n    dtype: auto\n    dtype: half\n", 'line 5: the key "dtype" is given twice'),
        ("name: [", "not valid YAML: line 2"),
        ("- a\n", "must be one YAML mapping"),
        ("name: y\n", "must be \"x\", like the file, not 'y'"),
        ("1: x\n", "line 1: the key 1 is not text; quote it"),
        ("name: x\nevidence: {date: 2026-06-07, on: yes}\n", "the key True is not text"),
        ("name: !!python/object:os.system x\n", "not valid YAML"),
        ("\x00", "cannot be read"),
    ],
)
def test_an_unusable_file_is_named(tmp_path, text, message):
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(CatalogueError, match="fault") as caught:
        load_catalogue([tmp_path])
    assert message in str(caught.value)
    assert str(tmp_path / "x.yml") in str(caught.value)


def test_two_files_of_one_name_and_a_missing_folder(tmp_path):
    for suffix in ("yml", "yaml"):
        (tmp_path / f"x.{suffix}").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(CatalogueError) as caught:
        load_catalogue([tmp_path, tmp_path / "gone"])
    assert "the same name stands in" in str(caught.value)
    assert "this folder does not exist" in str(caught.value)


def test_an_inline_profile_is_a_mapping_named_like_its_key():
    with pytest.raises(CatalogueError) as caught:
        load_inline({"a": "text", "b": {"name": "c"}})
    assert len(caught.value.problems) == 2


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "x.yml"
    file.write_text(yaml.safe_dump(GOOD))
    assert load_catalogue([tmp_path])["x"]["cards"] == 0
    file.write_text(yaml.safe_dump({**GOOD, "cards": 1}))
    assert load_catalogue([tmp_path])["x"]["cards"] == 1
