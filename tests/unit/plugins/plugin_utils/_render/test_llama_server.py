# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile of llama-server from its file to its unit, and to the files that are fetched for it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.engines import table
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import schema
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import render_slot
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import hub
from unit.plugins.plugin_utils._render.test_rendering import SETTINGS
from unit.shipped import load_inline

STACKS = {
    "llama": {"name": "llama", "device": "xpu", "engine": {"kind": "llama-server", "version": "0.5.0"}, "env": {}},
}
PROFILE: dict[str, Any] = {
    "status": "experiment",
    "stack": "llama",
    "cards": 1,
    "modalities": ["text", "image"],
    "model": {"directory": "gemma", "file": "gemma-Q8_0-00001-of-00002.gguf"},
    "engine": {
        "kind": "llama-server",
        "settings": {
            "ctx_size": 131072,
            "parallel": 2,
            "gpu_layers": 99,
            "flash_attn": "on",
            "cache_type_k": "q8_0",
            "mmproj": "@model_path@/mmproj-F16.gguf",
            "kv_unified": False,
            "slots": False,
        },
    },
}


def loaded(**changes):
    data = copy.deepcopy(PROFILE)
    for dotted, value in changes.items():
        target: dict[str, Any] = data
        *path, last = dotted.split("__")
        for key in path:
            target = target.setdefault(key, {})
        target[last] = value
    return load_inline({"mine": data})["mine"]


def files(**changes):
    settings = {**SETTINGS, "stacks": STACKS}
    found = render_slot({"mine": loaded(**changes)}, settings)
    return {
        item["path"].rsplit("/", 1)[1]: item["content"] for item in found if not item["path"].startswith("/opt/b70")
    }


def test_a_stack_with_another_engine_is_refused():
    stacks = {"cpu": {"name": "cpu", "engine": {"kind": "vllm", "version": "0.32.0"}}}
    with pytest.raises(CatalogueError, match=r"stack: cpu has vLLM, but engine.kind is llama-server"):
        load_inline({"mine": {**PROFILE, "stack": "cpu"}}, stacks=stacks)


DRAFT = {"hf_repo": "a/draft", "revision": "d" * 40, "directory": "gemma-draft", "file": "draft-Q4_0.gguf"}
DRAFT_PATH = f"/mnt/fast-ai/llm-models/gemma-draft@{'d' * 40}"


def test_a_model_beside_its_own_is_named_by_its_place():
    changes = {"model__draft": DRAFT, "engine__settings__spec_draft_model": "@draft_file@"}
    resolved = json.loads(files(**changes)["mine.json"])
    argv = resolved["engine"]["argv"]
    assert argv[argv.index("--spec-draft-model") + 1] == f"{DRAFT_PATH}/draft-Q4_0.gguf"
    assert resolved["model"]["companions"] == [DRAFT_PATH]
    assert parse_profile(json.dumps(resolved), "x").model.companions == (DRAFT_PATH,)
    other = json.loads(files(**{**changes, "model__draft": {**DRAFT, "revision": "e" * 40}})["mine.json"])
    assert other["fingerprint"] != resolved["fingerprint"]
    assert "companions" not in json.loads(files()["mine.json"])["model"]


def test_the_unit_waits_for_the_disk_of_a_second_model():
    changes = {"model__draft": DRAFT, "engine__settings__spec_draft_model": "@draft_file@"}
    unit = files(**changes)["b70-slot-main-mine.service"]
    wanted = next(line for line in unit.splitlines() if line.startswith("RequiresMountsFor="))
    assert {"/mnt/fast-ai/llm-models/gemma", DRAFT_PATH} <= set(wanted.partition("=")[2].split())


def test_the_files_that_are_loaded_are_those_that_are_fetched():
    given = {"model__hf_repo": "a/gemma", "model__revision": "c" * 40, "model__draft": DRAFT}
    profile = loaded(**given, engine__settings__spec_draft_model="@draft_file@")
    found = hub.from_catalogue({"mine": profile}, ["mine"], {})
    assert found["gemma"]["include"] == ["gemma-Q8_0-*-of-00002.gguf", "mmproj-F16.gguf"]
    assert found["gemma-draft"]["include"] == ["draft-Q4_0.gguf"]
    assert [source["exclude"] for source in found.values()] == [[], []]


