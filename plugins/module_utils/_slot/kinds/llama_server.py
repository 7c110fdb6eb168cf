# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's `llama-server`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..words.logline import Parts
from . import gguf, known
from .kind import Dialect, Kind, LlmPoolBackend, Metrics, Step, Weights

# Time since the start, a letter for the level, then the server's part and its function, or a function alone.
_PREFIX = re.compile(
    r"(?:\d+\.\d\d\.\d{3}\.\d{3} )?(?P<level>[DIWET]) (?:(?:cmn|srv|slot|que|res) +\S+: |\w+: )*"
    r"|(?:cmn|srv|slot|que|res) +\S+: "
)
# Functions that report what is wrong with a request; the server goes on.
_REQUEST = re.compile(r"\b(?:send_error|operator\(\)|log_server_\w*|res_error\w*): ")
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR"}
_BLOCK = 256  # tokens; it rounds the context of a slot up to a multiple of this
_CACHE_RAM = 8192  # MiB; the server's own default for `cache_ram`

_STEPS: tuple[Step, ...] = (
    (re.compile(r"load_model: loading model"), "loading weights"),
    (re.compile(r"load_model: initializing, n_slots = (\d+)"), "weights loaded, preparing {1} slots"),
    (re.compile(r"llama_server: model loaded"), "about to answer"),
)


_OWNED_FLAGS = {
    "model": "model.directory and model.file",
    "alias": "engine.served_model_name",
    "host": "the role variable slot_backend_host",
    "port": "the role variable slot_backend_port",
    "fit": "engine.settings: what they say is what runs",
    "offline": "the role model_weights, which downloads",
    "metrics": "nothing: they are always on",
    "ui": "the frontdoor",
    "webui": "the frontdoor",
    "api-key": "the frontdoor; the engine listens on loopback only",
    "api-key-file": "the frontdoor; the engine listens on loopback only",
    **dict.fromkeys(
        ("hf-repo", "hf-file", "hf-repo-draft", "spec-draft-hf", "model-url", "mmproj-url", "docker-repo"),
        "the role model_weights, which downloads",
    ),
    "hf-token": "the role model_weights; arguments show in the process list",
}
_OWNED_ENV = {"LLAMA_ARG_": "engine.settings", "LLAMA_API_KEY": "the frontdoor"}


class LlamaServer(Kind):
    name = "llama-server"
    program = "llama-server"
    title = "llama.cpp"
    length_setting = "ctx_size"
    sequences_setting = "parallel"
    reasoning_setting = "reasoning_format"
    loads_file = True
    takes_what_it_sees = True
    neutral = ("slots", "threads_http", "timeout", "sse_ping_interval", "log_verbosity")
    owned_flags = _OWNED_FLAGS
    owned_env = _OWNED_ENV
    # The numbers follow vulkaninfo, where the loader puts discrete cards first, ordered by their bus addresses.
    card_variables: Mapping[str, str] = {"vulkan": "GGML_VK_VISIBLE_DEVICES"}
    success_statuses = "130 143"  # it exits with 0, but only once it handles signals
    metrics = Metrics(
        tokens="llamacpp:tokens_predicted_total",
        cache_hits="llamacpp:prompt_tokens_cached_total",
        asked=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        # Each call of llama_decode is counted, also those for a long prompt. The server answers between two calls;
        # while one hangs, it answers nothing.
        progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    )
    version_at = ("/props", "build_info")
    pool = LlmPoolBackend(
        "llama_server",
        structured=True,
        settings={
            "llama_server_n_ctx": "ctx_size",
            "llama_server_image_max_tokens": "image_max_tokens",
            "llama_server_spec_type": "spec_type",
            "llama_server_spec_draft_n_max": "spec_draft_n_max",
            "llama_server_spec_draft_p_min": "spec_draft_p_min",
        },
    )
    steps = _STEPS
    symptoms = known.LLAMA_SERVER

    def command(self, places: Mapping[str, str], host: str, port: int | str, served_name: str) -> list[str]:
        return [
            f"{places['venv']}/bin/{self.program}",
            *("--model", places["model_file"], "--alias", served_name),
            *("--host", host, "--port", str(port)),
            # It downloads nothing, has no web page, and reports metrics.
            *("--offline", "--no-ui", "--metrics"),
            # The profile's settings are what runs: nothing is made smaller until it fits.
            *("--fit", "off"),
        ]

    def parsing(self, argv: Sequence[str]) -> list[str]:
        # It reads one argument after the other, and exits at this one.
        return [*argv, "--version"]

    def context_length(self, settings: Mapping[str, Any]) -> int | None:
        whole, slots = settings.get("ctx_size"), settings.get("parallel")
        if not isinstance(whole, int) or whole <= 0:
            return None
        if settings.get("kv_unified") or not isinstance(slots, int) or slots <= 0:
            most: int = settings.get("kv_unified_per_slot") or whole
            return min(whole, most)
        return -(-(whole // slots) // _BLOCK) * _BLOCK

    def parts_reasoning(self, settings: Mapping[str, Any]) -> str:
        # By default it separates them if the template shows how.
        how = settings.get("reasoning_format") or "auto"
        return "" if how == "none" else str(how)

    def calls_tools(self, settings: Mapping[str, Any]) -> bool:
        return settings.get("jinja") is not False

    def caches_prompts(self, settings: Mapping[str, Any]) -> bool:
        return settings.get("cache_prompt") is not False

    def host_cache_bytes(self, settings: Mapping[str, Any]) -> int:
        kept = settings.get("cache_ram")
        return (_CACHE_RAM if kept is None else int(kept)) * 2**20

    def served_length(self, model: Mapping[str, Any]) -> Any:
        return (model.get("meta") or {}).get("n_ctx")

    def tokenize(self, model: str, text: str) -> dict[str, Any]:
        return {"content": text, "add_special": False}

    def apart(self, body: Mapping[str, Any], salt: str, *, again: bool = False) -> dict[str, Any]:
        # It has no salt: a prompt is computed anew, or uses whatever is cached.
        return {**body, "cache_prompt": again}

    def full_length(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {**body, "ignore_eos": True}

    def dialect(self, version: str) -> Dialect:
        return Dialect(penalty="repeat_penalty", templates_responses=True, formats_responses=True)

    def check_weights(self, weights: Weights) -> None:
        if not any(name.endswith(".gguf") for name in weights.names):
            raise weights.incomplete(f"no GGUF file in {weights.path}")
        lacking = sorted(self._named(weights) - set(weights.names))
        if lacking:
            raise weights.incomplete(f"{weights.path} has no {lacking[0]}")

    def weight_files(self, weights: Weights) -> tuple[str, ...]:
        return tuple(sorted(self._named(weights) & set(weights.names)))

    @staticmethod
    def _named(weights: Weights) -> set[str]:
        """Return the files of the folder that the command line names, with all parts of split ones."""
        wanted = {word.removeprefix(f"{weights.path}/") for word in weights.argv if word.startswith(f"{weights.path}/")}
        for name in sorted(wanted & set(weights.names)):
            wanted |= set(gguf.parts(name))
        return wanted

    def parts_of(self, line: str) -> Parts:
        found = _PREFIX.match(line)
        if found is None:
            return Parts("", "", line)
        level = "INFO" if _REQUEST.search(found[0]) else _LEVELS.get(found["level"] or "", "")
        return Parts("", level, line[found.end() :])


LLAMA_SERVER = LlamaServer()
