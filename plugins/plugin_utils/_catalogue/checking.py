# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a merged profile for what no schema can say: values that exclude each other, names that the slot owns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.profile import BARE, BURST, NUMBERS, POOLING, Reasoning

from .places import MADE, unmade_paths
from .problems import did_you_mean
from .reading import schema
from .schema import Fault
from .typed import DERIVED_ENV, TASKS, derived_settings

# Flags that the slot itself passes, and what a profile sets instead.
OWNED_FLAGS = {
    "model": "model.directory",
    "host": "the role variable slot_backend_host",
    "port": "the role variable slot_backend_port",
    "uds": "the role variable slot_backend_port",
    "served-model-name": "engine.served_model_name",
    "config": "engine.settings",
    "api-key": "the frontdoor; the engine listens on loopback only",
    "hf-token": "the role model_weights; arguments show in the process list",
}
# Variables that the slot sets, or that mean something else inside vLLM than their name says.
OWNED_ENV = {
    "VLLM_HOST": "the role variable slot_backend_host",
    "VLLM_PORT": "the role variable slot_backend_port (inside vLLM this variable is an internal rendezvous port)",
    "VLLM_CACHE_ROOT": "engine.cache_key",
    "HF_HOME": "the role variable slot_hf_home",
    "HOME": "nothing: the engine gets a home below its compile cache",
    "PATH": "nothing: the stack's tools and the system's are on it",
    "VENV": "stack",
    "MODEL_DIR": "model.directory",
    "MODEL": "model.directory",
}
_SCRIPT_SETTINGS = {
    "VLLM_SERVED_MODEL_NAME": "engine.served_model_name",
    "VLLM_EXTRA_ARGS": "engine.extra_args",
    "VLLM_NO_SCHEDULER_RESERVE_FULL_ISL": "engine.settings.scheduler_reserve_full_isl: false",
    **{
        f"VLLM_{key.upper()}": f"engine.settings.{key}"
        for key in (
            "dtype",
            "quantization",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "distributed_executor_backend",
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "gpu_memory_utilization",
            "block_size",
            "kv_cache_dtype",
            "kv_offloading_size",
            "enable_prefix_caching",
            "language_model_only",
            "compilation_config",
            "trust_remote_code",
        )
    },
}
# Known to patched engines only.
PATCHED_QUANTIZATIONS = ("sym_int4",)
PLACEHOLDERS = ("stack_dir", "venv", "models_dir", "model_path", "cache_dir", "cache_root", "hf_home")
_PLACEHOLDER = re.compile(r"@([a-z_]+)@")
REQUIRED = ("status", "stack", "model.directory", "engine.settings.max_model_len")


