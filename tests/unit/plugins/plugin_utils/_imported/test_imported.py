# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compose files and configurations of llama-swap as people have them become profiles, and nothing in them is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._imported import reading
from ansible_collections.arcpro.b70.plugins.plugin_utils._imported.launch import Fate
from ansible_collections.arcpro.b70.plugins.plugin_utils._imported.profile import as_yaml, import_text, lines
from ansible_collections.arcpro.b70.plugins.plugin_utils._imported.reading import Unusable
from unit.shipped import STACKS, load_inline

FILES = Path(__file__).parent / "files"
# File, what it is, service or model, and whether each word of its command line is a value of the file as it stands.
STARTS = [
    ("vllm-openai-xpu", "compose", ""),
    ("llm-scaler", "compose", ""),
    ("two-cards", "compose", "vllm"),
    ("two-cards", "compose", "vllm-tp2"),
    ("llama-sycl", "compose", ""),
    ("llama-variables", "compose", ""),
    ("llama-swap", "llama_swap", "gpt-oss-120b"),
    ("llama-swap", "llama_swap", "docker-llama"),
]
Imported = tuple[dict[str, Any], list[Fate]]


def imported(file: str, form: str = "compose", chosen: str = "", **more: Any) -> Imported:
    return import_text((FILES / f"{file}.yml").read_text(), "mine", STACKS, form=form, chosen=chosen, **more)


def service(**keys: Any) -> Imported:
    """Import a Compose file with one service of llm-scaler's image."""
    given = {"image": "intel/llm-scaler-vllm:0.26.0-b1", "command": "vllm serve a/b --max-model-len 4096", **keys}
    return import_text(yaml.safe_dump({"services": {"s": given}}), "mine", STACKS)


def llama(command: str, **keys: Any) -> Imported:
    given = {"image": "ghcr.io/ggml-org/llama.cpp:server-intel", "command": command, **keys}
    return import_text(yaml.safe_dump({"services": {"s": given}}), "mine", STACKS)


def became(fates: list[Fate], label: str) -> str:
    """Return what became of one part of a file, which may be several values with one answer."""
    (found,) = {fate.became for fate in fates if fate.label == label}
    return found


@pytest.mark.parametrize(("file", "form", "chosen"), STARTS)
def test_the_catalogue_accepts_each_profile_and_every_value_of_the_file_is_told(
    file: str, form: str, chosen: str
) -> None:
    profile, fates = imported(file, form, chosen)
    assert load_inline({"mine": profile}, STACKS)["mine"]["stack"] == profile["stack"]
    assert yaml.safe_load(as_yaml(profile)) == profile
    told = {key for fate in fates for key in fate.keys}
    assert told == set(reading.leaves(reading.load((FILES / f"{file}.yml").read_text())))
    assert all(fate.became for fate in fates)


@pytest.mark.parametrize(
    ("file", "chosen"), [("vllm-openai-xpu", ""), ("two-cards", "vllm-tp2"), ("llama-sycl", ""), ("llm-scaler", "")]
)
def test_every_word_of_a_command_line_is_told_once(file: str, chosen: str) -> None:
    document = reading.mapped(reading.load((FILES / f"{file}.yml").read_text()), reading.ComposeVariables({}).replace)
    name = chosen or next(iter(document["services"]))
    given = document["services"][name]
    words = [*given.get("entrypoint", []), *given["command"]]
    if len(given["command"]) == 1:
        words = [*given["entrypoint"], *reading.split(given["command"][0])[0]]
    _profile, fates = imported(file, chosen=chosen)
    lines_of = (".command", ".entrypoint")
    told = [word for fate in fates if any(part in key for key in fate.keys for part in lines_of) for word in fate.words]
    assert not Counter(words) - Counter(told)
    assert Counter(told) == Counter(words)


