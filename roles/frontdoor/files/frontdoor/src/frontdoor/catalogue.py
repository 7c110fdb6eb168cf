# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles of the host as rows of `GET /v1/admin/models`, in the words of llm-pool's API."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from frontdoor.state import SlotState

LOADED, LOADING, UNLOADED, UNLOADING, MODEL_FAILED = "loaded", "loading", "unloaded", "unloading", "failed"
# what llm-pool calls an engine that runs as a process of its own
_BACKENDS = {"vllm": "vllm_serve"}
# profiles that a switch refuses
_NOT_ENABLED = ("rejected", "blocked")
# of a row, what stands beside the cards' memory
_MEMORY_FIELDS = (
    *("name", "runtime_state", "is_loaded", "configured_target_inflight", "effective_target_inflight"),
    *("vram_estimate_mib", "vram_estimate_replica_count", "vram_estimate_source"),
)


@dataclasses.dataclass(frozen=True)
class Running:
    """A load or unload that was begun here and has not ended."""

    verb: str
    name: str


class Profiles:
    """The resolved profiles on this host, read again when their directory changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._profiles: dict[str, dict[str, Any]] = {}

    def all(self) -> dict[str, dict[str, Any]]:
        """Profiles by name; those that cannot be read are left out."""
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_ino)
            if seen != self._seen:
                names = sorted(name for name in os.listdir(self._path) if name.endswith(".json"))
                profiles = [self._read(os.path.join(self._path, name)) for name in names]
                self._profiles = {str(profile["name"]): profile for profile in profiles if profile}
                self._seen = seen
        except OSError:
            self._seen, self._profiles = None, {}
        return self._profiles

    @staticmethod
    def _read(path: str) -> dict[str, Any] | None:
        try:
            with open(path, "rb") as handle:
                profile = orjson.loads(handle.read())
        except (OSError, orjson.JSONDecodeError):
            return None
        return profile if isinstance(profile, dict) and profile.get("name") else None


def runtime_state(name: str, state: SlotState, running: Running | None, failed: bool) -> str:
    """State of one profile; `failed` tells that its last load failed and nothing has been tried since."""
    if running is not None and running.name == name:
        return LOADING if running.verb == "load" else UNLOADING
    move = state.switch or {}
    if state.phase in ("switching", "verifying"):
        if move.get("to") == name:
            return LOADING
        if state.phase == "switching" and move.get("from") == name:
            return UNLOADING
    elif (state.profile or {}).get("name") == name:
        return LOADED if state.phase == "serving" else MODEL_FAILED
    return MODEL_FAILED if failed else UNLOADED


def at_work(state: SlotState, running: Running | None) -> tuple[str, str] | None:
    """Which profile is being loaded or unloaded now, and which of the two; None when the slot rests."""
    if running is not None:
        return running.name, LOADING if running.verb == "load" else UNLOADING
    if state.phase not in ("switching", "verifying"):
        return None
    move = state.switch or {}
    if move.get("to"):
        return str(move["to"]), LOADING
    return str(move.get("from") or ""), UNLOADING


def fairness(shares: Mapping[str, tuple[int, int]], refused: int) -> dict[str, Any]:
    """How slots are shared now. The next one goes to the key with the lowest score, which is what it holds."""
    return {
        # there is none: a key may fill the queue, but waits behind those that hold fewer slots
        "rejected_per_key_limit": 0,
        "rejected_executor_limit": refused,
        "keys": [
            {"fairness_key": key.removeprefix("key "), "pending": pending, "active": held, "weight": 1.0, "score": held}
            for key, (pending, held) in shares.items()
        ],
    }


def gpu_memory(cards: list[Any] | None, error: str | None, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer about the cards' memory; what a driver does not tell is null."""
    gpus = []
    for index, card in enumerate(cards or ()):
        used, total = card.get("used_bytes"), card.get("total_bytes")
        gpus.append(
            {
                "index": index,
                "name": str(card.get("node") or ""),
                "used_mib": None if used is None else used >> 20,
                "total_mib": None if total is None else total >> 20,
                "used_over_total": None if used is None or not total else round(used / total, 4),
            }
        )
    if error is None and not gpus:
        error = "this host shows no cards"
    models = [{name: one[name] for name in _MEMORY_FIELDS} for one in rows]
    return {"gpus": gpus, "models": models, "error": error}


def row(
    profile: Mapping[str, Any], runtime: str, last_error: str | None, active: int, queued: int, shared: dict[str, Any]
) -> dict[str, Any]:
    """One entry; `active`, `queued` and `shared` are of the slot now, which are those of a loaded model."""
    loaded = runtime == LOADED
    engine, limits, model = (profile.get(part) or {} for part in ("engine", "frontdoor", "model"))
    modalities = profile.get("modalities") or []
    backend = str(engine.get("kind") or "")
    target = limits.get("max_active_generations") or 1
    return {
        "name": profile["name"],
        "resolved_backend": _BACKENDS.get(backend, backend),
        "configured_enabled": profile.get("status") not in _NOT_ENABLED,
        "runtime_state": runtime,
        "is_loaded": loaded,
        "replicas": 1,
        "replica_max": 1,
        "loaded_replicas": int(loaded),
        "inflight_requests": active if loaded else 0,
        "queue_depth": queued if loaded else 0,
        "runtime_inflight": active if loaded else 0,
        "configured_target_inflight": target,
        "effective_target_inflight": target,
        "last_error": last_error,
        # what a card holds is not told by model, see `gpu_memory`
        "vram_estimate_mib": None,
        "vram_estimate_replica_count": None,
        "vram_estimate_source": "unavailable",
        # a profile is changed in the catalogue, never on load
        "load_constraints": {},
        "load_recommendations": {},
        "load_override": None,
        "capabilities": {
            "modalities": modalities,
            "file_inputs": [],
            "multi_turn": True,
            "thinking_modes": ["default"],
            "response_formats": ["json_schema"],
        },
        "definition": {
            "title": profile.get("title") or "",
            "status": profile.get("status") or "",
            "status_reason": profile.get("status_reason") or "",
            "hf_id": model.get("hf_repo") or "",
            "served_model_name": engine.get("served_model_name") or "",
            "max_model_len": engine.get("max_model_len"),
            "cards": profile.get("cards"),
            "fingerprint": profile.get("fingerprint") or "",
        },
        "fairness": shared if loaded else fairness({}, 0),
    }