def value_at(profile: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    node: Any = profile
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def flag_of(argument: str) -> str | None:
    """Return the flag's name without dashes, ``no-`` and ``=value``, or None when the argument is a value."""
    if not argument.startswith("--"):
        return None
    name = argument[2:].split("=", 1)[0].replace("_", "-")
    return name.removeprefix("no-")


def _missing(profile: Mapping[str, Any]) -> Iterator[Fault]:
    for path in REQUIRED:
        if value_at(profile, path) in (None, ""):
            yield path, "is missing, here and in every profile that this one extends"


def _status(profile: Mapping[str, Any]) -> Iterator[Fault]:
    status = profile.get("status")
    if status in ("rejected", "blocked") and not str(profile.get("status_reason") or "").strip():
        yield "status_reason", f"is required when the status is {status}: say when and why"


def _modalities(profile: Mapping[str, Any]) -> Iterator[Fault]:
    modalities = profile.get("modalities") or ["text"]
    settings = value_at(profile, "engine.settings") or {}
    for kind, count in (settings.get("limit_mm_per_prompt") or {}).items():
        if kind not in modalities and count != 0:
            yield (
                f"engine.settings.limit_mm_per_prompt.{kind}",
                f"allows {kind}s, but modalities is {modalities}; add {kind} there or remove the limit",
            )
    if settings.get("language_model_only") and modalities != ["text"]:
        yield "engine.settings.language_model_only", f"leaves out every encoder, but modalities is {modalities}"
    for index, case in enumerate(value_at(profile, "canary.cases") or []):
        if case.get("image") and "image" not in modalities and case.get("needs_modality") != "image":
            yield f"canary.cases[{index}].image", f"the profile takes no images (modalities is {modalities})"


def _limits(profile: Mapping[str, Any]) -> Iterator[Fault]:
    settings = value_at(profile, "engine.settings") or {}
    sequences = settings.get("max_num_seqs")
    active = value_at(profile, "frontdoor.max_active_generations")
    if sequences and active and active > sequences:
        yield (
            "frontdoor.max_active_generations",
            f"{active} is above engine.settings.max_num_seqs ({sequences}): the rest would queue unseen in the engine",
        )
    default, cap = value_at(profile, "frontdoor.max_tokens_default"), value_at(profile, "frontdoor.max_tokens_cap")
    if default and cap and default > cap:
        yield "frontdoor.max_tokens_default", f"{default} is above frontdoor.max_tokens_cap ({cap})"
    batched = settings.get("max_num_batched_tokens")
    if sequences and batched and batched < sequences:
        yield (
            "engine.settings.max_num_batched_tokens",
            f"{batched} is below max_num_seqs ({sequences}); vLLM refuses that",
        )
    stop, drain = value_at(profile, "engine.stop_timeout_s"), settings.get("shutdown_timeout")
    if stop is not None and drain is not None and stop <= drain:
        yield (
            "engine.stop_timeout_s",
            f"{stop} must be above engine.settings.shutdown_timeout ({drain}): systemd would kill a draining engine",
        )
    length = settings.get("max_model_len")
    for index, case in enumerate(value_at(profile, "canary.cases") or []):
        if length and is_asked(case, profile) and case.get("max_tokens", 0) >= length:
            yield (
                f"canary.cases[{index}].max_tokens",
                f"{case['max_tokens']} leaves no room in max_model_len ({length})",
            )


def _reasoning(profile: Mapping[str, Any]) -> Iterator[Fault]:
    engine = profile.get("engine") or {}
    reasoning, settings = engine.get("reasoning"), engine.get("settings") or {}
    if not reasoning:
        return
    where, how, parser = "engine.reasoning", reasoning.get("how"), settings.get("reasoning_parser")
    if how is None:
        yield f"{where}.how", "is missing: disabled, separate or inline"
    if engine.get("task", "generate") != "generate":
        yield where, f"is for models that write, but engine.task is {engine['task']}"
    if how == "separate" and not parser:
        yield f"{where}.how", "separate needs engine.settings.reasoning_parser, which parts it from the answer"
    if how == "inline" and parser:
        yield (
            f"{where}.how",
            f"inline does not go with reasoning_parser {parser}, which parts it from the answer: separate",
        )
    if how == "disabled" and reasoning.get("budget_tokens"):
        yield f"{where}.budget_tokens", "is not read with how: disabled"
    if how != "inline" and reasoning.get("tags"):
        yield f"{where}.tags", "is only read with how: inline"
    room = 0 if how == "disabled" else reasoning.get("budget_tokens", Reasoning.budget_tokens)
    cases = value_at(profile, "canary.cases") or []
    longest, length = max((case.get("max_tokens", 0) for case in cases), default=0), settings.get("max_model_len")
    if room and length and room + longest >= length:
        words = f"{room} and max_tokens {longest} of a canary case leave no room in max_model_len ({length})"
        yield f"{where}.budget_tokens", words


# What a canary case may be compared by, and the tasks that answer so.
_ANSWERED_BY = {"vector": ("embed",), "order": ("embed", "score"), "classes": ("classify",)}
_ONLY_WITH = {"dimension": "vector", "unit_norm": "vector", "labels": "classes", "one_label": "classes"}
_OF_TEXT = ("prompt", "max_tokens", "long", "image", "tool", "schema")


def _numbers(case: Mapping[str, Any], where: str, task: str) -> Iterator[Fault]:
    """A canary case that is answered in numbers."""
    compare = case["compare"]
    if "texts" not in case:
        yield f"{where}.texts", f"is missing; compare: {compare} needs it"
        return
    if compare not in NUMBERS:
        yield f"{where}.compare", f"with texts it is {', '.join(NUMBERS[:-1])} or {NUMBERS[-1]}"
        return
    for key in (*_OF_TEXT, "expected", "audio"):
        if case.get(key) is not None:
            yield f"{where}.{key}", "is not read with texts"
    if compare == "order" and len(case["texts"]) < 3:
        yield f"{where}.texts", "an order needs three texts: a question, what fits better, what fits worse"
    if len(case.get("labels", case["texts"])) != len(case["texts"]):
        yield f"{where}.labels", f"names {len(case['labels'])} classes for {len(case['texts'])} texts"
    if task not in case.get("tasks", [task]):
        return
    if task not in POOLING:
        yield f"{where}.texts", f"is for a model that writes no text, but engine.task is {task}"
    elif task not in _ANSWERED_BY[compare]:
        yield f"{where}.compare", f"{compare} needs engine.task {' or '.join(_ANSWERED_BY[compare])}, and it is {task}"


def _heard(case: Mapping[str, Any], where: str, task: str) -> Iterator[Fault]:
    """A canary case that is answered with what was heard."""
    if "audio" not in case:
        yield f"{where}.audio", "is missing; compare: transcript needs it"
    for key in _OF_TEXT:
        if case.get(key) is not None:
            yield f"{where}.{key}", "is not read with audio"
    if case["compare"] in ("baseline", "json"):
        yield f"{where}.compare", f"{case['compare']} is not for what was heard"
    if task in case.get("tasks", [task]) and task != "transcription":
        yield f"{where}.audio", f"is for engine.task transcription, and it is {task}"


def _written(case: Mapping[str, Any], where: str, task: str) -> Iterator[Fault]:
    """A canary case that is answered in words, or with a call."""
    for key in ("prompt", "max_tokens"):
        if key not in case:
            yield f"{where}.{key}", "is missing"
    if task in case.get("tasks", [task]) and task != "generate":
        with_what = "texts" if task in POOLING else "audio"
        yield f"{where}.prompt", f"asks for text, but engine.task is {task}; ask with {with_what}"
    if "tool" in case and case["compare"] != "json":
        yield f"{where}.compare", "with a tool it is json: the arguments of its call"
    if "tool" in case and "schema" in case:
        yield f"{where}.schema", "is not read with a tool, which has parameters of its own"


def _expected(case: Mapping[str, Any], where: str) -> Iterator[Fault]:
    compare = case["compare"]
    if compare in BARE:
        if "expected" in case:
            told = "; the answer is recorded on the host" if compare == "baseline" else ""
            yield f"{where}.expected", f"is not read with compare: {compare}{told}"
    elif "expected" not in case:
        yield f"{where}.expected", f"is missing; compare: {compare} needs it"
    elif compare == "regex":
        try:
            re.compile(case["expected"])
        except re.error as error:
            yield f"{where}.expected", f"{case['expected']!r} is no regular expression ({error})"
    elif compare == "json":
        try:
            json.loads(case["expected"])
        except ValueError as error:
            yield f"{where}.expected", f"{case['expected']!r} is no JSON ({error})"


def _canary(profile: Mapping[str, Any]) -> Iterator[Fault]:
    task = value_at(profile, "engine.task") or "generate"
    names: set[str] = {BURST}
    for index, case in enumerate(value_at(profile, "canary.cases") or []):
        where = f"canary.cases[{index}]"
        if case["name"] == BURST:
            yield f"{where}.name", f'"{BURST}" is the name of what is asked at once'
        elif case["name"] in names:
            yield f"{where}.name", f'there are two cases "{case["name"]}"'
        names.add(case["name"])
        for key, compare in _ONLY_WITH.items():
            if key in case and case["compare"] != compare:
                yield f"{where}.{key}", f"is only read with compare: {compare}"
        if "texts" in case or case["compare"] in NUMBERS:
            yield from _numbers(case, where, task)
            continue
        yield from (_heard if "audio" in case or case["compare"] == "transcript" else _written)(case, where, task)
        yield from _expected(case, where)


def _cards(profile: Mapping[str, Any]) -> Iterator[Fault]:
    cards = profile.get("cards") or 0
    for index, count in enumerate(value_at(profile, "recommended.cards") or []):
        if count < cards or (cards == 0 and count):
            yield f"recommended.cards[{index}]", f"{count} does not go with cards: {cards}"
    if not cards:
        return
    settings = value_at(profile, "engine.settings") or {}
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    used = 1
    for key in sizes:
        used *= settings.get(key) or 1
    if used > cards:
        product = " x ".join(f"{key} {settings[key]}" for key in sizes if settings.get(key))
        yield "cards", f"{product} needs {used} cards, but cards is {cards}"
    devices = value_at(profile, "engine.devices")
    if devices and len(devices) != cards:
        yield "engine.devices", f"names {len(devices)} cards ({devices}), but cards is {cards}"
    if settings.get("enable_expert_parallel") and used == 1:
        yield "engine.settings.enable_expert_parallel", "has nothing to spread experts over: one card is used"


def _typed(profile: Mapping[str, Any]) -> Iterator[Fault]:
    engine = profile.get("engine") or {}
    settings = engine.get("settings") or {}
    if not profile.get("cards") and engine.get("devices"):
        yield "engine.devices", "names cards, but cards is 0"
    for key, (_value, path) in derived_settings(engine, None).items():
        if settings.get(key) is not None:
            yield f"engine.settings.{key}", f"is given twice: {path} sets it as well"
    pools = TASKS.get(engine.get("task") or "generate", (None, None))[0] == "pooling"
    if pools and settings.get("speculative_config"):
        yield "engine.settings.speculative_config", f"speculates on tokens, but engine.task is {engine['task']}"
    numa = engine.get("numa") or {}
    nodes, policy = numa.get("nodes") or [], numa.get("policy")
    if policy in ("bind", "preferred", "interleave") and not nodes:
        yield "engine.numa.nodes", f"is missing: the policy {policy} needs nodes"
    if policy == "preferred" and len(nodes) > 1:
        yield "engine.numa.nodes", f"names {len(nodes)} nodes, but only one can be preferred"
    if nodes and not policy:
        yield "engine.numa.policy", "is missing: say what the nodes are for, bind for example"


def _arguments(profile: Mapping[str, Any]) -> Iterator[Fault]:
    settings = value_at(profile, "engine.settings") or {}
    known = schema("vllm-settings.schema.json")["properties"]
    seen: set[str] = set()
    arguments = value_at(profile, "engine.extra_args") or []
    if arguments and not arguments[0].startswith("-"):
        yield "engine.extra_args[0]", f"{arguments[0]!r} is a value without a flag before it"
    for index, argument in enumerate(arguments):
        where = f"engine.extra_args[{index}]"
        if re.match(r"-[A-Za-z]", argument):
            yield where, f"{argument!r} is a short flag; write the long one, or use engine.settings"
        flag = flag_of(argument)
        if flag is None:
            continue
        key = flag.replace("-", "_")
        if flag in OWNED_FLAGS:
            yield where, f"--{flag} belongs to the slot; use {OWNED_FLAGS[flag]}"
        elif flag in seen:
            yield where, f"--{flag} is given twice"
        elif key in settings:
            yield where, f"--{flag} is given twice: it already stands in engine.settings.{key}"
        elif key in known:
            yield where, f"--{flag} is a typed setting; write engine.settings.{key}"
        seen.add(flag)


def _environment(profile: Mapping[str, Any]) -> Iterator[Fault]:
    for name in value_at(profile, "engine.env") or {}:
        where = f"engine.env.{name}"
        if name in OWNED_ENV:
            yield where, f"belongs to the slot; use {OWNED_ENV[name]}"
        elif name in DERIVED_ENV:
            yield where, f"is set by {DERIVED_ENV[name]}; use that, or slot_env for one site"
        elif name in _SCRIPT_SETTINGS:
            yield where, f"was a variable of the lab's start script and does nothing here; use {_SCRIPT_SETTINGS[name]}"
        elif name.startswith(("FRONTDOOR_", "MODEL_SLOT_")):
            yield where, "is not read by the engine; use the frontdoor section or the profile's own fields"


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, item in node.items():
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, f"{path}[{index}]")


