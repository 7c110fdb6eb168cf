# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules: combinations that are known to fail. They are data: of a stack's manifest, and of one file for all stacks.

A rule over the version of the compute runtime is judged here where the stack brings one. For a stack that uses the
host's driver it is left for the host: see :func:`left_for_host`. So is one that a proof on the host lifts: see
:func:`left_for_proof`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine

from .checking import value_at
from .images import known_as, runtime_of
from .problems import did_you_mean
from .reading import SHIPPED, plain, read_yaml
from .schema import Fault
from .typed import derived_environment, derived_settings, release_of

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": lambda value, wanted: bool(value == wanted),
    "not_equals": lambda value, wanted: bool(value != wanted),
    "one_of": lambda value, wanted: value in wanted,
    "matches": lambda value, wanted: re.search(wanted, str(value)) is not None,
    "min": lambda value, wanted: _is_number(value) and value >= wanted,
    "max": lambda value, wanted: _is_number(value) and value <= wanted,
    "min_per": lambda value, wanted: _is_number(value) and value >= wanted,
    "not_power_of_two": lambda value, _wanted: _is_number(value) and (value < 1 or value & (value - 1) != 0),
    "not_multiple_of": lambda value, wanted: bool(_is_number(value) and wanted and value % wanted != 0),
}


