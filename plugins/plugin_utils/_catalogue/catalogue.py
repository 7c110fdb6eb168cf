# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load the whole catalogue: folders and inline profiles -> inheritance -> validation -> complete profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import Reasoning
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.card_memory import numbers

from .checking import PATCHED_QUANTIZATIONS, combination_faults, is_asked
from .engines import setting_faults, variable_faults
from .images import runtime_of
from .merging import Library, ProfileSource, merge_chain, origin_files
from .places import COMPANIONS, WeightsSettings, directory_of, models_of, unseen_paths
from .problems import CatalogueError, Problem, did_you_mean
from .reading import SHIPPED, plain, read_folder, schema
from .rules import accepted, broken, rule_faults
from .schema import Fault, completed, faults
from .stacks import is_relay
from .typed import derived_settings

INLINE = "b70_profiles"
DEFAULTS = WeightsSettings()


def _sources(folders: Sequence[str | Path], inline: Mapping[str, Any], problems: list[Problem]) -> list[ProfileSource]:
    sources: list[ProfileSource] = []
    layers = [SHIPPED / "catalogue", *map(Path, folders)]
    for layer, folder in enumerate(layers):
        for name, (file, data) in read_folder(folder, problems).items():
            sources.append(ProfileSource(name, file, layer, data))
    for name, data in plain(inline).items():
        label = f"{INLINE}[{name}]"
        if not isinstance(data, dict):
            problems.append(Problem(label, "", "must be a mapping"))
        elif data.setdefault("name", name) != name:
            problems.append(Problem(label, "name", f'must be "{name}", like its key, not {data["name"]!r}'))
        else:
            sources.append(ProfileSource(name, label, len(layers), data))
    return sources


def _stack_faults(merged: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]] | None) -> Iterator[Fault]:
    stack = merged.get("stack")
    if stacks is None or not stack:
        return
    remote = kind_of_engine(merged.get("engine") or {}).remote
    if stack not in stacks:
        hint = did_you_mean(stack, stacks) or f"; there are {', '.join(sorted(stacks))}"
        yield "stack", f'there is no stack manifest "{stack}"{hint}'
        return
    engine, manifest = merged.get("engine") or {}, stacks[stack]
    if remote != is_relay(manifest):
        yield "stack", f"{stack} and engine.kind cannot be combined: the stack of an engine elsewhere has device: none"
        return
    kind, own = kind_of_engine(engine), kind_of_engine(manifest.get("engine") or {})
    if kind is not own:
        yield "stack", f"{stack} has {own.title}, but engine.kind is {kind.name}"
        return
    derived = derived_settings(engine, manifest)
    settings = {**(engine.get("settings") or {}), **{key: value for key, (value, _path) in derived.items()}}
    for path, message in setting_faults(settings, manifest):
        yield derived.get(path.removeprefix("engine.settings."), ("", path))[1], message
    method = (engine.get("online_quantization") or {}).get("method")
    if method in PATCHED_QUANTIZATIONS and method not in (manifest.get("engine") or {}).get("quantizations", []):
        message = f"no release of vLLM quantises to {method}; a stack whose engine does says so in engine.quantizations"
        yield "engine.online_quantization.method", f"{message}, and {stack} does not"
    yield from variable_faults((merged.get("engine") or {}).get("env") or {}, manifest)
    if engine.get("mounts") and "image" not in manifest:
        yield "engine.mounts", f"is for stacks of images; an engine of {stack} reads the host's files where they are"
    yield from unseen_paths(merged, manifest)
    yield from rule_faults(merged, manifest, stacks)
    yield from _runtime_faults(merged, manifest)