def _placeholders(profile: Mapping[str, Any]) -> Iterator[Fault]:
    engine = profile.get("engine") or {}
    for part in ("env", "settings", "extra_args"):
        for where, text in _texts(engine.get(part), f"engine.{part}"):
            for name in _PLACEHOLDER.findall(text):
                if name not in PLACEHOLDERS:
                    yield (
                        where,
                        f"@{name}@ is no placeholder{did_you_mean(name, PLACEHOLDERS)} ({', '.join(PLACEHOLDERS)})",
                    )
            if part != "env":
                continue
            if "\n" in text:
                yield where, "must be one line"
            for path in unmade_paths(text):
                yield where, f"{path} is nothing that a role makes; {MADE}"


_RULES: tuple[Callable[[Mapping[str, Any]], Iterator[Fault]], ...] = (
    _missing,
    _status,
    _modalities,
    _limits,
    _reasoning,
    _canary,
    _cards,
    _typed,
    _arguments,
    _environment,
    _placeholders,
)


def is_asked(case: Mapping[str, Any], profile: Mapping[str, Any]) -> bool:
    """Return whether a profile gets a canary case: by its task, its modalities, and what it promises beside answers."""
    settings, task = value_at(profile, "engine.settings") or {}, value_at(profile, "engine.task") or "generate"
    tools = settings.get("enable_auto_tool_choice") and settings.get("tool_call_parser")
    claims = {None: True, "tools": tools, "structured_output": value_at(profile, "engine.structured_output")}
    modalities = profile.get("modalities") or ["text"]
    fits = case.get("needs_modality", "text") in modalities and task in case.get("tasks", [task])
    return bool(fits and claims.get(case.get("needs")))


def combination_faults(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield ``(dotted path, message)`` for every combination in a merged, schema-clean profile that cannot work."""
    for rule in _RULES:
        yield from rule(profile)