def test_options_become_settings_and_cards() -> None:
    profile, fates = imported("two-cards", chosen="vllm-tp2")
    assert (profile["cards"], profile["engine"]["devices"], profile["stack"]) == (2, [0, 1], "xpu")
    assert profile["model"] == {"directory": "Qwen3.8-27B-INT4"}
    assert profile["modalities"] == ["text", "image"]
    assert profile["engine"]["served_model_name"] == "Qwen3.8-27B"
    settings = profile["engine"]["settings"]
    assert settings["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert (settings["gpu_memory_utilization"], settings["enable_prefix_caching"]) == (0.92, True)
    # Two rules of the stack are broken by what the file says; their remedies are taken, and told.
    assert settings["compilation_config"] == {"cudagraph_mode": "NONE"}
    assert "two cards wrote gibberish" in became(fates, "(rule graphs-on-several-cards)")
    assert became(fates, "services.vllm") == "is another service of the file"


def test_an_image_that_a_stack_has_keeps_its_stack() -> None:
    profile, fates = imported("llama-sycl")
    assert profile["stack"] == "llama-cpp-intel-b11243"
    assert profile["model"] == {"directory": "Qwen3.8-27B-GGUF", "file": "Qwen3.8-27B-UD-Q4_K_M.gguf"}
    assert profile["engine"]["settings"]["spec_draft_n_max"] == 3
    assert became(fates, "services.llama-sycl.command[17] --metrics").startswith("belongs to the slot")


def test_variables_of_llama_server_are_options_and_dead_ones_are_named_with_what_replaced_them() -> None:
    profile, fates = imported("llama-variables")
    settings = profile["engine"]["settings"]
    assert (settings["flash_attn"], settings["batch_size"], settings["gpu_layers"]) == ("on", 1024, 99)
    assert profile["model"]["file"] == "qwen2.5-coder-14b-instruct-q4_k_m.gguf"
    where = "services.llama.environment."
    assert "GGML_SYCL_ENABLE_OPT with the opposite" in became(fates, f"{where}GGML_SYCL_DISABLE_OPT")
    assert became(fates, f"{where}LLAMA_ARG_MLOCK").startswith("not carried over: llama.cpp 0.5.0")


def test_an_option_of_the_command_line_precedes_its_variable() -> None:
    profile, fates = llama("-m /models/a.gguf -c 2048", environment={"LLAMA_ARG_CTX_SIZE": "512"})
    assert profile["engine"]["settings"]["ctx_size"] == 2048
    assert "precedes it" in became(fates, "services.s.environment.LLAMA_ARG_CTX_SIZE")


def test_a_model_of_llama_swap_keeps_its_names_and_macros() -> None:
    profile, fates = imported("llama-swap", "llama_swap", "gpt-oss-120b")
    assert profile["title"] == "gpt-oss 120B"
    assert profile["engine"]["settings"]["ctx_size"] == 16384  # the model's macro, not the one for all
    assert profile["engine"]["extra_args"] == ["--temp", "0.7"]
    assert profile["engine"]["served_model_name"] == "gpt-oss-120b"
    assert profile["frontdoor"] == {"model_aliases": ["gpt-4o-mini"], "max_active_generations": 2}
    assert "sk-hunter2" not in "\n".join(lines(fates)) + as_yaml(profile)


def test_a_container_of_llama_swap_has_its_files_where_the_host_has_them() -> None:
    profile, _fates = imported("llama-swap", "llama_swap", "docker-llama")
    assert profile["model"] == {"directory": "/mnt/nvme/models", "file": "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"}


def test_env_beside_the_file_precedes_its_defaults() -> None:
    known = reading.environment_of('# mine\nexport VLLM_MODEL="Qwen/Qwen3-8B"  # small\nVLLM_SERVED_MODEL_NAME=qwen\n')
    profile, fates = imported("vllm-openai-xpu", variables=known)
    assert profile["model"]["hf_repo"] == "Qwen/Qwen3-8B"
    assert profile["engine"]["served_model_name"] == "qwen"
    assert not any("VLLM_MODEL," in fate.label for fate in fates)
    assert any("VLLM_EAGER_FLAG" in fate.label for fate in fates)


SECRET = "hf_abcdefghijklmnopqrstuvwx"


@pytest.mark.parametrize(
    ("keys", "label", "told"),
    [
        ({"environment": {"HF_TOKEN": SECRET}}, "environment.HF_TOKEN", "model_weights_hub_token"),
        ({"environment": [f"HF_TOKEN={SECRET}"]}, "environment[0] HF_TOKEN", "model_weights_hub_token"),
        ({"environment": ["VLLM_API_KEY=s3cret"]}, "environment[0] VLLM_API_KEY", "frontdoor_api_keys"),
        ({"command": f"vllm serve a/b --hf-token {SECRET}"}, "command --hf-token", "model_weights"),
        ({"command": f"vllm serve a/b --api-key={SECRET}"}, "command --api-key", "the frontdoor"),
        ({"command": f"vllm serve a/b --tokenizer {SECRET}"}, "command --tokenizer", "is a secret"),
        (
            {"command": ["bash", "-c", f"export HF_TOKEN={SECRET} && vllm serve a/b"]},
            "command[2] HF_TOKEN",
            "see there",
        ),
    ],
)
def test_a_secret_is_refused_with_its_place_and_is_shown_nowhere(keys: dict[str, Any], label: str, told: str) -> None:
    profile, fates = service(**keys)
    assert any(fate.label == f"services.s.{label}" and told in fate.became for fate in fates)
    shown = as_yaml(profile) + "\n".join(lines(fates))
    assert SECRET not in shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("vllm serve a/b -tp 2 --max_model_len 8k --enforce-eager", {"tensor_parallel_size": 2, "max_model_len": 8000}),
        ("python3 -m vllm.entrypoints.openai.api_server --model a/b --max-model-len=4K", {"max_model_len": 4096}),
        ("vllm serve a/b --gpu-memory-util 0.8 --no-enable-prefix-caching", {"enable_prefix_caching": False}),
        (
            "vllm serve a/b --speculative-config.method mtp --speculative-config.num_speculative_tokens 2 -tp 1",
            {},
        ),
        (["/bin/sh", "-c", "pip list; exec vllm serve a/b \\\n  --seed 7\n"], {"seed": 7}),
        (["vllm serve a/b --seed 7"], {"seed": 7}),
        ("numactl --cpunodebind=0 vllm serve a/b --seed 7", {"seed": 7}),
    ],
)
def test_spellings_of_command_lines(command: Any, settings: dict[str, Any]) -> None:
    profile, _fates = import_text(
        yaml.safe_dump({"services": {"s": {"image": "x/vllm", "command": command}}}), "mine", STACKS
    )
    assert profile["model"]["hf_repo"] == "a/b"
    assert settings.items() <= profile["engine"]["settings"].items()
    if "speculative" in str(command):
        assert profile["engine"]["settings"]["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2}
    assert load_inline({"mine": profile}, STACKS)


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (
            "-hf ggml-org/gemma-3-4b-it-GGUF:Q8_0",
            {"hf_repo": "ggml-org/gemma-3-4b-it-GGUF", "file": "gemma-3-4b-it-Q8_0.gguf"},
        ),
        ("--hf-repo a/b-GGUF --hf-file c.gguf", {"hf_repo": "a/b-GGUF", "file": "c.gguf"}),
        ("--hf-file c.gguf --hf-repo a/b-GGUF", {"hf_repo": "a/b-GGUF", "file": "c.gguf"}),
        ("-m /models/x/c.gguf -c 0", {"directory": "/srv/gguf/x", "file": "c.gguf"}),
    ],
)
def test_models_of_llama_server(command: str, model: dict[str, str]) -> None:
    profile, fates = llama(command, volumes=["/srv/gguf:/models:ro"])
    assert model.items() <= profile["model"].items()
    assert load_inline({"mine": profile}, STACKS)
    assert any("ctx_size: 8192" in fate.became for fate in fates)


