# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths on a host that profiles and manifests name.

A variable that points to a path that no role makes is a fault, which is found before a host is touched.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import gguf

MADE = "below @stack_dir@ there is only venv, and below @venv@ bin, include, lib and share, as wheels fill them"

COMPANIONS = ("draft", "projector")  # models beside the profile's own
_WEIGHTS = "@model_path@/"
_BELOW = re.compile(r"@(stack_dir|venv)@(/[^:;, ]*)?")
_OF_WHEELS = ("bin", "etc", "include", "lib", "lib64", "share")
_SERIES = re.compile(r"python3\.(\d+)")


def unmade_paths(value: str, python: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield each path below @stack_dir@ or @venv@ in a variable's value that installing a stack does not make.

    `python` is the manifest's (`min` and `below`): a folder of another series of Python exists in no environment of it.
    """
    for found in _BELOW.finditer(value):
        parts = [part for part in posixpath.normpath(found[2] or "/").split("/") if part]
        if found[1] == "stack_dir" and parts[:1] == ["venv"]:
            parts = parts[1:]
        elif found[1] == "stack_dir" and parts:
            yield found[0]
            continue
        if (parts and parts[0] not in _OF_WHEELS) or not _fits(parts, python):
            yield found[0]


def weights_path(profile: Mapping[str, Any], models_dir: str) -> str:
    """Return the absolute path of a profile's weights on the host; empty if the engine is elsewhere."""
    directory = str(profile["model"]["directory"] or "").rstrip("/")
    if not directory:
        return ""
    return directory if directory.startswith("/") else f"{models_dir.rstrip('/')}/{directory}"


def companion_paths(profile: Mapping[str, Any], models_dir: str) -> dict[str, str]:
    """Return the absolute path of each model beside the profile's own, by its name."""
    given = {name: profile["model"].get(name) for name in COMPANIONS}
    return {name: weights_path({"model": model}, models_dir) for name, model in given.items() if model}


def files_of(profile: Mapping[str, Any]) -> list[str]:
    """Return the files of a profile's model that its engine loads, as patterns; empty if it loads all of them."""
    model = profile["model"]
    if not model.get("file"):
        return []
    engine = profile["engine"]
    texts = [text for text in (*engine["settings"].values(), *engine["extra_args"]) if isinstance(text, str)]
    named = [text.removeprefix(_WEIGHTS) for text in texts if text.startswith(_WEIGHTS)]
    return sorted({gguf.pattern(name) for name in (model["file"], *named)})


def _fits(parts: list[str], python: Mapping[str, Any] | None) -> bool:
    series = _SERIES.fullmatch(parts[1]) if len(parts) > 1 and parts[0] in ("lib", "lib64") else None
    if series is None or not python:
        return True
    lowest, below = (int(str(python[key]).partition(".")[2]) for key in ("min", "below"))
    return lowest <= int(series[1]) < below