def _runtime_faults(merged: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a compute runtime that is too old for a profile, and what a recommendation lacks."""
    least, runtime = merged.get("min_runtime"), runtime_of(manifest)
    if least and runtime and numbers(runtime) < numbers(least):
        yield "min_runtime", f"is {least}, but the image of {manifest['name']} has compute runtime {runtime}"
    recommended, evidence = merged.get("recommended"), merged.get("evidence") or {}
    if not recommended or not merged.get("cards"):
        return
    where, record = "recommended", recommended.get("record")
    if not record:
        yield (
            f"{where}.record",
            "is missing: name a public record of a host that served it so, with its runtime and firmware",
        )
    elif runtime and numbers(runtime) != numbers(record["runtime"]):
        yield f"{where}.record.runtime", f"is {record['runtime']}, but the image of {manifest['name']} has {runtime}"
    verdict = (evidence.get("quality") or {}).get("verdict", "unknown")
    if evidence.get("source") in (None, "none recorded") or verdict in ("unknown", "failed"):
        yield where, f"needs evidence with a source and a verdict on quality, which is {verdict} here"
    for rule in broken(merged, manifest):
        yield where, f"does not go with the rule {rule['id']}, which the profile breaks"


def faults_of(merged: Mapping[str, Any], stacks: Mapping[str, Mapping[str, Any]] | None) -> Iterator[tuple[str, str]]:
    """Yield ``(dotted path, message)`` for what can't work in a merged, schema-clean profile, or not on its stack."""
    yield from combination_faults(merged)
    yield from _stack_faults(merged, stacks)


def load_catalogue(
    folders: Sequence[str | Path] = (),
    inline: Mapping[str, Any] | None = None,
    stacks: Mapping[str, Mapping[str, Any]] | None = None,
    site: WeightsSettings = DEFAULTS,
) -> dict[str, dict[str, Any]]:
    """Return ``{name: profile}`` of every concrete profile, merged, checked and complete (see :func:`complete`).

    Each also has ``origin_files``: dotted path to the file that the value is written in.

    :param folders: folders of the user, in order; a profile of a later one replaces one of the same name.
    :param inline: profiles as data, after all folders.
    :param stacks: the known stack manifests by name; None leaves the stack, and what its engine accepts, unchecked.
    :param site: what the site says of weights. It decides which commit a model is.
    :raises CatalogueError: with every fault of every file.
    """
    problems: list[Problem] = []
    sources = _sources(folders, inline or {}, problems)
    broken: set[tuple[str, str]] = set()
    rules = schema("profile.schema.json")
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
        for path, message in faults_of(merged, stacks):
            # An inherited value is wrong where it was written.
            problems.append(Problem(files.get(path, source.file), path, message))
        found[source.name] = (merged, origins, source.file, files)
    for name, (merged, _origins, file, files) in found.items():
        path, other = "canary.same_answers_as", (merged.get("canary") or {}).get("same_answers_as")
        if other and (other == name or other not in found):
            message = f'must name another profile; there is no "{other}"{did_you_mean(other, found)}'
            if other == name:
                message = "must name another profile, not this one"
            problems.append(Problem(files.get(path, file), path, message))
    if problems:
        raise CatalogueError(problems)
    profiles = {
        name: settled(complete(merged, origins, file), site)
        | {"accepted_rules": accepted(merged, (stacks or {}).get(merged["stack"], {})), "origin_files": files}
        for name, (merged, origins, file, files) in found.items()
    }
    if shared := list(_shared_directories(profiles, site)):
        raise CatalogueError(shared)
    return profiles


def settled(profile: Mapping[str, Any], site: WeightsSettings) -> dict[str, Any]:
    """Return a complete profile whose models have the commits that the site takes of their repositories.

    ``weights`` lists their directories: each with its ``base`` (without the commit) and its ``repository``.
    """
    model = site.settle(profile["model"])
    model |= {name: site.settle(model[name]) for name in COMPANIONS if model.get(name)}
    done = {**profile, "model": model}
    weights = [
        {"directory": directory, "base": one["directory"], "repository": one["hf_repo"]}
        for _where, one, _files in models_of(done)
        if (directory := directory_of(one))
    ]
    return {**done, "weights": weights}


def _shared_directories(profiles: Mapping[str, Mapping[str, Any]], site: WeightsSettings) -> Iterator[Problem]:
    """Yield a problem for each profile whose directory holds another repository, revision or file for another one.

    Two commits of a repository are two directories. What the site itself fills, and a directory of its own (absolute),
    may have files for several profiles. Files that settings name beside the model's own do not differ: a directory has
    those of all its profiles.
    """
    known: dict[object, tuple[str, tuple[str, ...]]] = {}
    for name, profile in profiles.items():
        for where, model, _files in models_of(profile):
            base, repository = str(model["directory"] or ""), model["hf_repo"]
            if not base or not repository or site.brings(base):
                continue
            whole = (repository, *([f"at {model['revision']}"] if model["revision"] else []))
            file = [model["file"]] if model["file"] else []
            if base.startswith("/"):
                parts = [((base, *file), whole)]
            else:
                parts = [((base,), (repository,)), ((base, directory_of(model)), (*whole, *file))]
            for key, holds in parts:
                other, theirs = known.setdefault(key, (name, holds))
                if holds != theirs:
                    text = f"has {' '.join(theirs)} for {other}, and {' '.join(holds)} here; name another directory"
                    path = f"{where}.directory"
                    yield Problem(profile["origin_files"].get(path, profile["source_file"]), path, f"{base} {text}")
                    break


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


def _warmup(warmup: Mapping[str, Any]) -> dict[str, Any] | None:
    shapes = [{"concurrency": 1, **shape} for shape in warmup["shapes"] or []]
    return {**warmup, "shapes": shapes} if shapes else None


def _remote(remote: Mapping[str, Any] | None) -> dict[str, Any] | None:
    keys = ("base_url", "model", "api_key_file", "ca_file")
    return {key: remote.get(key) for key in keys} if remote else None


def _aliases(name: str, remote: Mapping[str, Any] | None, frontdoor: Mapping[str, Any]) -> list[str] | None:
    given: list[str] | None = frontdoor.get("model_aliases")
    if not remote or name == remote["model"]:
        return given
    return list(dict.fromkeys([name, *(given or [])]))


def complete(merged: Mapping[str, Any], origins: Mapping[str, str], file: str) -> dict[str, Any]:
    """Return a merged profile with every key present, so that readers need no defaults of their own.

    Adds ``origins`` (dotted path -> name of the profile that wrote the value) and ``source_file``. Canary cases for
    another task, or for what the profile lacks or does not claim, are left out; ``frontdoor.max_active_generations``
    falls back to max_num_seqs or 1, and ``canary.burst`` is no more than that.
    """
    rules = schema("profile.schema.json")
    profile = completed(plain(merged), rules)
    model, engine, frontdoor, canary, liveness, accuracy, warmup = (
        completed(profile[key] or {}, rules["properties"][key])
        for key in ("model", "engine", "frontdoor", "canary", "liveness", "accuracy", "warmup")
    )
    name, settings, kind = profile["name"], engine["settings"], kind_of_engine(engine)
    # Clients name the model otherwise than a remote engine does, so the frontdoor replaces one name by the other.
    remote, name_here = _remote(engine["remote"]), engine["served_model_name"] or name
    active = frontdoor["max_active_generations"] or kind.sequences(settings) or 1
    cases = [
        {
            "image": None,
            "long": None,
            **({"stream": not kind.remote} if "prompt" in case else {}),
            **{key: value for key, value in case.items() if key not in _CONDITIONS},
        }
        for case in canary["cases"] or []
        if is_asked(case, profile)
    ]
    companions = {
        key: completed(model[key], rules["properties"]["model"]["properties"][key]) for key in COMPANIONS if model[key]
    }
    return {
        **{key: value for key, value in profile.items() if key != "extends"},
        "title": profile["title"] or name,
        "model": {key: value for key, value in model.items() if key not in COMPANIONS} | companions,
        "engine": engine
        | {
            "kind": kind.name,
            "served_model_name": remote["model"] if remote else name_here,
            "remote": remote,
            "reasoning": _reasoning(engine["reasoning"]),
            "cache_key": engine["cache_key"] or name,
            "kill_signal": engine["kill_signal"] or kind.kill_signal,
        },
        "frontdoor": frontdoor
        | {
            "max_active_generations": active,
            # the remote has more models than this one, and the key of this host pays for them
            "model_policy": frontdoor["model_policy"] or ("reject" if remote else None),
            "model_aliases": _aliases(name_here, remote, frontdoor),
        },
        "canary": canary
        | {
            "burst": min(active, canary["burst"]),
            "cached": engine["task"] == "generate" and kind.caches_prompts(settings),
            "cases": cases,
        },
        "warmup": _warmup(warmup),
        "liveness": liveness,
        "accuracy": accuracy,
        "origins": dict(origins),
        "source_file": file,
    }