def test_models_beside_the_model_are_placed_like_it() -> None:
    draft = """--speculative-config '{"method": "dflash", "model": "c/d", "num_speculative_tokens": 1}'"""
    command = f"vllm serve a/b --max-num-seqs 1 --enforce-eager {draft}"
    profile, fates = service(image="other/vllm", command=command)
    assert profile["model"]["draft"] == {"hf_repo": "c/d", "directory": "mine-draft"}
    assert profile["engine"]["settings"]["speculative_config"]["model"] == "@draft_path@"
    assert became(fates, "(draft model)") == "model.draft.hf_repo: c/d"
    profile, _fates = llama(
        "-m /m/x/a.gguf --mmproj /m/x/mmproj.gguf -md /m/y/draft.gguf -ngl all", volumes=["/srv:/m"]
    )
    assert profile["modalities"] == ["text", "image"]
    assert profile["model"]["draft"] == {"directory": "/srv/y", "file": "draft.gguf"}
    settings = profile["engine"]["settings"]
    assert (settings["mmproj"], settings["spec_draft_model"]) == ("@model_path@/mmproj.gguf", "@draft_file@")
    assert settings["gpu_layers"] == "all"
    assert load_inline({"mine": profile}, STACKS)


def test_files_of_the_host_become_mounts_of_an_image_and_paths_elsewhere() -> None:
    volumes = ["/srv/t.jinja:/templates/t.jinja:ro", "/srv/fix.py:/app/fix.py:ro", "./local.py:/app/local.py"]
    command = "vllm serve a/b --max-model-len 4096 --chat-template /templates/t.jinja --max-num-seqs 1"
    profile, fates = service(command=command, volumes=volumes)
    assert profile["stack"] == "llm-scaler-0.26.0-b1"
    assert profile["engine"]["mounts"] == {"/srv/t.jinja": "/templates/t.jinja", "/srv/fix.py": "/app/fix.py"}
    assert became(fates, "services.s.volumes[2]").startswith("not carried over: put it on the host")
    profile, fates = service(command=command, volumes=volumes, image="other/vllm")
    assert profile["engine"]["settings"]["chat_template"] == "/srv/t.jinja"
    assert "mounts" not in profile["engine"]


