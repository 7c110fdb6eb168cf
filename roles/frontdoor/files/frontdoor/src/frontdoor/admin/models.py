# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles of the host as rows of `GET /v1/admin/models`, in the words of llm-pool's API."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from frontdoor.errors import Refusal
from frontdoor.policy.llm_pool import DEFAULT, thinking_kwargs
from frontdoor.slot import regular
from frontdoor.slot.regular import Parsed
from frontdoor.slot.state import SlotState

LOADED, LOADING, UNLOADED, UNLOADING, MODEL_FAILED = "loaded", "loading", "unloaded", "unloading", "failed"
# phases of the slot in which another profile is on its way
_MOVING = ("switching", "verifying")
# characters of a value that an answer repeats
_MAX_TOLD = 100
# the task of models that write text
_WRITES = "generate"
# fields of a row that the answer about the cards' memory repeats
_MEMORY_FIELDS = (
    *("name", "runtime_state", "is_loaded", "slot", "slots", "configured_target_inflight", "effective_target_inflight"),
    *("vram_estimate_mib", "vram_estimate_replica_count", "vram_estimate_source"),
)


class Settings(NamedTuple):
    """The role's settings for a slot as a whole, as far as they can be read."""

    #: statuses that a switch refuses, unless they are accepted by name
    refused: tuple[str, ...] = ("rejected", "blocked")
    #: the names that llm-pool has for the kinds of engines and their settings, by kind
    kinds: Mapping[str, Any] = {}
    #: how many cards the slot has; None where it has all of the host, or that is unknown
    cards: int | None = None


def _settings(raw: bytes) -> Settings:
    told = orjson.loads(raw)
    refused, kinds, cards = (told.get(name) for name in ("refused_statuses", "kinds", "cards"))
    return Settings(
        tuple(refused) if isinstance(refused, list) else Settings().refused,
        {name: one for name, one in kinds.items() if isinstance(one, dict)} if isinstance(kinds, dict) else {},
        len(cards) if isinstance(cards, list) else None,
    )


def _estimates(raw: bytes) -> dict[str, int]:
    """Return the MiB that one replica holds of its cards, by the fingerprint of its profile.

    The estimate is made on the host, from the weights' files, the model's shape and the engine's settings.
    """
    found = {one["fingerprint"]: one["held_mib"] for one in orjson.loads(raw)["profiles"].values()}
    return {key: size for key, size in found.items() if is_number(size, int) and size > 0}


