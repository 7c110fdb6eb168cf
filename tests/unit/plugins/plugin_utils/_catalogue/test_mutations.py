# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles and stacks broken in every way that can be generated: each is refused, and the message names the key.

The schemas are judged by jsonschema as well, so that what we refuse is what an editor underlines.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import VLLM
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.checking import OWNED_ENV
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import SHIPPED, schema
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.schema import faults
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.typed import DERIVED_ENV
from unit.shipped import load_inline

STACKS = load_stacks()
PROFILE: dict[str, Any] = {
    "name": "x",
    "status": "experiment",
    "stack": "cpu",
    "cards": 0,
    "modalities": ["text"],
    "model": {"directory": "x"},
    "engine": {"settings": {"max_model_len": 512, "max_num_seqs": 4, "shutdown_timeout": 10}, "env": {"A": "1"}},
    "frontdoor": {"max_active_generations": 2},
}
STACK: dict[str, Any] = {
    "name": "x",
    "installable": True,
    "machines": ["x86_64"],
    "python": {"min": "3.11", "below": "3.13"},
    "disk_mib": 1,
    "engine": {"kind": "vllm", "version": "0.21.0"},
}
LLAMA = {**PROFILE, "stack": "llama-cpu", "engine": {"kind": "llama-server", "settings": {"ctx_size": 512}}}
REMOTE = {**PROFILE, "stack": "remote", "engine": {"kind": "openai", "settings": {"max_model_len": 512}}}
WRONG = {"integer": "8", "number": "8", "boolean": "true", "string": 5, "array": "x", "object": "x"}


def changed(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with the value at a path of keys joined by slashes."""
    result = copy.deepcopy(dict(document))
    node: Any = result
    *parents, last = path.split("/")
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value
    return result


def mutations(rules: Mapping[str, Any], good: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(path, wrong value)`` for every typed place of a schema, and a key that nobody knows in each mapping.

    good: what stands at the path in a right document; it decides what else the schema wants there.
    """
    if rules.get("additionalProperties") is False:
        yield f"{path}/no_such_key".lstrip("/"), 1
    for key, inner in rules.get("properties", {}).items():
        where = f"{path}/{key}".lstrip("/")
        kinds = inner.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if where == "name":
            continue
        if kinds:
            yield where, [[]] if "array" not in kinds else 5
            if "string" not in kinds:
                yield where, WRONG[kinds[0]]
        elif "enum" in inner:
            yield where, "no-such-value"
            yield where, 5
        for limit, step in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0)):
            if limit in inner:
                yield where, inner[limit] + step
        if "pattern" in inner:
            yield where, "\n"
        if inner.get("minItems"):
            yield where, []
        if kinds and kinds[0] == "object":
            yield from mutations(inner, good.get(key, {}), where)
    if "if" in rules:
        choice = "else" if list(faults(good, rules["if"])) else "then"
        yield from mutations(rules.get(choice, {}), good, path)


KINDS = [
    ("profile.schema.json", PROFILE, 600),
    ("profile.schema.json", LLAMA, 400),
    ("profile.schema.json", REMOTE, 200),
    ("stack.schema.json", STACK, 40),
]


@pytest.mark.parametrize(("name", "good", "least"), KINDS)
def test_every_mutation_is_refused_with_its_key_by_us_and_by_jsonschema(name, good, least):
    rules = schema(name)
    jsonschema.Draft202012Validator.check_schema(rules)
    judge = jsonschema.Draft202012Validator(rules)
    assert not list(judge.iter_errors(good))
    assert not list(faults(good, rules))
    count = 0
    for path, value in mutations(rules, good):
        count += 1
        broken = changed(good, path, value)
        places = [where for where, _message in faults(broken, rules)]
        assert path.replace("/", ".") in places, (path, value, places)
        theirs = [".".join(map(str, error.absolute_path)) for error in judge.iter_errors(broken)]
        # An unknown key is theirs to report in the mapping that holds it.
        assert {path.replace("/", "."), path.rpartition("/")[0].replace("/", ".")} & set(theirs), (path, value, theirs)
    assert count >= least


@pytest.mark.parametrize(
    ("folder", "name"),
    [("catalogue", "profile"), ("examples", "profile"), ("stacks", "stack"), ("models", "models")],
)
def test_jsonschema_takes_everything_that_is_shipped(folder, name):
    files = sorted((SHIPPED / folder).glob("*.yml"))
    assert files
    for file in files:
        data = yaml.safe_load(file.read_text())
        assert not list(jsonschema.Draft202012Validator(schema(f"{name}.schema.json")).iter_errors(data)), file.name


