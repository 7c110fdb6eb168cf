# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for people: each value of a profile with the file that sets it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from .._catalogue.checking import PLACEHOLDERS
from .._catalogue.engines import table_of
from .._catalogue.rules import left_for_proof
from .._catalogue.typed import expanded, of_first_engine
from .engine import engine_argv, engine_environment
from .launch import launch_of

_WORDS = ("title", "purpose", "status", "status_reason", "modalities", "stack", "cards")
_IF_GIVEN = ("min_runtime", "power_cap_w", "warmup")
_SECTIONS = ("model", "engine", "frontdoor", "canary", "liveness", "accuracy")
DEFAULT = "nobody: the default"


def explain(profile: Mapping[str, Any], manifest: Mapping[str, Any], site: Mapping[str, Any]) -> list[str]:
    """Return lines: each value with its file, then each variable of the engine with its origin, then the command.

    Paths that only a host decides stay placeholders (``@model_path@``).

    :param profile: as the catalogue returns it.
    :param manifest: its stack.
    :param site: variables of the site (``slot_env``).
    """
    files = profile["origin_files"]
    lines = [f"{profile['name']}, as {profile['source_file']} and what it extends say:"]
    lines += [f"{path}: {value}  <- {_file(files, path)}" for path, value in _values(profile)]
    lines += [
        f"breaks the rule {rule['id']} of the stack on purpose: {rule['reason']} ({rule['source']})"
        f"  <- {_file(files, 'accepts_rules')}"
        for rule in profile["accepted_rules"]
    ]
    lines += [
        f"is served only on a host that has proven {proof} (playbooks/evaluate.yml): {rule}"
        for proof, rule in left_for_proof(profile, manifest).items()
    ]
    places = {name: f"@{name}@" for name in (*PLACEHOLDERS, "relay_dir", "relay_bind")}
    places["model_file"] = f"@model_path@/{profile['model']['file'] or ''}"
    full, launch = expanded(of_first_engine(profile), manifest), launch_of(manifest)
    remote = profile["engine"].get("remote")
    if weights := [one["directory"] for one in profile["weights"]]:
        lines.append(f"Its weights stand in {', '.join(weights)}.")
    if remote:
        lines.append(f"The engine is elsewhere: {remote['base_url']} serves it as {remote['model']}.")
    which = "" if profile["replicas"] == 1 else ", here of the first of several engines"
    lines.append(f"The engine's environment (slot, then stack, then profile, then site; the later one wins{which}):")
    lines += _variables(engine_environment(full, manifest, site, places, "main", launch.path), manifest)
    lines.append("The engine's command:")
    lines.append(" ".join(launch.engine_argv(engine_argv(full, places, "@backend_host@", "@backend_port@"))))
    if launch.image:
        lines.append(f"in a container of the image {launch.image}")
    return lines


def _values(profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _WORDS:
        yield key, _shown(profile[key])
    yield from ((key, _shown(profile[key])) for key in _IF_GIVEN if profile[key])
    yield from ((key, _shown(profile[key])) for key in ("replicas", "nodes") if profile[key] != 1)
    yield from _leaves(profile["recommended"] or {}, "recommended")
    for section in _SECTIONS:
        yield from _leaves(profile[section], section)


def _leaves(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        where = f"{path}.{key}"
        if where == "canary.cases":
            yield where, ", ".join(case["name"] for case in value)
        elif where == "accuracy.questions" and value:
            yield where, f"{len(value)} of its own"
        elif isinstance(value, Mapping) and value:
            yield from _leaves(value, where)
        elif value not in (None, {}, []):
            yield where, _shown(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _file(files: Mapping[str, str], path: str) -> str:
    found = files.get(path) or next((file for key, file in files.items() if key.startswith(f"{path}.")), None)
    return PurePath(found).name if found else DEFAULT


def _variables(environment: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    known = table_of(manifest)
    for name, variable in environment.items():
        line = f"{name}={variable.value}  <- {variable.origin}"
        if known and name.startswith("VLLM_") and name not in known["environment"]:
            line += f"; vLLM {known['version']} as released does not know it: patches of the stack read it, or nothing"
        yield line
