# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a merged profile for what no schema can say: values that exclude each other, names that the slot owns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kind import Kind
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import DEFAULT, kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import (
    BARE,
    BURST,
    NUMBERS,
    POOLING,
    Reasoning,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.relay import is_private, parse_url

from . import secrets
from .places import COMPANIONS, MADE, unmade_paths
from .problems import did_you_mean
from .reading import schema
from .schema import Fault
from .typed import DERIVED_ENV, derived_settings

# Variables that the slot sets for every engine.
OWNED_ENV = {
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
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
PER_CARD = "per_card"  # the value of replicas for as many as the host's cards allow
_BESIDE = tuple(f"{name}_{what}" for name in COMPANIONS for what in ("path", "file"))
PLACEHOLDERS = ("stack_dir", "venv", "models_dir", "model_path", *_BESIDE, "cache_dir", "cache_root", "hf_home")
_PLACEHOLDER = re.compile(r"@([a-z_]+)@")
REQUIRED = ("status", "stack")


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


def _kind(profile: Mapping[str, Any]) -> Kind:
    return kind_of_engine(profile.get("engine") or {})


def _missing(profile: Mapping[str, Any]) -> Iterator[Fault]:
    kind = _kind(profile)
    own = ("engine.remote.base_url", "engine.remote.model") if kind.remote else ("model.directory",)
    files = ["model.file"] if kind.loads_file else []
    for path in (*REQUIRED, *own, f"engine.settings.{kind.length_setting}", *files):
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
    settings, kind = value_at(profile, "engine.settings") or {}, _kind(profile)
    sequences = kind.sequences(settings)
    active = value_at(profile, "frontdoor.max_active_generations")
    if sequences and active and active > sequences:
        most = f"engine.settings.{kind.sequences_setting} ({sequences})"
        yield (
            "frontdoor.max_active_generations",
            f"{active} is above {most}: the rest would queue unseen in the engine",
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
    length = kind.context_length(settings)
    for index, case in enumerate(value_at(profile, "canary.cases") or []):
        if length and is_asked(case, profile) and case.get("max_tokens", 0) >= length:
            yield (
                f"canary.cases[{index}].max_tokens",
                f"{case['max_tokens']} leaves no room in {kind.length_setting} ({length})",
            )


def _reasoning(profile: Mapping[str, Any]) -> Iterator[Fault]:
    engine = profile.get("engine") or {}
    reasoning, settings = engine.get("reasoning"), engine.get("settings") or {}
    if not reasoning:
        return
    where, how, kind = "engine.reasoning", reasoning.get("how"), _kind(profile)
    parser = kind.parts_reasoning(settings)
    if how is None:
        yield f"{where}.how", "is missing: disabled, separate or inline"
    if engine.get("task", "generate") != "generate":
        yield where, f"is for models that write, but engine.task is {engine['task']}"
    if how == "separate" and not parser:
        yield f"{where}.how", f"separate needs engine.settings.{kind.reasoning_setting}, which parts it from the answer"
    if how == "inline" and parser:
        yield (
            f"{where}.how",
            f"inline does not go with {kind.reasoning_setting} {parser}, which parts it from the answer: separate",
        )
    if how == "disabled" and reasoning.get("budget_tokens"):
        yield f"{where}.budget_tokens", "is not read with how: disabled"
    if how != "inline" and reasoning.get("tags"):
        yield f"{where}.tags", "is only read with how: inline"
    room = 0 if how == "disabled" else reasoning.get("budget_tokens", Reasoning.budget_tokens)
    cases = value_at(profile, "canary.cases") or []
    longest, length = max((case.get("max_tokens", 0) for case in cases), default=0), kind.context_length(settings)
    if room and length and room + longest >= length:
        words = f"{room} and max_tokens {longest} of a canary case leave no room in {kind.length_setting} ({length})"
        yield f"{where}.budget_tokens", words


# The ways to compare an answer in numbers, and the tasks with such answers.
_ANSWERED_BY = {"vector": ("embed",), "order": ("embed", "score"), "classes": ("classify",)}
_ONLY_WITH = {"dimension": "vector", "unit_norm": "vector", "labels": "classes", "one_label": "classes"}
_OF_TEXT = ("prompt", "max_tokens", "long", "image", "tool", "schema", "messages", "sampling", "stream")


def _numbers(case: Mapping[str, Any], where: str, task: str) -> Iterator[Fault]:
    """Yield the faults of a canary case that is answered in numbers."""
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
    """Yield the faults of a canary case that is answered with what was heard."""
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
    """Yield the faults of a canary case that is answered in words, or with a call."""
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
    roles = [message["role"] for message in case.get("messages") or ()]
    if roles[roles[:1] == ["system"] :] != ["user", "assistant"] * (len(roles) // 2):
        yield (
            f"{where}.messages",
            f"has the roles {', '.join(roles)}; each question (user) needs its answer (assistant)",
        )
    for key in ("tool", "schema"):
        if key in case and case.get("messages"):
            yield f"{where}.messages", f"does not go with {key}: each of their questions is answered in words"
    if case.get("sampling") and case["compare"] in ("sha256", "baseline"):
        yield f"{where}.sampling", f"does not go with compare: {case['compare']}: such an answer varies"


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


def cards_needed(profile: Mapping[str, Any]) -> int:
    """Return how many cards all replicas of a profile need together; with ``per_card``, how many one replica needs."""
    cards, replicas = profile.get("cards") or 0, profile.get("replicas") or 1
    return int(cards) if replicas == PER_CARD else int(cards) * int(replicas)


def _cards(profile: Mapping[str, Any]) -> Iterator[Fault]:
    cards, needed = profile.get("cards") or 0, cards_needed(profile)
    for index, count in enumerate(value_at(profile, "recommended.cards") or []):
        if count < needed or (cards == 0 and count):
            of = f"cards: {cards}" + (f" and replicas: {needed // cards}" if cards and needed > cards else "")
            yield f"recommended.cards[{index}]", f"{count} does not go with {of}"
    if not cards and profile.get("power_cap_w"):
        yield "power_cap_w", "caps the power of cards, but cards is 0"
    if not cards:
        if profile.get("replicas") == PER_CARD and not _kind(profile).remote:
            yield "replicas", f"{PER_CARD} needs cards, but cards is 0; write a number"
        return
    settings, nodes = value_at(profile, "engine.settings") or {}, profile.get("nodes") or 1
    used = workers_of(settings)
    if used > cards * nodes:
        product = " x ".join(f"{key} {settings[key]}" for key in _SIZES if settings.get(key))
        each = f" on each of {nodes} nodes" if nodes > 1 else ""
        yield "cards", f"{product} needs {used} cards, but cards is {cards}{each}"
    devices, replicas = value_at(profile, "engine.devices"), profile.get("replicas") or 1
    if devices and replicas == PER_CARD:
        yield "engine.devices", f"names cards, but replicas is {PER_CARD}: write null here, or a number of replicas"
    elif devices and len(devices) != cards * replicas:
        of = f"cards is {cards}" if replicas == 1 else f"{replicas} replicas of {cards} need {cards * replicas}"
        yield "engine.devices", f"names {len(devices)} cards ({devices}), but {of}"
    if settings.get("enable_expert_parallel") and used == 1:
        yield "engine.settings.enable_expert_parallel", "has nothing to spread experts over: one card is used"


def workers_of(settings: Mapping[str, Any]) -> int:
    """Return how many workers an engine spreads the model over, each on a card of its own."""
    return math.prod(settings.get(key) or 1 for key in _SIZES)


def _nodes(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what an engine over several hosts lacks, and what it can't do."""
    nodes, kind = profile.get("nodes") or 1, _kind(profile)
    settings = value_at(profile, "engine.settings") or {}
    if nodes == 1:
        return
    if not kind.spans_nodes:
        yield "nodes", f"is {nodes}, but {kind.title} runs on one host: 1"
        return
    workers = workers_of({key: settings.get(key) for key in _SIZES[:2]})
    if workers < nodes or workers % nodes:
        sizes = " x ".join(_SIZES[:2])
        yield "nodes", f"is {nodes}, but {sizes} is {workers}: it must be a multiple of the nodes"
    if (settings.get("data_parallel_size") or 1) > 1:
        yield (
            "engine.settings.data_parallel_size",
            "is for engines on one host",
        )
    if (profile.get("replicas") or 1) != 1:
        yield "replicas", f"is {profile['replicas']}, but an engine over {nodes} nodes has all cards: 1"
    if settings.get("distributed_executor_backend") not in (None, "mp"):
        yield "engine.settings.distributed_executor_backend", "must be mp over several nodes: no Ray cluster is formed"


def _of_kind(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what the profile's kind of engine can't do."""
    engine, kind = profile.get("engine") or {}, _kind(profile)
    task = engine.get("task") or "generate"
    if task not in kind.tasks:
        yield "engine.task", f"{kind.title} takes {', '.join(kind.tasks)} here, not {task}"
    if value_at(profile, "model.file") and not kind.loads_file:
        yield "model.file", f"{kind.title} loads the whole directory"
    yield from _remote(profile, kind)
    for name in COMPANIONS:
        companion = value_at(profile, f"model.{name}") or {}
        if not companion:
            continue
        if kind.remote or (name == "projector" and not kind.loads_file):
            yield f"model.{name}", f"{kind.title} takes none"
        elif not kind.loads_file and companion.get("file"):
            yield f"model.{name}.file", f"{kind.title} loads the whole directory, which settings name as @{name}_path@"
        for key in ("directory", *(["file"] if kind.loads_file else [])):
            if not companion.get(key):
                yield f"model.{name}.{key}", "is missing"
        if companion.get("directory") == value_at(profile, "model.directory"):
            yield f"model.{name}.directory", "is that of the model; name its file there as @model_path@/FILE instead"
    if engine.get("online_quantization") and kind is not DEFAULT:
        yield "engine.online_quantization", f"{kind.title} loads weights as they are"


def _warmup(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield requests that the engine can't take as they are written: they would fail every switch."""
    shapes, kind = value_at(profile, "warmup.shapes") or [], _kind(profile)
    settings, task = value_at(profile, "engine.settings") or {}, value_at(profile, "engine.task") or "generate"
    if shapes and kind.remote:
        yield "warmup", "is for engines of this host, but the engine is elsewhere"
    elif shapes and task != "generate":
        yield "warmup", f"sends prompts and counts tokens of answers, but engine.task is {task}"
    length, sequences = kind.context_length(settings), kind.sequences(settings)
    for index, shape in enumerate(shapes):
        whole, at_once = shape["prompt_tokens"] + shape["output_tokens"], shape.get("concurrency", 1)
        if length and whole > length:
            yield (
                f"warmup.shapes[{index}]",
                f"prompt and answer have {whole} tokens, but {kind.length_setting} is {length}",
            )
        if sequences and at_once > sequences:
            most = f"{kind.sequences_setting} ({sequences})"
            yield f"warmup.shapes[{index}].concurrency", f"{at_once} is above {most}: the rest would wait in the engine"


def _graphs(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield sizes of graphs that are never captured, most often because a parent captures none."""
    settings = value_at(profile, "engine.settings") or {}
    compilation = settings.get("compilation_config") or {}
    for key, given in (("", settings), ("compilation_config.", compilation)):
        if not given.get("cudagraph_capture_sizes"):
            continue
        where = f"engine.settings.{key}cudagraph_capture_sizes"
        if settings.get("enforce_eager"):
            yield where, "does nothing: enforce_eager captures no graphs"
        elif compilation.get("cudagraph_mode") == "NONE":
            mode = "engine.settings.compilation_config.cudagraph_mode"
            yield (
                where,
                f"does nothing: {mode} is NONE, here or in a profile that this one extends; set it as well",
            )


_OF_THIS_HOST = ("extra_args", "env", "online_quantization", "devices", "numa")


def _remote(profile: Mapping[str, Any], kind: Kind) -> Iterator[Fault]:
    """Yield what only an engine elsewhere has, or can't have."""
    engine = profile.get("engine") or {}
    remote = engine.get("remote") or {}
    if not kind.remote:
        if remote:
            yield "engine.remote", "is for engine.kind openai, an engine elsewhere"
        return
    if profile.get("cards"):
        yield "cards", f"{profile['cards']} cards of this host, but the engine is elsewhere: 0"
    replicas = profile.get("replicas") or 1
    if replicas != 1:
        yield "replicas", f"is {replicas}, but the engine is elsewhere, and a slot has one relay to it: 1"
    for path in ("model.directory", *(f"engine.{key}" for key in _OF_THIS_HOST)):
        if value_at(profile, path):
            yield path, "applies to this host only, but the engine is elsewhere"
    if value_at(profile, "frontdoor.model_policy") == "pass":
        yield "frontdoor.model_policy", "would let clients ask the remote for its other models: reject or rewrite"
    yield from _base_url(remote)
    if remote.get("model") and engine.get("allowed_media_domains"):
        yield "engine.allowed_media_domains", "cannot be held to by an engine elsewhere; only data URLs reach it"


def _base_url(remote: Mapping[str, Any]) -> Iterator[Fault]:
    where, url = "engine.remote.base_url", remote.get("base_url")
    if not url:
        return
    try:
        found = parse_url(url)
    except ValueError as error:
        yield where, str(error)
        return
    if found.tls:
        if found.is_address:
            yield where, "names an address, which HAProxy compares with no certificate: use the name of the certificate"
        return
    if not remote.get("allow_plain_http"):
        yield where, "is not encrypted: use https://, or set engine.remote.allow_plain_http in a private network"
    elif not is_private(found.host):
        yield where, f"is not encrypted, and {found.host} is no address of a private network: use https://"
    if remote.get("ca_file"):
        yield "engine.remote.ca_file", "is not read with http://"


def _typed(profile: Mapping[str, Any]) -> Iterator[Fault]:
    engine = profile.get("engine") or {}
    settings = engine.get("settings") or {}
    if not profile.get("cards") and engine.get("devices"):
        yield "engine.devices", "names cards, but cards is 0"
    for key, (_value, path) in derived_settings(engine, None).items():
        if settings.get(key) is not None:
            yield f"engine.settings.{key}", f"is given twice: {path} sets it as well"
    if engine.get("task") in POOLING and settings.get("speculative_config"):
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
    kind = _kind(profile)
    known = schema(f"{kind.name}-settings.schema.json")["properties"]
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
        if flag in kind.owned_flags:
            yield where, f"--{flag} belongs to the slot; use {kind.owned_flags[flag]}"
        elif flag in seen:
            yield where, f"--{flag} is given twice"
        elif key in settings:
            yield where, f"--{flag} is given twice: it already stands in engine.settings.{key}"
        elif key in known:
            yield where, f"--{flag} is a typed setting; write engine.settings.{key}"
        seen.add(flag)


def _environment(profile: Mapping[str, Any]) -> Iterator[Fault]:
    owned = {**OWNED_ENV, **_kind(profile).owned_env}
    for name, value in (value_at(profile, "engine.env") or {}).items():
        where = f"engine.env.{name}"
        owner = next((key for key in owned if name == key or (key.endswith("_") and name.startswith(key))), None)
        if owner:
            yield where, f"belongs to the slot; use {owned[owner]}"
        elif name in DERIVED_ENV:
            yield where, f"is set by {DERIVED_ENV[name]}; use that, or slot_env for one site"
        elif name in _SCRIPT_SETTINGS:
            yield where, f"was a variable of the lab's start script and does nothing here; use {_SCRIPT_SETTINGS[name]}"
        elif name.startswith(("FRONTDOOR_", "MODEL_SLOT_")):
            yield where, "is not read by the engine; use the frontdoor section or the profile's own fields"
        elif place := secrets.place_of(name, value):
            yield where, f"is a secret, and everybody on the host could read it here; use {place}"


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, Mapping):
        for key, item in node.items():
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, f"{path}[{index}]")


def _lacks(profile: Mapping[str, Any], companion: str, what: str) -> str:
    """Return the missing key that a placeholder for a model beside the profile's own stands for, or an empty string."""
    given = value_at(profile, f"model.{companion}")
    if not given:
        return f"model.{companion}"
    return f"model.{companion}.file" if what == "file" and not given.get("file") else ""


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
                elif name in _BESIDE and (missing := _lacks(profile, *name.split("_"))):
                    yield where, f"@{name}@ stands for {missing}, which is missing"
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
    _graphs,
    _warmup,
    _nodes,
    _of_kind,
    _typed,
    _arguments,
    _environment,
    _placeholders,
)


def is_asked(case: Mapping[str, Any], profile: Mapping[str, Any]) -> bool:
    """Return whether a profile is asked a canary case: by its task, its modalities, and what it claims to do."""
    settings, task = value_at(profile, "engine.settings") or {}, value_at(profile, "engine.task") or "generate"
    claims = {
        None: True,
        "tools": _kind(profile).calls_tools(settings),
        "structured_output": value_at(profile, "engine.structured_output"),
        "local_engine": not _kind(profile).remote,
    }
    modalities = profile.get("modalities") or ["text"]
    fits = case.get("needs_modality", "text") in modalities and task in case.get("tasks", [task])
    return bool(fits and claims.get(case.get("needs")))


def combination_faults(profile: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield ``(dotted path, message)`` for every combination in a merged, schema-clean profile that cannot work."""
    for rule in _RULES:
        yield from rule(profile)