class Profiles:
    """The resolved profiles of a slot, as a load takes them.

    One that is in use and was rendered anew waits in a directory beside the others until a load starts it.
    """

    def __init__(self, path: str, estimates: str = "") -> None:
        self._path = path
        self.estimates: Parsed[dict[str, int]] = Parsed(estimates, _estimates, absent={})
        self._pending = os.path.join(os.path.dirname(path), "pending")
        self._slot_file = os.path.join(os.path.dirname(path), "slot.json")
        self.settings = Parsed(self._slot_file, _settings, absent=Settings())
        self._known: dict[str, dict[str, Any]] = {}
        self._seen: list[int] = []
        #: what was wrong when they were last read
        self.faults: list[str] = []
        self.read()

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the profiles by name; one that cannot be read stays as it was, or is left out."""
        known, self._known, self.faults = self._known, {}, []
        try:
            files = sorted(file for file in os.listdir(self._path) if file.endswith(".json"))
        except OSError as exc:
            files, self.faults = [], [f"{self._path} cannot be read: {exc.strerror}"]
        for file in files:
            name, waiting = file.removesuffix(".json"), os.path.join(self._pending, file)
            try:
                found = regular.read(waiting if os.path.lexists(waiting) else os.path.join(self._path, file))
                profile = orjson.loads(found)
                # a rendering that waits: the texts of its files
                self._known[name] = orjson.loads(text) if (text := profile.get("profile")) else profile
            except (OSError, ValueError, AttributeError) as exc:
                self.faults.append(f"{self._path}/{file} is no profile: {exc}")
                if name in known:
                    self._known[name] = known[name]
        return self._known

    def changed(self) -> bool:
        """Tell whether files were added, replaced or removed since the last call."""
        before, self._seen = self._seen, [_written(place) for place in (self._path, self._pending, self._slot_file)]
        return self._seen != before

    def conflict(self, served: str, fingerprint: str) -> Refusal | None:
        """Return the refusal when the running profile has changed; `served` is its name, empty while none runs."""
        now = self._known.get(served)
        if not served or (now is not None and now.get("fingerprint") == fingerprint):
            return None
        what = "is no profile of this host any more" if now is None else "was changed"
        words = f"{served} is loaded and {what}: it runs as it was before; unload it, and load it again"
        details = {"conflicts": [f"engine.models.{served}"]}
        return Refusal(409, "settings_reload_conflict", words, details=details)


def _written(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


Known = Mapping[str, Mapping[str, Any]]


def changes(before: Known, now: Known) -> dict[str, Any]:
    """Return the names of added, removed, updated and unchanged profiles; each is compared as the slots have it."""
    both = sorted(before.keys() & now.keys())
    return {
        "added_models": sorted(now.keys() - before.keys()),
        "removed_models": sorted(before.keys() - now.keys()),
        "updated_models": [name for name in both if before[name] != now[name]],
        "unchanged_models": [name for name in both if before[name] == now[name]],
    }


def under_way(state: SlotState, running: Mapping[str, str]) -> dict[str, str]:
    """Return the profiles that are loaded or unloaded now, the one that others wait for first; it may have no name.

    `running` is what was begun here and has not ended.
    """
    found = dict(running)
    if state.phase in _MOVING:
        move = state.switch or {}
        if move.get("to"):
            found.setdefault(move["to"], LOADING)
        if move.get("from") and state.phase == "switching" and not move.get("loading"):
            found.setdefault(move["from"], UNLOADING)
        return found or {"": LOADING}
    return found


def runtime_state(name: str, state: SlotState, running: Mapping[str, str], failed: bool) -> str:
    """Return the state of one profile; `failed` tells that its last load failed and nothing has been tried since."""
    moving = under_way(state, running)
    if name in moving:
        return moving[name]
    if state.phase not in _MOVING and (state.profile or {}).get("name") == name:
        return LOADED if state.phase == "serving" else MODEL_FAILED
    return MODEL_FAILED if failed else UNLOADED


def traffic(
    replicas: int, active: int, queued: int, shares: Mapping[str, tuple[int, int]], refused: int
) -> dict[str, Any]:
    """Return the part of a row about generations, and how many replicas take them.

    The next permit goes to the key with the lowest score, which is what it holds.
    """
    keys = [
        {"fairness_key": key.removeprefix("key "), "pending": pending, "active": held, "weight": 1.0, "score": held}
        for key, (pending, held) in shares.items()
    ]
    return {
        "loaded_replicas": replicas,
        "inflight_requests": active,
        "queue_depth": queued,
        "runtime_inflight": active,
        # no key has a limit: it may fill the queue, but waits behind those that hold fewer permits
        "fairness": {"rejected_per_key_limit": 0, "rejected_executor_limit": refused, "keys": keys},
    }


def is_number(value: Any, *kinds: type) -> bool:
    """Tell whether a value is a number of these kinds; a boolean, which is an int in Python, is none."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def gpu_memory(cards: Any, error: str | None, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answer about the cards' memory; values that a driver does not tell are null."""
    gpus = []
    for index, card in enumerate(cards if isinstance(cards, list) else ()):
        told = card if isinstance(card, dict) else {}
        sizes: list[Any] = [told.get(name) for name in ("used_bytes", "total_bytes")]
        used, total = (size >> 20 if is_number(size, int) and size >= 0 else None for size in sizes)
        both = None if used is None or total is None else f"{used}MiB / {total}MiB"
        about = {"index": index, "name": str(told.get("node") or "")}
        gpus.append({**about, "used_mib": used, "total_mib": total, "used_over_total": both})
    if error is None and not gpus:
        error = "this host shows no cards"
    return {"gpus": gpus, "models": [{name: row[name] for name in _MEMORY_FIELDS} for row in rows], "error": error}


Kinds = Mapping[str, Mapping[str, Any]]


def _about(engine: Mapping[str, Any], kinds: Kinds) -> Mapping[str, Any]:
    """Return the entry of an engine's kind; for an unknown kind, one with its name."""
    kind = engine.get("kind") or ""
    return kinds.get(kind) or {"backend": kind}


def _estimate(model: Mapping[str, Any], held_mib: int | None) -> dict[str, Any]:
    """Return what one replica holds of the cards: the estimate of the host, else the size of the weights alone."""
    told = model.get("size_gb")
    size = told if isinstance(told, int | float) and is_number(told, int, float) else 0
    mib = held_mib or (round(size * 1e9 / (1 << 20)) if size > 0 else None)
    return {
        "vram_estimate_mib": mib,
        "vram_estimate_replica_count": None if mib is None else 1,
        "vram_estimate_source": "unavailable" if mib is None else "model_artifact_size",
    }


def _replicas(engine: Mapping[str, Any]) -> int:
    """Return how many engines a resolved profile starts; with one it has no list of them."""
    return len(engine.get("replicas") or ()) or 1


def cards_of(profile: Mapping[str, Any]) -> int:
    """Return how many cards all engines of a profile need."""
    each = profile.get("cards")
    return each * _replicas(profile.get("engine") or {}) if isinstance(each, int) else 0


