# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that the pinned release of an engine accepts, from tables recorded from the release itself."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import DEFAULT, kind_of

from .problems import did_you_mean
from .reading import SHIPPED
from .schema import Fault, type_name
from .typed import release_of

_KINDS = {"string": "text", "integer": "integer", "number": "number", "array": "array", "object": "object"}
_WORDS = {"text": "text", "integer": "a whole number", "number": "a number", "array": "a list", "object": "a mapping"}


@functools.cache
def table(kind: str, version: str) -> Mapping[str, Any] | None:
    """Return ``{options, environment, version, recorded_from}`` of a release, or None when it was not recorded.

    ``sources`` has ``environment``, the variables that only the sources name, where these were read.
    """
    file = SHIPPED / "engines" / f"{kind}-{version}.json"
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table_of(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the table of the release that a stack manifest pins, or None."""
    engine = (manifest or {}).get("engine") or {}
    return table(engine["kind"], engine["version"]) if {"kind", "version"} <= set(engine) else None


def versions(kind: str = DEFAULT.name) -> list[str]:
    """Return the recorded releases of an engine, oldest first."""
    names = [file.stem.removeprefix(f"{kind}-") for file in (SHIPPED / "engines").glob(f"{kind}-*.json")]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


@functools.cache
def recorded(kind: str, key: str) -> tuple[Mapping[str, Any], ...]:
    """Return what each recorded release of an engine says of one option; an empty mapping for one that lacks it."""
    return tuple((table(kind, version) or {})["options"].get(key, {}) for version in versions(kind))


def setting_faults(settings: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield ``(path, message)`` for each setting that the release which a stack pins would refuse.

    :param settings: ``engine.settings`` of a merged profile, clean by the schema.
    :param manifest: the stack. If its release was not recorded, nothing is yielded: its engine is asked on the host.
    """
    known = table_of(manifest)
    if known is None:
        return
    release = f"{kind_of(known['engine']).title} {known['version']}, which the stack {manifest['name']} pins,"
    added = set(manifest["engine"].get("quantizations", []))
    for key, value in settings.items():
        where = f"engine.settings.{key}"
        option = known["options"].get(key)
        if option is None:
            yield where, f"{release} has no --{_dashed(key)}{did_you_mean(key, known['options'])}"
        elif value is None:
            continue
        elif option["form"] == "flag" and value is False:
            yield where, f"{release} has no --no-{_dashed(key)}; leave the key out, or set it to null"
        elif option["form"] not in ("flag", "switch"):
            yield from _value_faults(where, value, option, release, added if key == "quantization" else set())


_SYCL_SINCE = (0, 0, 9897)  # llama.cpp counted builds then
# Variables that nothing reads: kind of engine, name, since which release, and what does their work now.
_GONE: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
    ("vllm", r"(?:PYTORCH_)?TRANSFORMERS_CACHE", (), "HF_HOME, which the slot sets"),
    ("vllm", r"VLLM_ATTN_BACKEND|VLLM_ATTENTION_BACKEND", (), "engine.settings.attention_backend"),
    ("vllm", r"VLLM_XPU_ENABLE_XPU_GRAPH", (0, 31), "cudagraph_mode in engine.settings.compilation_config"),
    ("llama-server", r"GGML_SYCL_DISABLE_(\w+)", _SYCL_SINCE, r"GGML_SYCL_ENABLE_\1 with the opposite value"),
    ("llama-server", r"GGML_SYCL_ENABLE_LEVEL_ZERO", _SYCL_SINCE, "GGML_SYCL_USE_LEVEL_ZERO_API"),
    ("llama-server", r"GGML_SYCL_SUPPORT_LEVEL_ZERO", _SYCL_SINCE, "GGML_SYCL_SUPPORT_LEVEL_ZERO_API"),
)
# Beginnings of the names of an engine's own variables.
_PREFIXES = {"vllm": ("VLLM_",), "llama-server": ("GGML_", "LLAMA_")}


def variable_faults(env: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield ``(path, message)`` for each variable that the engine of a stack does not read.

    Only names that begin like the engine's own are looked up, and only in tables of recorded releases. What patches of
    a stack read, its manifest names in ``patched_variables``.

    :param env: ``engine.env`` of a merged profile.
    """
    engine, known = manifest.get("engine") or {}, table_of(manifest)
    kind, patched = engine.get("kind") or DEFAULT.name, manifest.get("patched_variables") or []
    for name in env:
        where = f"engine.env.{name}"
        if instead := _instead(kind, name, manifest):
            yield where, f"is read by nothing in the stack {manifest['name']}; use {instead}"
        elif known and name.startswith(_PREFIXES.get(kind, ("-",))) and name not in (*read_by(known), *patched):
            release = f"{kind_of(kind).title} {known['version']}, which the stack {manifest['name']} pins,"
            hint = did_you_mean(name, read_by(known))
            yield where, f"{release} does not read it{hint}; what patches read stands in patched_variables of a stack"


def _instead(kind: str, name: str, manifest: Mapping[str, Any]) -> str:
    """Return what does the work of a variable that nothing reads; empty for every other one."""
    # Images of vLLM whose release nobody recorded are older than those that are.
    aged = kind != DEFAULT.name or "version" in (manifest.get("engine") or {})
    for of, pattern, since, instead in _GONE:
        gone = of == kind and re.fullmatch(pattern, name)
        if gone and (not since or (aged and release_of(manifest) >= since)):
            return gone.expand(instead)
    return ""


def read_by(known: Mapping[str, Any]) -> list[str]:
    """Return the variables that a recorded release reads: those that it names itself, and those of its sources."""
    return [*known["environment"], *(known.get("sources") or {}).get("environment", [])]


def _dashed(key: str) -> str:
    return key.replace("_", "-")


def _value_faults(where: str, value: Any, option: Mapping[str, Any], release: str, added: set[str]) -> Iterator[Fault]:
    listed = option["form"] in ("values", "repeated") and isinstance(value, list)
    choices, accepts = option.get("choices"), option["accepts"]
    for index, entry in enumerate(value if listed else [value]):
        path = f"{where}[{index}]" if listed else where
        kind = _KINDS.get(type_name(entry), "text")
        # Every word of a command line is text, and a whole number is a number.
        fits = {"integer": {"integer", "number", "text"}, "number": {"number", "text"}}.get(kind, {kind})
        if choices is not None and str(entry) not in choices and entry not in added:
            shown = ", ".join(choices)
            yield path, f"{release} knows no {entry!r} there{did_you_mean(str(entry), choices)} (it knows {shown})"
        elif not fits & set(accepts):
            wanted = " or ".join(_WORDS[item] for item in accepts)
            yield path, f"{release} wants {wanted} there, not {_WORDS[kind]}"