def test_paths_below_the_model_are_the_models() -> None:
    command = "vllm serve /m/x --tokenizer /m/x --max-model-len 512 --enable-lora --lora-modules a=/m/l b=/m/x/b"
    profile, fates = service(command=command, volumes=["/srv/models:/m"])
    assert profile["model"] == {"directory": "/srv/models/x"}
    settings = profile["engine"]["settings"]
    assert (settings["tokenizer"], settings["lora_modules"]) == ("@model_path@", ["a=/m/l", "b=@model_path@/b"])
    assert profile["engine"]["mounts"] == {"/srv/models/l": "/m/l"}
    assert became(fates, "services.s.volumes[0]") == "holds what the command line names, see there"
    assert load_inline({"mine": profile}, STACKS)


def test_what_turns_off_a_value_that_nothing_gives_changes_nothing() -> None:
    profile, fates = llama("-m /models/a.gguf --no-mmproj -fa --temp", environment={"LLAMA_ARG_NO_MMPROJ": "1"})
    assert profile["engine"]["settings"] == {"flash_attn": "on", "ctx_size": 8192}
    assert became(fates, "services.s.command --no-mmproj").startswith("not carried over: it has no value")
    assert became(fates, "services.s.command --temp").startswith("not carried over: it has no value")
    assert "env" not in profile["engine"]


