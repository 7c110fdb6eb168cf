# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the whole catalogue: folders and inline profiles -> inheritance -> validation -> complete profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.profile import Reasoning

from .checking import PATCHED_QUANTIZATIONS, combination_faults, is_asked
from .engines import setting_faults
from .merging import Library, Source, merge_chain, origin_files
from .problems import CatalogueError, Problem, did_you_mean
from .reading import SHIPPED, plain, read_folder, schema
from .rules import accepted, rule_faults
from .schema import Fault, faults
from .typed import derived_settings

INLINE = "b70_profiles"


def _sources(folders: Sequence[str | Path], inline: Mapping[str, Any], problems: list[Problem]) -> list[Source]:
    sources: list[Source] = []
    layers = [SHIPPED / "catalogue", *map(Path, folders)]
    for layer, folder in enumerate(layers):
        for name, (file, data) in read_folder(folder, problems).items():
            sources.append(Source(name, file, layer, data))
    for name, data in plain(inline).items():
        label = f"{INLINE}[{name}]"
        if not isinstance(data, dict):
            problems.append(Problem(label, "", "must be a mapping"))
        elif data.setdefault("name", name) != name:
            problems.append(Problem(label, "name", f'must be "{name}", like its key, not {data["name"]!r}'))
        else:
            sources.append(Source(name, label, len(layers), data))
    return sources


def _stack_faults(merged: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]] | None) -> Iterator[Fault]:
    stack = merged.get("stack")
    if stacks is None or not stack:
        return
    if stack not in stacks:
        hint = did_you_mean(stack, stacks) or f"; there are {', '.join(sorted(stacks))}"
        yield "stack", f'there is no stack manifest "{stack}"{hint}'
        return
    engine, manifest = merged.get("engine") or {}, stacks[stack]
    derived = derived_settings(engine, manifest)
    settings = {**(engine.get("settings") or {}), **{key: value for key, (value, _path) in derived.items()}}
    for path, message in setting_faults(settings, manifest):
        yield derived.get(path.removeprefix("engine.settings."), ("", path))[1], message
    method = (engine.get("online_quantization") or {}).get("method")
    if method in PATCHED_QUANTIZATIONS and method not in (manifest.get("engine") or {}).get("quantizations", []):
        message = f"no release of vLLM quantises to {method}; a stack whose engine does says so in engine.quantizations"
        yield "engine.online_quantization.method", f"{message}, and {stack} does not"
    yield from rule_faults(merged, manifest, stacks)