# This variable turns captured graphs on and off, until the release that captures them by default and does not read it.
_GRAPHS, _WITHOUT_IT = "VLLM_XPU_ENABLE_XPU_GRAPH", (0, 31)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def subject(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what rules are about: a merged profile with all settings and variables that its engine gets.

    Everything about captured graphs is in engine.settings.compilation_config, and the part of the KV cache that is kept
    in the host's memory in engine.settings.kv_offloading_size, in GiB. engine.workers is how many cards compute one
    answer together. runtime is the compute runtime that the stack brings, None if it is the host's.
    """
    engine = dict(profile.get("engine") or {})
    derived = {key: value for key, (value, _path) in derived_settings(engine, manifest).items()}
    settings: dict[str, Any] = {**(engine.get("settings") or {}), **derived}
    graphs = dict(settings.get("compilation_config") or {})
    if settings.get("cudagraph_capture_sizes"):
        graphs["cudagraph_capture_sizes"] = settings["cudagraph_capture_sizes"]
    if settings.get("enforce_eager"):
        graphs["cudagraph_mode"] = "NONE"
    if kept := kind_of_engine(engine).host_cache_bytes(settings):
        settings["kv_offloading_size"] = kept / 2**30
    engine["workers"] = _workers(settings, experts=bool(value_at(profile, "model.experts")))
    engine["env"] = {
        **(manifest.get("env") or {}),
        **derived_environment(engine, profile.get("cards") or 0, manifest),
        **(engine.get("env") or {}),
    }
    if engine["env"].get(_GRAPHS) == "0" and release_of(manifest) < _WITHOUT_IT:
        graphs["cudagraph_mode"] = "NONE"
    engine["settings"] = settings | {"compilation_config": graphs}
    image = {"known_as": known_as(manifest.get("image") or {})}
    return {**profile, "engine": engine, "image": image, "runtime": runtime_of(manifest)}


@functools.cache
def common() -> tuple[Mapping[str, Any], ...]:
    """Return the rules that hold for all stacks."""
    return tuple(plain(read_yaml(SHIPPED / "rules.yml"))["rules"])


def _workers(settings: Mapping[str, Any], *, experts: bool) -> int:
    """Return how many cards talk to each other. Replicas inside an engine do if they share experts."""
    sizes = [settings.get(f"{of}_parallel_size") for of in ("tensor", "pipeline", *(["data"] if experts else []))]
    return math.prod(int(size or 1) for size in sizes)


def _found(whole: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return ``{path: value}`` of what is there; a path that ends with * stands for all keys with this beginning."""
    if not path.endswith("*"):
        value = value_at(whole, path)
        return {} if value is None else {path: value}
    parent, _dot, start = path.removesuffix("*").rpartition(".")
    keys = value_at(whole, parent) or {}
    return {f"{parent}.{key}": value for key, value in keys.items() if key.startswith(start)}


def _holds(whole: Mapping[str, Any], path: str, condition: Mapping[str, Any]) -> bool:
    """Return whether a condition holds.

    One entry of a list, or one key of several, is enough. An absent value meets only present: false.
    """
    found = list(_found(whole, path).values())
    value = (found if path.endswith("*") else found[0]) if found else condition.get("default")
    if "present" in condition and condition["present"] != (value is not None):
        return False
    wanted = {key: item for key, item in condition.items() if key in _OPERATORS}
    if value is None:
        return not wanted and "present" in condition
    if "not_multiple_of" in wanted:
        base = value_at(whole, wanted["not_multiple_of"]["path"])
        wanted["not_multiple_of"] = base + wanted["not_multiple_of"].get("plus", 0) if _is_number(base) else None
    if "min_per" in wanted:
        base = value_at(whole, wanted["min_per"]["path"])
        wanted["min_per"] = wanted["min_per"]["value"] * (base if _is_number(base) else 1)
    entries = value if isinstance(value, list) else [value]
    return any(all(_OPERATORS[key](entry, item) for key, item in wanted.items()) for entry in entries)


def broken(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rules that a merged profile breaks on a stack."""
    rules, whole = [*(manifest.get("rules") or []), *common()], subject(profile, manifest)
    return [rule for rule in rules if all(_holds(whole, path, condition) for path, condition in rule["when"].items())]


def left_for_host(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what a host still has to judge: ``matches``, a pattern of versions of its compute runtime, and ``reason``.

    These are the rules over the runtime that a profile breaks but for the runtime, on a stack that brings none.
    """
    if manifest.get("device") != "xpu" or "image" in manifest:
        return []
    whole, taken = subject(profile, manifest), profile.get("accepts_rules") or []
    return [
        {"matches": rule["when"]["runtime"]["matches"], "reason": in_words(rule)}
        for rule in common()
        if "runtime" in rule["when"]
        and rule["id"] not in taken
        and all(_holds(whole, path, condition) for path, condition in rule["when"].items() if path != "runtime")
    ]


def _can_be_proven(rule: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Return whether a host can prove that a rule does not hold there: evaluate.yml measures with the host's driver."""
    return "unless_proven" in rule and manifest.get("device") == "xpu" and "image" not in manifest


def left_for_proof(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what a host must have proven before it serves a profile, by the name of the proof, with the rule."""
    taken = profile.get("accepts_rules") or []
    return {
        rule["unless_proven"]: in_words(rule)
        for rule in broken(profile, manifest)
        if rule["id"] not in taken and _can_be_proven(rule, manifest)
    }


def rule_faults(
    profile: Mapping[str, Any], manifest: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]]
) -> Iterator[Fault]:
    """Yield a fault for each rule that a profile breaks without accepting it, or that it accepts and no stack has."""
    accepted = profile.get("accepts_rules") or []
    known = {rule["id"] for stack in stacks.values() for rule in stack.get("rules") or []}
    known |= {rule["id"] for rule in common()}
    for index, name in enumerate(accepted):
        if name not in known:
            hint = did_you_mean(name, known) or f" (there are {', '.join(sorted(known)) or 'none'})"
            yield f"accepts_rules[{index}]", f'no stack has a rule "{name}"{hint}'
    for rule in broken(profile, manifest):
        if rule["id"] in accepted or _can_be_proven(rule, manifest):
            continue
        written = [path for when in rule["when"] for path in _written(profile, when, rule["when"][when])]
        path = written[-1] if written else "stack"
        yield path, f'breaks the rule "{rule["id"]}" of the stack {manifest["name"]}: {in_words(rule)}'


# Where a profile writes the values that a path of `subject` is made from.
_MADE_FROM = {"engine.workers": tuple(f"engine.settings.{of}_parallel_size" for of in ("data", "pipeline", "tensor"))}


def _written(profile: Mapping[str, Any], path: str, condition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths in a profile that meet a condition of a rule that it breaks."""
    if path in _MADE_FROM:
        yield from (place for place in _MADE_FROM[path] if (value_at(profile, place) or 1) > 1)
    else:
        yield from (place for place in _found(profile, path) if _holds(profile, place, condition))


def in_words(rule: Mapping[str, Any]) -> str:
    """Return the reason of a rule, the alternative, the source, and how to serve the profile nevertheless."""
    return (
        f"{_sentence(rule['reason'])} {_sentence(rule['remedy'])} Source: {rule['source']}. "
        f"Whoever serves it all the same writes accepts_rules: [{rule['id']}]"
    )


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words if words.endswith(".") else f"{words}."


def accepted(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return id and reason of the rules that a merged profile breaks on purpose."""
    return [
        {"id": rule["id"], "reason": " ".join(rule["reason"].split()), "source": rule["source"]}
        for rule in broken(profile, manifest)
        if rule["id"] in (profile.get("accepts_rules") or [])
    ]