def test_what_the_release_does_not_have_is_left_out_with_the_reason() -> None:
    command = "vllm serve a/b --max-model-len 4096 --device xpu --dtype foo --max-num-seqs 8 --max-num-batched-tokens 4"
    profile, fates = service(image="other/vllm", command=command)
    assert became(fates, "services.s.command --device").startswith(
        "not carried over: vLLM 0.31.0 of the stack xpu has no"
    )
    assert "'foo' is none of auto" in became(fates, "services.s.command --dtype")
    assert "is below max_num_seqs" in became(fates, "services.s.command --max-num-batched-tokens")
    assert profile["engine"]["settings"] == {"max_model_len": 4096, "max_num_seqs": 8}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("services: {a: {image: redis}}", "no service of it starts vLLM or llama-server; it has a"),
        (
            "services: {a: {image: vllm/x, command: q/w}, b: {image: vllm/y}}",
            "several start an engine: name one of a, b",
        ),
        ("services: {a: {extends: b, image: vllm/x}}", "services.a.extends: other services are not read; write what"),
        ("include: [x]\nservices: {a: {image: vllm/x}}", "include: other files are not read; write what"),
        ("services: {a: {image: vllm/x, image: vllm/y}}", 'line 1: the key "image" is given twice'),
        ("services: {a: {image: vllm/x, command: '${MODEL}'}}", "names no model"),
        ("services: {a: {image: vllm/x, command: vllm serve 'a}}", "cannot be split into words"),
        ("services: [", "is not valid YAML"),
        ("[]", "is no YAML mapping"),
        ("services: {}", "has no services"),
        ("services: {v: 7}", "the service v is no mapping"),
        ("services: {v: {image: vllm/x, command: [a/b], environment: 3}}", "services.v.environment is no list"),
        ("services: {v: {image: vllm/x, command: [a/b], volumes: {a: b}}}", "services.v.volumes is no list"),
    ],
)
def test_a_file_that_starts_no_engine_is_refused_with_what_to_do(text: str, told: str) -> None:
    with pytest.raises(Unusable) as caught:
        import_text(text, "mine", STACKS)
    assert told in str(caught.value)


def test_a_key_that_nobody_knows_is_told_too() -> None:
    more = {"x-mine": {"a": [1, {"b": 2}]}, "strange": {"deep": [{"er": "x"}]}, "gpus": "all"}
    _profile, fates = service(**more)
    assert became(fates, "services.s.strange.deep[0].er") == "not carried over: nothing here has such a key"
    assert became(fates, "services.s.x-mine.a[1].b") == "not carried over: nothing here has such a key"
    assert became(fates, "services.s.gpus").startswith("the unit of the slot")


def test_what_a_later_option_or_the_remedy_of_a_rule_replaces_is_told() -> None:
    options = (
        "--middleware a.B --middleware c.D --limit-mm-per-prompt image=2,video=0 --hf-overrides '{bad' "
        "--max-num-seqs -1 --seed 4 --seed 8"
    )
    profile, fates = service(image="other/vllm", command=f"vllm serve a/b {options}")
    settings = profile["engine"]["settings"]
    assert (settings["limit_mm_per_prompt"], settings["seed"]) == ({"image": 2, "video": 0}, 8)
    assert settings["middleware"] == ["a.B", "c.D"]
    assert profile["modalities"] == ["text", "image"]
    assert "neither a mapping nor a list" in became(fates, "services.s.command --hf-overrides")
    assert "below the smallest" in became(fates, "services.s.command --max-num-seqs")
    assert became(fates, "(no max_num_seqs)").startswith("the frontdoor admits one request at a time")
    seeds = [fate.became for fate in fates if fate.label == "services.s.command --seed"]
    assert seeds == ["not carried over: what stands behind it precedes it", "engine.settings.seed: 8"]
    profile, fates = llama("-m /models/a.gguf -sm row -ts 1,1 -c 16k")
    assert profile["cards"] == 2
    assert profile["engine"]["settings"]["split_mode"] == "layer"
    assert "the remedy of the rule rows-over-cards" in became(fates, "services.s.command -sm")
    assert became(fates, "services.s.command -c") == "not carried over: its value is no number"


def test_an_unknown_service_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Unusable, match='has no service "vlm"; it has vllm, vllm-tp2, grafana'):
        imported("two-cards", chosen="vlm")
    with pytest.raises(Unusable, match='the service "grafana" starts neither vLLM nor llama-server'):
        imported("two-cards", chosen="grafana")
