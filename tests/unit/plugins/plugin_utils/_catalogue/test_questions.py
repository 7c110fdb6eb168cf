# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people ask the catalogue: where a value comes from, and which models are known to work."""

from __future__ import annotations

import re

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.models import known_models, load_models
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from unit import shipped

STACKS = load_stacks()
CATALOGUE = shipped.profiles()
C8 = "gemma4-12b-it-int4-autoround-c8"
LISTS = load_models()


def explained(name, site=None, catalogue=CATALOGUE):
    return explain(catalogue[name], STACKS[catalogue[name]["stack"]], site or {})


def test_each_value_names_the_file_that_it_is_written_in():
    lines = explained(f"{C8}-gmem096")
    assert f"engine.settings.gpu_memory_utilization: 0.96  <- {C8}-gmem096.yml" in lines
    assert f"frontdoor.queue_timeout_s: 0  <- {C8}.yml" in lines
    assert "engine.settings.dtype: bfloat16  <- gemma4-12b-it-int4-autoround.yml" in lines
    assert "engine.devices: [0, 1, 2, 3]  <- _b70-xpu.yml" in lines
    assert "engine.kill_signal: SIGINT  <- _defaults.yml" in lines
    assert "engine.task: generate  <- nobody: the default" in lines


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_setting_is_left_out(name):
    text = "\n".join(explained(name))
    for key in CATALOGUE[name]["engine"]["settings"]:
        assert f"engine.settings.{key}" in text
    assert "<- nobody" not in "\n".join(line for line in text.splitlines() if line.startswith("engine.settings"))


def test_a_profile_of_ones_own_name_is_told_from_the_shipped_one(tmp_path):
    mine = {"name": C8, "extends": C8, "status": "candidate", "frontdoor": {"max_active_generations": 4}}
    (tmp_path / f"{C8}.yaml").write_text(yaml.safe_dump(mine))
    lines = explained(C8, catalogue=load_catalogue([tmp_path]))
    assert f"frontdoor.max_active_generations: 4  <- {C8}.yaml" in lines
    assert f"engine.settings.max_num_seqs: 8  <- {C8}.yml" in lines


def test_each_variable_names_its_origin_and_whether_the_release_knows_it():
    lines = explained(C8, {"CCL_TOPO_P2P_ACCESS": "0"})
    assert "CCL_TOPO_P2P_ACCESS=0  <- site (slot_env)" in lines
    assert "ZE_AFFINITY_MASK=0,1,2,3  <- profile _b70-xpu (engine.devices)" in lines
    assert "HF_HOME=@hf_home@  <- slot main" in lines
    assert "LD_LIBRARY_PATH=@venv@/lib  <- stack xpu" in lines
    minimax = explained("minimax-m27-c1")
    (patched,) = [line for line in minimax if line.startswith("VLLM_XPU_FORCE_GRAPH_WITH_COMM=")]
    assert "<- profile minimax-m27-c1; vLLM 0.20.1 as released does not know it" in patched
    assert "VLLM_XPU_ENABLE_XPU_GRAPH=1  <- profile minimax-m27-c1" in minimax


def test_the_command_is_the_last_line():
    assert explained(C8)[-1].startswith("@venv@/bin/vllm serve @model_path@ --host @backend_host@ --port")


def ask(**question):
    *rows, last = known_models(LISTS, CATALOGUE, **question)
    return [row.split(" ")[0] for row in rows], rows, last


def test_models_are_found_by_name_precision_and_category():
    assert len(ask()[0]) == 85
    assert ask(model="qwen3.6-35b-a3b")[0] == ["Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.6-35B-A3B-FP8"]
    assert ask(precision="mxfp4")[0] == ["openai/gpt-oss-20b", "openai/gpt-oss-120b"]
    assert ask(category="audio")[0] == ["openai/whisper-medium", "openai/whisper-large-v3"]
    assert ask(model="glm-4-9b", precision="int4")[0] == []
    assert re.match(r"2 of 85 models; from README .* 2026-08-06$", ask(category="audio")[2])


def test_a_model_names_notes_and_the_profiles_that_serve_it():
    (row,) = ask(model="Qwen3.6-35B-A3B-FP8")[1]
    assert "the checkpoint is FP8 already" in row
    assert "qwen36-35b-a3b-fp8 (experiment)" in row


@pytest.mark.parametrize(
    ("question", "message"),
    [({"precision": "int3"}, 'precision "int3"; did you mean "int4"'), ({"category": "ear"}, 'the category "ear"')],
)
def test_a_question_that_no_list_understands_is_refused(question, message):
    with pytest.raises(ValueError, match=message):
        ask(**question)


def test_a_broken_list_is_refused(tmp_path):
    row = "{model: a/b, category: audio, precisions: [fp16], notes: [nope]}"
    text = f"name: mine\nsource: me\nprecisions: {{}}\nmodels:\n  - {row}\n"
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(CatalogueError, match=r"models\[0\].notes: 'nope' is not explained"):
        load_models(tmp_path)
    (tmp_path / "mine.yml").write_text(text.replace("audio", "sound"))
    with pytest.raises(CatalogueError, match=r"models\[0\].category: 'sound' is none of"):
        load_models(tmp_path)