def test_its_command_line():
    resolved = json.loads(files()["mine.json"])
    program, *argv = resolved["engine"]["argv"]
    assert program == f"{resolved['stack']['dir']}/venv/bin/llama-server"
    assert argv == [
        *("--model", "/mnt/fast-ai/llm-models/gemma/gemma-Q8_0-00001-of-00002.gguf", "--alias", "mine"),
        *("--host", "127.0.0.1", "--port", "18080"),
        *("--offline", "--no-ui", "--metrics", "--fit", "off"),
        *("--cache-type-k", "q8_0", "--ctx-size", "131072", "--flash-attn", "on", "--gpu-layers", "99"),
        *("--no-kv-unified", "--mmproj", "/mnt/fast-ai/llm-models/gemma/mmproj-F16.gguf", "--parallel", "2"),
        "--no-slots",
    ]
    # Nothing that was written for the engine of its parent.
    assert not [name for name in resolved["engine"]["env"] if name.startswith("VLLM_")]
    # A request has the context of one slot.
    assert resolved["engine"]["max_model_len"] == 65536
    assert resolved["frontdoor"]["max_active_generations"] == 2
    assert resolved["canary"]["cached"] is True


def test_its_unit_and_what_the_host_reads():
    rendered = files()
    profile = parse_profile(rendered["mine.json"], "mine.json")
    assert (profile.engine.kind, profile.engine.directives[0]) == ("llama-server", "KillSignal=SIGTERM")
    assert "\nKillSignal=SIGTERM\n" in rendered["b70-slot-main-mine.service"]


def test_its_fingerprint_knows_the_file_and_not_what_changes_no_token():
    def fingerprint(**changes):
        return json.loads(files(**changes)["mine.json"])["fingerprint"]

    assert fingerprint(engine__settings__slots=True) == fingerprint()
    assert fingerprint(model__file="gemma-Q4_0.gguf") != fingerprint()
    assert fingerprint(engine__settings__cache_type_k="f16") != fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__file": None}, "model.file: is missing"),
        ({"model__file": "gemma.bin"}, "must be a GGUF file below the directory"),
        (
            {"engine__settings__spec_draft_model": "@draft_file@"},
            "@draft_file@ stands for model.draft, which is missing",
        ),
        ({"model__draft": {"file": "d.gguf"}}, "model.draft.directory: is missing"),
        ({"model__draft": {"file": "d.gguf", "directory": "gemma"}}, "is that of the model; name its file there"),
        ({"model__file": "../gemma.gguf"}, "must be a GGUF file below the directory"),
        ({"engine__settings__ctx_size": None}, "engine.settings.ctx_size: is missing"),
        ({"engine__settings__max_model_len": 5}, 'unknown key "max_model_len"'),
        ({"engine__settings__flash_attn": "yes"}, "'yes' is none of on, off, auto"),
        ({"engine__task": "embed"}, "llama.cpp takes generate here, not embed"),
        ({"engine__online_quantization": {"method": "fp8"}}, "llama.cpp loads weights as they are"),
        ({"engine__extra_args": ["--hf-repo", "a/b"]}, "--hf-repo belongs to the slot; use the role model_weights"),
        ({"engine__extra_args": ["--parallel", "3"]}, "it already stands in engine.settings.parallel"),
        ({"engine__extra_args": ["--threads", "3"]}, "write engine.settings.threads"),
        ({"engine__env": {"LLAMA_ARG_FIT": "on"}}, "belongs to the slot; use engine.settings"),
        ({"frontdoor__max_active_generations": 3}, "3 is above engine.settings.parallel (2)"),
        ({"engine__reasoning": {"how": "inline"}}, "inline does not go with reasoning_format auto"),
        ({"engine__kind": "vllm", "engine__settings": {"max_model_len": 512}}, "vLLM loads the whole directory"),
    ],
)
def test_what_cannot_work_is_named(changes, message):
    with pytest.raises(CatalogueError) as raised:
        loaded(**changes)
    assert message in str(raised.value)


def test_its_settings_are_options_of_the_release():
    options = (table("llama-server", "0.5.0") or {})["options"]
    owned = KINDS["llama-server"].owned_flags
    for key, rule in schema("llama-server-settings.schema.json")["properties"].items():
        assert key in options
        assert key.replace("_", "-") not in owned
        kinds = set(rule.get("type", ["string"])) - {"null"}
        if options[key]["form"] in ("flag", "switch"):
            assert kinds == {"boolean"}
        else:
            names = {"text": "string", "integer": "integer", "number": "number"}
            accepted = {names[kind] for kind in options[key]["accepts"]}
            assert kinds <= accepted | {"string"}, key
        choices = options[key].get("choices")
        assert choices is None or set(rule.get("enum", choices)) - {None} <= set(choices)