def _capabilities(profile: Mapping[str, Any], engine: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """Return what requests may ask for; the modes of thinking are those that /v1/chat/completions takes."""
    writes = (engine.get("task") or _WRITES) == _WRITES
    return {
        "modalities": profile.get("modalities") or [],
        "file_inputs": [],
        "multi_turn": writes,
        "thinking_modes": [DEFAULT, *sorted(thinking_kwargs(engine.get("reasoning")) if writes else ())],
        # an engine elsewhere may be any
        "response_formats": ["json_schema"] if writes and _about(engine, kinds).get("structured") else [],
    }


def row(
    name: str,
    profile: Mapping[str, Any],
    runtime: str,
    last_error: str | None,
    now: dict[str, Any],
    enabled: bool,
    held_mib: int | None = None,
    slot: str = "main",
    slots: Sequence[str] = (),
    kinds: Kinds | None = None,
) -> dict[str, Any]:
    """Return one entry of the list of models.

    `now` is the traffic of a loaded model, `enabled` tells that a switch takes it without being told. `held_mib` is
    what one replica holds of the cards, where that was estimated. `slot` is the one that all of this is of, `slots` are
    those that serve the model. `kinds` is what is known of engines.
    """
    loaded, kinds = runtime == LOADED, kinds or {}
    engine, limits, model = (profile.get(part) or {} for part in ("engine", "frontdoor", "model"))
    replicas = _replicas(engine)
    # of each replica; the profile's is that of all
    target = max(1, (limits.get("max_active_generations") or 1) // replicas)
    return {
        "name": name,
        "resolved_backend": _about(engine, kinds).get("backend") or "",
        "configured_enabled": enabled,
        "runtime_state": runtime,
        "is_loaded": loaded,
        "slot": slot,
        "slots": list(slots),
        "replicas": replicas,
        "replica_max": replicas,
        **(now if loaded else traffic(0, 0, 0, {}, 0)),
        "configured_target_inflight": target,
        "effective_target_inflight": target,
        "last_error": last_error,
        **_estimate(model, held_mib),
        # a profile is changed in the catalogue, never on load: what it has is all that a load may say
        "load_constraints": _constraints(own := _own(profile, kinds)),
        "load_recommendations": {field: value for field, (_key, value) in own.items() if value is not None},
        "load_override": None,
        "capabilities": _capabilities(profile, engine, kinds),
        "definition": {
            **{name: profile.get(name) or "" for name in ("title", "status", "status_reason", "fingerprint")},
            "hf_id": model.get("hf_repo") or "",
            "served_model_name": engine.get("served_model_name") or "",
            "max_model_len": engine.get("max_model_len"),
            "cards": profile.get("cards"),
        },
    }


class _Field(NamedTuple):
    """The values that llm-pool takes for one field of a load: of a kind, within a range or a set.

    `otherwise` is what an engine has where its profile says nothing.
    """

    kind: type
    least: float | None = None
    most: float | None = None
    step: int | None = None
    values: tuple[str, ...] = ()
    otherwise: Any = None

    @property
    def what(self) -> str:
        if self.kind is str:
            return "a text"
        return "a whole number above 0" if self.kind is int else "a number"

    def fits(self, value: Any) -> bool:
        """Tell whether a value is of the field's kind."""
        if self.kind is str:
            return isinstance(value, str)
        return is_number(value, int) and value > 0 if self.kind is int else is_number(value, int, float)

    def outside(self, value: Any) -> str:
        """Return how a value is outside of what llm-pool takes; empty where it is not."""
        if value is None:
            return ""
        if self.values and value not in self.values:
            return f"none of {', '.join(self.values)}"
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            return f"not at least {self.least}" if self.most is None else f"not from {self.least} to {self.most}"
        return f"no multiple of {self.step}" if self.step and value % self.step else ""


_KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_COUNT, _TEXT, _BITS = _Field(int), _Field(str), _Field(int, 2, 8)
# What llm-pool's clients may send along with a load. A profile is served as it was verified, so all of it has to be
# what the profile has; and a mistake is told.
_FIELDS = {
    "replicas": _COUNT,
    "vllm_max_model_len": _Field(int, 256, step=256),
    "vllm_kv_cache_dtype": _Field(str, values=("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), otherwise="auto"),
    "vllm_kv_cache_memory_bytes": _Field(int, 1 << 28, step=1 << 28),
    "vllm_max_pixels": _Field(int, 200704, step=200704),
    "vllm_speculative_method": _TEXT,
    "vllm_speculative_model": _TEXT,
    "vllm_speculative_moe_backend": _TEXT,
    "vllm_speculative_attention_backend": _TEXT,
    "vllm_num_speculative_tokens": _COUNT,
    "gguf_n_ctx": _COUNT,
    "gguf_flash_attn": _Field(str, values=("on", "off", "auto"), otherwise="auto"),
    "gguf_type_k": _Field(str, values=_KV_TYPES, otherwise="f16"),
    "gguf_type_v": _Field(str, values=_KV_TYPES, otherwise="f16"),
    "exllama_cache_size": _Field(int, 256, step=256),
    "exllama_max_rq_tokens": _COUNT,
    "exllama_cache_k_bits": _BITS,
    "exllama_cache_v_bits": _BITS,
    "exllama_cache_quant": _TEXT,
    "llama_server_n_ctx": _COUNT,
    "llama_server_image_max_tokens": _COUNT,
    "llama_server_spec_type": _TEXT,
    "llama_server_spec_draft_n_max": _Field(int, 1, 6),
    "llama_server_spec_draft_p_min": _Field(float, 0, 1),
}
# the field that is not of the model, but names the slot
SLOT = "slot"
_WHERE = {SLOT: _TEXT}


def _own(profile: Mapping[str, Any], kinds: Kinds) -> dict[str, tuple[str, Any]]:
    """Return the profile's key and value for each field that its engine has."""
    engine: Mapping[str, Any] = profile.get("engine") or {}
    own: dict[str, tuple[str, Any]] = {"replicas": ("replicas", _replicas(engine))}
    for name, place in (_about(engine, kinds).get("settings") or {}).items():
        found: Any = engine.get("settings")
        for part in str(place).split("."):
            found = found.get(part) if isinstance(found, dict) else None
        known = _FIELDS.get(name)
        own[name] = (f"engine.settings.{place}", known.otherwise if found is None and known else found)
    return own


def _constraints(own: Mapping[str, tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what a client's form may offer: for a field that has a value, only that value."""
    found: dict[str, dict[str, Any]] = {}
    for name, (_key, value) in own.items():
        if is_number(value, int):
            found[name] = {"kind": "integer", "min": value, "max": value, "step": 1}
        elif isinstance(value, str):
            found[name] = {"kind": "enum", "values": [value]}
    return found


def overrides(verb: str, body: bytes) -> dict[str, Any] | Refusal:
    """Return the fields that a client sends along, or why they are refused; an unload takes none but the slot.

    A field that is there counts, also with null.
    """
    try:
        wanted = orjson.loads(body.strip() or b"{}")
    except orjson.JSONDecodeError as exc:
        return Refusal(422, "invalid_body", f"the body is not JSON: {exc}")
    if not isinstance(wanted, dict):
        return Refusal(422, "invalid_body", "the body is not a JSON object")
    known, faults = (_FIELDS if verb == "load" else {}) | _WHERE, []
    for field, value in sorted(wanted.items()):
        if field not in known:
            faults.append(f"unknown field: {field}")
        elif value is not None and not known[field].fits(value):
            faults.append(f"{field} is not {known[field].what}")
    return Refusal(422, "invalid_body", "; ".join(faults)) if faults else wanted


def refused_overrides(
    name: str, wanted: dict[str, Any], profile: Mapping[str, Any], kinds: Kinds, *, settled: bool
) -> Refusal | None:
    """Return why a load cannot be done as requested; `settled` tells that the model is loaded or being loaded."""
    if settled and wanted:
        words = f"{name} is loaded already, and {', '.join(sorted(wanted))} cannot be set on it; send an empty body"
        return Refusal(400, "invalid_load_request", words, details={"model": name})
    own, called = _own(profile, kinds), _about(profile.get("engine") or {}, kinds).get("backend") or "this engine"
    faults = [words for field, value in sorted(wanted.items()) if (words := _unlike(field, value, own, called))]
    if not faults:
        return None
    words = (
        f"{'; '.join(faults)}. A profile is served as it was verified, so a load changes nothing of it: write another "
        f"profile that extends {name}, and serve that one: ansible-playbook switch.yml -e profile=NAME"
    )
    return Refusal(400, "invalid_load_request", words, details={"model": name})


def _unlike(field: str, value: Any, own: Mapping[str, tuple[str, Any]], called: str) -> str:
    """Return how a field differs from the profile; empty where it does not."""
    if field not in own:
        return f"{field} is none of {called}"
    # some engines take numbers as texts
    key, has = own[field]
    if value == has or (value is not None and has is not None and str(value) == str(has)):
        return ""
    outside = _FIELDS[field].outside(value)
    told = f"{field} is {_told(value)}" + (f", {outside}" if outside else "")
    return f"{key} of the profile is {_told(has)}, and {told}"


def _told(value: Any) -> str:
    return "not set" if value is None else str(value)[:_MAX_TOLD]
