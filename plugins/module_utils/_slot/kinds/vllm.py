# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM, run as `vllm serve` from a stack's environment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..words import logline
from ..words.types import SlotFault
from . import known
from .kind import WEIGHTS, Dialect, Kind, LlmPoolBackend, Metrics, Sleep, Step, Weights

# Lines that vLLM writes while it loads (0.20 to 0.32).
_STEPS: tuple[Step, ...] = (
    (re.compile(r"Loading \S+ checkpoint shards.*?:\s*(\d+)%"), "loading weights {1} %"),
    (re.compile(r"Loading safetensors using .*?:\s*(\d+)%"), "loading weights {1} %"),
    (re.compile(r"Starting to load model"), "loading weights"),
    (re.compile(r"Loading weights took ([\d.]+) seconds"), "weights loaded in {1} s"),
    (re.compile(r"Model loading took ([\d.]+ GiB)"), "model loaded, {1}"),
    (re.compile(r"Capturing \S+ graphs?.*?:\s*(\d+)%"), "capturing graphs {1} %"),
    (re.compile(r"Graph capturing finished"), "graphs captured"),
    (re.compile(r"Dynamo bytecode transform time|Compiling a graph|Cache the graph"), "compiling"),
    (re.compile(r"torch\.compile (?:takes|took) ([\d.]+) s"), "compiled in {1} s"),
    (re.compile(r"Directly load AOT compilation|Directly load the"), "compiled code loaded"),
    (re.compile(r"KV cache size: ([\d,]+) tokens"), "KV cache for {1} tokens"),
    (re.compile(r"Profiling CUDA graph memory|Memory profiling"), "measuring memory"),
    (re.compile(r"Warming up"), "warming up"),
    (re.compile(r"init engine .*took ([\d.]+) s"), "engine initialised in {1} s"),
    (re.compile(r"Resolved architecture: (\S+)"), "starting {1}"),
    (re.compile(r"Application startup complete"), "about to answer"),
)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (Mapping, list)):
        # Keys keep the order in which they were written.
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def _takes_json_list(recorded: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a list for this option is one JSON word (``--x '["a"]'``) instead of one word per entry."""
    return any(option.get("form") == "value" and "array" in option["accepts"] for option in recorded)


def _is_repeated(recorded: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a list for this option is the flag once per entry (``--x a --x b``)."""
    return any(option.get("form") == "repeated" for option in recorded)


# task: (--runner, --convert); before 0.13 it was one flag, --task.
TASKS: dict[str, tuple[str | None, str | None]] = {
    "generate": (None, None),
    "transcription": (None, None),
    "embed": ("pooling", "embed"),
    "classify": ("pooling", "classify"),
    "score": ("pooling", None),
}
_RUNNER_SINCE = (0, 13)
_DOMAINS_SINCE = (0, 11)
# To vLLM an empty list means every domain. Nobody can own this one: RFC 2606 reserves .invalid.
NO_DOMAIN = "none.invalid"
_OWNED_FLAGS = {
    "model": "model.directory",
    "host": "the role variable slot_backend_host",
    "port": "the role variable slot_backend_port",
    "uds": "the role variable slot_backend_port",
    "served-model-name": "engine.served_model_name",
    "config": "engine.settings",
    "api-key": "the frontdoor; the engine listens on loopback only",
    **dict.fromkeys(("nnodes", "node-rank", "master-addr", "master-port", "headless"), "nodes"),
    "hf-token": "the role model_weights; arguments show in the process list",
}
_OWNED_ENV = {
    "VLLM_HOST": "the role variable slot_backend_host",
    # Inside vLLM it means something other than its name says.
    "VLLM_PORT": "the role variable slot_backend_port (inside vLLM this variable is an internal rendezvous port)",
    "VLLM_CACHE_ROOT": "engine.cache_key",
    "VLLM_HOST_IP": "nodes, and b70_nodes in the inventory",
    "LOCAL_WORLD_SIZE": "nodes, and the sizes in engine.settings",
}
_NEUTRAL = (
    "allowed_media_domains",
    "shutdown_timeout",
    "disable_log_stats",
    "enable_log_requests",
    "disable_uvicorn_access_log",
    "uvicorn_log_level",
    "max_log_len",
    "api_server_count",
)


# The others of its loaders may hold a file in memory, which is short where weights are read again.
_READ_AGAIN = (None, "auto", "hf", "safetensors", "mistral")
_NOT_READ_AGAIN = (
    "speculative_config",
    "spec_method",
    "spec_model",
    "enable_lora",
    "cpu_offload_gb",
    "offload_group_size",
)
_HOST_CONNECTORS = ("OffloadingConnector", "SimpleCPUOffloadConnector")


class Vllm(Kind):
    name = "vllm"
    program = "vllm"
    title = "vLLM"
    tasks = tuple(TASKS)
    length_setting = "max_model_len"
    sequences_setting = "max_num_seqs"
    reasoning_setting = "reasoning_parser"
    spans_nodes = True
    neutral = _NEUTRAL
    owned_flags = _OWNED_FLAGS
    owned_env = _OWNED_ENV
    kill_signal = "SIGINT"
    success_statuses = "130 143"
    cache_variable = "VLLM_CACHE_ROOT"
    metrics = Metrics(
        tokens="vllm:generation_tokens_total",
        cache="vllm:kv_cache_usage_perc",
        cache_hits="vllm:prefix_cache_hits_total",
        asked=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        # All come from the core's process with each step. A prompt is counted when it is done, so during a chunked
        # prefill only the cache moves: each chunk takes blocks of it.
        progress=(
            "vllm:generation_tokens_total",
            "vllm:prompt_tokens_total",
            "vllm:prefix_cache_queries_total",
            "vllm:kv_cache_usage_perc",
        ),
    )
    pool = LlmPoolBackend(
        "vllm_serve",
        structured=True,
        settings={
            "vllm_max_model_len": "max_model_len",
            "vllm_kv_cache_dtype": "kv_cache_dtype",
            "vllm_kv_cache_memory_bytes": "kv_cache_memory_bytes",
            "vllm_max_pixels": "mm_processor_kwargs.max_pixels",
            "vllm_speculative_method": "speculative_config.method",
            "vllm_speculative_model": "speculative_config.model",
            "vllm_speculative_moe_backend": "speculative_config.moe_backend",
            "vllm_speculative_attention_backend": "speculative_config.attention_backend",
            "vllm_num_speculative_tokens": "speculative_config.num_speculative_tokens",
        },
    )
    sleep = Sleep(
        "enable_sleep_mode",
        {"VLLM_SERVER_DEV_MODE": "1"},
        fall={level: [(f"/sleep?level={level}", {})] for level in (1, 2)},
        rise={
            1: [("/wake_up", {})],
            # What is read needs room on the card for a while, which the KV cache leaves as long as it sleeps.
            2: [
                ("/wake_up?tags=weights", {}),
                ("/collective_rpc", {"method": "reload_weights"}),
                ("/wake_up?tags=kv_cache", {}),
                ("/reset_prefix_cache", {}),
            ],
        },
        asks=("/is_sleeping", "is_sleeping"),
    )
    steps = _STEPS
    symptoms = known.VLLM
    raises = True

    def command(self, places: Mapping[str, str], host: str, port: int | str, served_name: str) -> list[str]:
        argv = [f"{places['venv']}/bin/vllm", "serve", places["model_path"]]
        return [*argv, "--host", host, "--port", str(port), "--served-model-name", served_name]

    def arguments(self, key: str, value: Any, recorded: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the same as for every engine, but compact JSON for a mapping.

        A list becomes one argument per entry, or JSON, or the flag once per entry, as the option requires.
        """
        if value is None or isinstance(value, bool):
            return super().arguments(key, value, recorded)
        flag = "--" + key.replace("_", "-")
        if isinstance(value, list) and not _takes_json_list(recorded):
            words = [_word(item) for item in value]
            if _is_repeated(recorded) or any(word.startswith("-") for word in words):
                return [f"{flag}={word}" for word in words]
            return [flag, *words] if words else []
        word = _word(value)
        # A value that looks like a flag must not be taken for one.
        return [f"{flag}={word}"] if word.startswith("-") else [flag, word]

    def node_arguments(self, rank: int, count: int, leader: str, port: int) -> list[str]:
        own = ["--nnodes", str(count), "--node-rank", str(rank), "--master-addr", leader, "--master-port", str(port)]
        # Only the first part has an API; the others compute.
        return [*own, *(["--headless"] if rank else [])]

    def node_environment(self, address: str, workers: int) -> dict[str, str]:
        # vLLM's worker for these cards assumes that all workers run on its own host, and tells oneCCL so.
        return {"VLLM_HOST_IP": address, "LOCAL_WORLD_SIZE": str(workers)}

    def compiles(self, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
        return not settings.get("enforce_eager") and env.get("TORCHDYNAMO_DISABLE") != "1"

    def dialect(self, version: str) -> Dialect:
        # In /v1/responses, 0.21.0 ignores arguments of the chat template; 0.30.0 does not.
        found = re.match(r"(\d+)\.(\d+)", version)
        templates = found is not None and (int(found[1]), int(found[2])) >= (0, 30)
        return Dialect("repetition_penalty", templates_responses=templates, counts_answer=True)

    def environment(self, places: Mapping[str, str]) -> dict[str, str]:
        return {
            "HF_HUB_DISABLE_XET": "1",  # transfers through Xet hang
            "PYTHONUNBUFFERED": "1",
            "VLLM_CACHE_ROOT": places["cache_root"],
            # vLLM checks the domain of a media URL only before the first redirect.
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def derived_settings(self, engine: Mapping[str, Any], release: tuple[int, ...]) -> dict[str, tuple[Any, str]]:
        found: dict[str, tuple[Any, str]] = {}
        task = engine.get("task")
        runner, convert = TASKS.get(task or "generate", (None, None))
        if runner and release < _RUNNER_SINCE:
            found["task"] = (task, "engine.task")
        elif runner:
            found["runner"] = (runner, "engine.task")
            if convert:
                found["convert"] = (convert, "engine.task")
        domains = engine.get("allowed_media_domains")
        if domains is not None and release >= _DOMAINS_SINCE:
            found["allowed_media_domains"] = (list(domains) or [NO_DOMAIN], "engine.allowed_media_domains")
        method = (engine.get("online_quantization") or {}).get("method")
        if method:
            found["quantization"] = (method, "engine.online_quantization.method")
        return found

    def calls_tools(self, settings: Mapping[str, Any]) -> bool:
        return bool(settings.get("enable_auto_tool_choice") and settings.get("tool_call_parser"))

    def caches_prompts(self, settings: Mapping[str, Any]) -> bool:
        # By default vLLM has a prefix cache.
        return settings.get("enable_prefix_caching") is not False

    def rereads(self, settings: Mapping[str, Any]) -> bool:
        # 0.32 reads the model's own weights again: no draft's, no adapter's, none that it keeps in the host's memory.
        return settings.get("load_format") in _READ_AGAIN and not any(map(settings.get, _NOT_READ_AGAIN))

    def host_cache_bytes(self, settings: Mapping[str, Any]) -> int:
        # With tensor parallelism this is for all ranks together; each engine of a data parallel group has its own.
        given = settings.get("kv_transfer_config") or {}
        extra = given.get("kv_connector_extra_config") or {}
        size: float = (settings.get("kv_offloading_size") or 0) * 2**30
        if given.get("kv_connector") in _HOST_CONNECTORS:
            size = size or extra.get("cpu_bytes_to_use") or 0
        return int(size) * (settings.get("data_parallel_size") or 1)

    def served_length(self, model: Mapping[str, Any]) -> Any:
        return model.get("max_model_len")

    def tokenize(self, model: str, text: str) -> dict[str, Any]:
        return {"model": model, "prompt": text, "add_special_tokens": False}

    def apart(self, body: Mapping[str, Any], salt: str, *, again: bool = False) -> dict[str, Any]:
        return {**body, "cache_salt": salt}

    def full_length(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {**body, "ignore_eos": True}

    def check_weights(self, weights: Weights) -> None:
        if "config.json" not in weights.names:
            raise weights.incomplete(f"{weights.path} has no config.json")
        listed = weights.path / "model.safetensors.index.json"
        index = weights.read(listed)
        if index is not None:
            try:
                wanted = set(json.loads(index)["weight_map"].values())
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise SlotFault(f"{listed} can't be read: {error}") from error
            lacking = sorted(wanted - set(weights.names))
            if lacking:
                raise SlotFault(
                    f"the weights of {weights.profile} are incomplete in {weights.path}",
                    expected=f"{len(wanted)} files of the index",
                    got=f"{len(lacking)} missing, the first is {lacking[0]}",
                )
        elif not any(name.endswith(WEIGHTS) for name in weights.names):
            raise weights.incomplete(f"no weight file in {weights.path}")

    def parts_of(self, line: str) -> logline.Parts:
        return logline.parts(line)

    def by_clients(self, line: str) -> bool:
        return logline.by_clients(line)


VLLM = Vllm()