def load_catalogue(
    folders: Sequence[str | Path] = (),
    inline: Mapping[str, Any] | None = None,
    stacks: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return ``{name: profile}`` of every concrete profile, merged, checked and complete (see :func:`complete`).

    Each also has ``origin_files``: dotted path to the file that the value is written in.

    :param folders: folders of the user, in order; a profile of a later one replaces one of the same name.
    :param inline: profiles as data, after all folders.
    :param stacks: the known stack manifests by name; None leaves the stack, and what its engine accepts, unchecked.
    :raises CatalogueError: with every fault of every file.
    """
    problems: list[Problem] = []
    sources = _sources(folders, inline or {}, problems)
    rules = schema("profile.schema.json")
    broken: set[tuple[str, str]] = set()
    for source in sources:
        wrong = [Problem(source.file, path, message) for path, message in faults(source.data, rules)]
        problems += wrong
        if wrong:
            broken.add((source.name, source.file))
    library = Library([source for source in sources if isinstance(source.data.get("extends"), (str, type(None)))])
    found: dict[str, tuple[dict[str, Any], dict[str, str], str, dict[str, str]]] = {}
    for source in library.top():
        chain = library.chain(source, problems)
        if chain is None or source.abstract or any((item.name, item.file) in broken for item in chain):
            continue
        merged, origins = merge_chain(chain)
        files = origin_files(chain)
        for path, message in (*combination_faults(merged), *_stack_faults(merged, stacks)):
            # A value that was inherited is wrong where it was written.
            problems.append(Problem(files.get(path, source.file), path, message))
        found[source.name] = (merged, origins, source.file, files)
    if problems:
        raise CatalogueError(problems)
    return {
        name: complete(merged, origins, file)
        | {"accepted_rules": accepted(merged, (stacks or {}).get(merged["stack"], {})), "origin_files": files}
        for name, (merged, origins, file, files) in found.items()
    }


_MODEL = ("hf_repo", "revision", "directory", "weights_format", "size_gb", "experts", "group_size")
_CONDITIONS = ("needs_modality", "tasks", "needs")  # of a canary case
_THINKING_OFF = {"enable_thinking": False}  # what most templates read


def _reasoning(reasoning: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not reasoning:
        return None
    return {
        "how": reasoning["how"],
        "budget_tokens": reasoning.get("budget_tokens", Reasoning.budget_tokens),
        "tags": reasoning.get("tags", list(Reasoning.tags)),
        "template_kwargs": reasoning.get("template_kwargs", _THINKING_OFF if reasoning["how"] == "disabled" else {}),
    }


def complete(merged: Mapping[str, Any], origins: Mapping[str, str], file: str) -> dict[str, Any]:
    """Return a merged profile with every key present, so that readers need no defaults of their own.

    Adds ``origins`` (dotted path -> name of the profile that wrote the value) and ``source_file``. Canary cases for
    another task, or for what the profile lacks or does not claim, are left out; ``frontdoor.max_active_generations``
    falls back to max_num_seqs or 1, and ``canary.burst`` is no more than that.
    """
    profile: dict[str, Any] = plain(merged)
    name = profile["name"]
    model, engine = profile.get("model", {}), profile.get("engine", {})
    frontdoor, canary = profile.get("frontdoor", {}), profile.get("canary", {})
    settings = engine.get("settings", {})
    modalities, task = profile.get("modalities", ["text"]), engine.get("task", "generate")
    active = frontdoor.get("max_active_generations") or settings.get("max_num_seqs") or 1
    cases = [
        {"image": None, "long": None, **{key: value for key, value in case.items() if key not in _CONDITIONS}}
        for case in canary.get("cases", [])
        if is_asked(case, profile)
    ]
    return {
        "name": name,
        "title": profile.get("title", name),
        "purpose": profile.get("purpose", ""),
        "status": profile["status"],
        "status_reason": profile.get("status_reason", ""),
        "recommended": profile.get("recommended"),
        "modalities": modalities,
        "stack": profile["stack"],
        "cards": profile.get("cards", 4),
        "accepts_rules": profile.get("accepts_rules") or [],
        "model": {key: model.get(key) for key in _MODEL} | {"sha256": model.get("sha256", {})},
        "engine": {
            "kind": engine.get("kind", "vllm"),
            "served_model_name": engine.get("served_model_name", name),
            "task": task,
            "settings": settings,
            "reasoning": _reasoning(engine.get("reasoning")),
            "structured_output": engine.get("structured_output", False),
            "allowed_media_domains": engine.get("allowed_media_domains") or [],
            "online_quantization": engine.get("online_quantization"),
            "devices": engine.get("devices"),
            "collectives": engine.get("collectives", {}),
            "numa": engine.get("numa"),
            "extra_args": engine.get("extra_args", []),
            "env": engine.get("env", {}),
            "cache_key": engine.get("cache_key", name),
            "start_timeout_s": engine.get("start_timeout_s", 2400),
            "stop_timeout_s": engine.get("stop_timeout_s", 240),
            "kill_signal": engine.get("kill_signal", "SIGINT"),
        },
        "frontdoor": {
            "max_active_generations": active,
            "queue_timeout_s": frontdoor.get("queue_timeout_s", 0),
            "backend_timeout_s": frontdoor.get("backend_timeout_s", 7200),
            "chat_template_kwargs": frontdoor.get("chat_template_kwargs"),
            "max_tokens_default": frontdoor.get("max_tokens_default"),
            "max_tokens_cap": frontdoor.get("max_tokens_cap"),
            "sampling_defaults": frontdoor.get("sampling_defaults"),
            "model_policy": frontdoor.get("model_policy"),
            "model_aliases": frontdoor.get("model_aliases"),
            "event_log": frontdoor.get("event_log", True),
        },
        "canary": {
            "repeats": canary.get("repeats", 3),
            "timeout_s": canary.get("timeout_s", 300),
            "seed": canary.get("seed", 20260607),
            "burst": min(active, canary.get("burst", 0)),
            # Without a word in the settings vLLM has one.
            "cached": task == "generate" and settings.get("enable_prefix_caching") is not False,
            "cases": cases,
        },
        "notes": profile.get("notes", []),
        "evidence": profile.get("evidence") or {},
        "origins": dict(origins),
        "source_file": file,
    }