def refusals(broken: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return ``{name: ["path: message"]}`` of many inline profiles, read at once as the lookup does."""
    with pytest.raises(CatalogueError) as caught:
        load_inline(dict(broken), stacks=STACKS)
    found: dict[str, list[str]] = {}
    for problem in caught.value.problems:
        found.setdefault(problem.file.removeprefix("b70_profiles[").rstrip("]"), []).append(
            f"{problem.path}: {problem.message}"
        )
    return found


def test_every_broken_profile_is_refused_by_the_whole_catalogue_at_once():
    cases = list(mutations(schema("profile.schema.json"), PROFILE))
    broken = {f"m{index}": changed({**PROFILE, "name": f"m{index}"}, *case) for index, case in enumerate(cases)}
    found = refusals(broken)
    for index, (path, value) in enumerate(cases):
        assert any(line.startswith(path.replace("/", ".")) for line in found[f"m{index}"]), (path, value)


def test_no_flag_can_be_smuggled_through_extra_arguments():
    """Each flag that has a typed setting or belongs to the slot, in each way to write it, also as ``--no-``."""
    keys = list(schema("vllm-settings.schema.json")["properties"])
    words = [f"--{key.replace('_', '-')}" for key in keys] + [f"--{key}=1" for key in keys]
    words += [f"--no-{key.replace('_', '-')}" for key in keys] + [f"--{flag}" for flag in VLLM.owned_flags]
    broken = {
        f"m{index}": changed({**PROFILE, "name": f"m{index}"}, "engine/extra_args", [word])
        for index, word in enumerate(words)
    }
    found = refusals(broken)
    for index, word in enumerate(words):
        assert found[f"m{index}"][0].startswith("engine.extra_args[0]: --"), word
    assert len(words) > 800


def test_no_variable_of_the_slot_or_of_a_typed_key_can_be_set():
    names = [*OWNED_ENV, *VLLM.owned_env, *DERIVED_ENV]
    broken = {
        f"m{index}": changed({**PROFILE, "name": f"m{index}"}, f"engine/env/{name}", "1")
        for index, name in enumerate(names)
    }
    found = refusals(broken)
    for index, name in enumerate(names):
        assert found[f"m{index}"][0].startswith(f"engine.env.{name}: "), name


SECRETS = {
    "HF_TOKEN": "model_weights_hub_token",
    "HUGGING_FACE_HUB_TOKEN": "model_weights_hub_token",
    "VLLM_API_KEY": "frontdoor_api_keys",
    "OPENAI_API_KEY": "frontdoor_api_keys",
    "LLAMA_API_KEY": "frontdoor_api_keys",
    "WANDB_API_KEY": "no variable of an engine",
    "AWS_SECRET_ACCESS_KEY": "no variable of an engine",
    "DB_PASSWORD": "no variable of an engine",
}


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_written_where_everybody_reads_it(name):
    (found,) = refusals({"x": changed(PROFILE, f"engine/env/{name}", "abcdefghijklmnopqrstuvwx")})["x"]
    assert found.startswith(f"engine.env.{name}: is a secret")
    assert SECRETS[name] in found
    assert "abcdefgh" not in found


@pytest.mark.parametrize(
    "value", ["hf_abcdefghijklmnopqrst", "http://me:hunter2@proxy:3128", "sk-abcdefghijklmnopqrst"]
)
def test_a_secret_is_known_by_its_value_too(value):
    (found,) = refusals({"x": changed(PROFILE, "engine/env/SOMETHING", value)})["x"]
    assert found.startswith("engine.env.SOMETHING: is a secret")
    assert value not in found


def test_a_variable_that_is_no_secret_is_taken():
    fine = {
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_TOKEN_PATH": "/etc/token",
        "TOKENIZERS_PARALLELISM": "false",
        "OUR_MAX_TOKENS": "5",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    assert load_inline({"x": changed(PROFILE, "engine/env", fine)}, stacks=STACKS)


def combinations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``(the key to be named, a change of the profile)``: each value is fine alone."""
    settings = "engine.settings"
    for kind in ("image", "video", "audio"):
        yield f"{settings}.limit_mm_per_prompt.{kind}", {"engine/settings/limit_mm_per_prompt": {kind: 1}}
    for above in (5, 6, 48, 1000):
        yield "frontdoor.max_active_generations", {"frontdoor/max_active_generations": above}
    for first in ("max_num_seqs", "dtype", "enforce_eager"):
        yield (
            "engine.extra_args[1]",
            {"engine/extra_args": ["--new", f"--{first.replace('_', '-')}"], f"engine/settings/{first}": None},
        )
    yield "engine.extra_args[2]", {"engine/extra_args": ["--new", "1", "--new"]}
    for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        yield "cards", {"cards": 2, f"engine/settings/{key}": 3}
    yield "engine.devices", {"cards": 2, "engine/devices": [0]}
    yield f"{settings}.max_num_batched_tokens", {"engine/settings/max_num_batched_tokens": 3}
    yield "engine.stop_timeout_s", {"engine/stop_timeout_s": 10}
    yield (
        f"{settings}.language_model_only",
        {"modalities": ["text", "image"], "engine/settings/language_model_only": True},
    )
    yield "frontdoor.max_tokens_default", {"frontdoor/max_tokens_default": 9, "frontdoor/max_tokens_cap": 8}
    for status in ("rejected", "blocked"):
        yield "status_reason", {"status": status}
    yield f"{settings}.runner", {"engine/task": "embed", "engine/settings/runner": "pooling"}
    yield (
        f"{settings}.quantization",
        {
            "engine/online_quantization": {"method": "fp8"},
            "engine/settings/quantization": "fp8",
        },
    )
    yield "engine.online_quantization.method", {"engine/online_quantization": {"method": "sym_int4"}}
    yield "engine.numa.nodes", {"engine/numa": {"policy": "bind"}}
    yield "stack", {"stack": "cpux"}
    yield f"{settings}.max_long_partial_prefills", {"engine/settings/max_long_partial_prefills": 1}
    yield f"{settings}.kv_cache_dtype", {"engine/settings/kv_cache_dtype": "fp9"}


def test_impossible_combinations_are_refused_with_their_key():
    cases = list(combinations())
    broken = {}
    for index, (_key, changes) in enumerate(cases):
        profile: dict[str, Any] = {**PROFILE, "name": f"m{index}"}
        for path, value in changes.items():
            profile = changed(profile, path, value)
        broken[profile["name"]] = profile
    found = refusals(broken)
    for index, (key, changes) in enumerate(cases):
        assert any(line.startswith(f"{key}: ") for line in found.get(f"m{index}", [])), (
            key,
            changes,
            found.get(f"m{index}"),
        )
