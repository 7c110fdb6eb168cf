# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths on a host that profiles and manifests name.

A variable that points to a path that no role makes is a fault, which is found before a host is touched.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import gguf
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import at_revision

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


@dataclass(frozen=True)
class WeightsSettings:
    """The settings of a site about the weights that its profiles name.

    :param sources: model_weights_models.
    :param revisions: model_weights_revisions, commits by repository.
    :param pins: the recorded commits by repository.
    """

    sources: Mapping[str, Any] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)

    def brings(self, directory: str) -> bool:
        """Return whether the site itself says what is in a directory."""
        return isinstance(self.sources.get(directory), Mapping)

    def settle(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model with the repository and the commit that its directory on a host is filled from.

        A source of the site precedes the profile. A directory of the profile's own (absolute) stays what it says.
        """
        directory, repository = str(model["directory"] or ""), model["hf_repo"]
        if not directory or directory.startswith("/"):
            return dict(model)
        if self.brings(directory):
            source = self.sources[directory]
            if "hub" not in source:
                return {**model, "revision": None}
            repository, revision = source["hub"], source.get("revision")
        else:
            revision = self.revisions.get(repository) or model["revision"]
        return {**model, "hf_repo": repository, "revision": revision or self.pins.get(repository)}


# Where images have files of their own. What else one has, its manifest names in image.paths.
_OF_IMAGES = tuple("usr lib lib64 bin sbin dev proc sys app workspace vllm-workspace opt/intel opt/venv".split())
# Folders that the unit of an engine from an environment hides (ProtectHome=, PrivateTmp=).
_HIDDEN = ("home", "root", "run/user", "tmp", "var/tmp")
_PATH = re.compile(r"(?:file://)?(/[^\s]*|(?:~\w*|\.{1,2})/.*)")


def texts_of(word: str) -> Iterator[str]:
    """Yield the texts of one word of a command line: those in its JSON, or the word without ``NAME=``."""
    try:
        todo = [json.loads(word)] if word.startswith(("{", "[")) else []
    except ValueError:
        todo = []
    if not todo:
        yield re.split("=(?=/)", word, maxsplit=1)[-1]
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, (dict, list)):
            todo += node.values() if isinstance(node, dict) else node


def unseen_paths(profile: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield ``(dotted path, message)`` for each file or folder that the engine of a stack would not see.

    A container sees its image, the model's folders, what @models_dir@ and the other placeholders stand for, and what
    engine.mounts names; an engine from an environment sees the host without its homes and temporary folders.
    """
    engine, model, image = profile.get("engine") or {}, profile.get("model") or {}, manifest.get("image")
    beside = [(model.get(name) or {}).get("directory") for name in COMPANIONS]
    seen = [*(engine.get("mounts") or {}).values(), *(path for path in (model.get("directory"), *beside) if path)]
    if image is not None:
        own = [posixpath.dirname(posixpath.dirname(image.get("program") or "")), *image.get("paths", [])]
        seen += [*(path for path in own if path.strip("/")), *(f"/{top}" for top in _OF_IMAGES)]
    for where, text in _words(engine):
        for word in texts_of(text):
            found = _PATH.fullmatch(word)
            path = posixpath.normpath(found[1]) if found else ""
            if not path or _is_below(path, seen):
                continue
            hidden = next((top for top in _HIDDEN if _is_below(path, [f"/{top}"])), "")
            if not path.startswith("/"):
                yield where, f"{word} is no absolute path, and no shell reads it; write the whole path"
            elif image is not None:
                instead = f"put it below @models_dir@ and write it so, or name it in engine.mounts ({{{path}: {path}}})"
                yield where, f"{path} is not in the container, which sees the models alone: {instead}"
            elif hidden:
                yield where, f"{path} is hidden from the engine, whose unit sees no /{hidden}: move it, to /srv say"


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _words(engine: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text of an engine section that may be a path, with the key that it comes from."""

    def leaves(node: Any, where: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, str):
            yield where, node
        elif isinstance(node, (Mapping, list)):
            items = node.items() if isinstance(node, Mapping) else enumerate(node)
            for key, item in items:
                yield from leaves(item, f"{where}[{key}]" if isinstance(node, list) else f"{where}.{key}")

    for part in ("settings", "extra_args"):
        yield from leaves(engine.get(part), f"engine.{part}")
    for name, value in (engine.get("env") or {}).items():
        yield from ((f"engine.env.{name}", text) for text in str(value).split(":"))


def directory_of(model: Mapping[str, Any]) -> str:
    """Return the directory of a settled model: absolute, or below that of the models. Empty if there is none."""
    directory = str(model["directory"] or "").rstrip("/")
    managed = directory and not directory.startswith("/") and model.get("hf_repo")
    return at_revision(directory, model.get("revision")) if managed else directory


def weights_path(profile: Mapping[str, Any], models_dir: str, found: Mapping[str, Any] | None = None) -> str:
    """Return the absolute path of a profile's weights on the host; empty if the engine is elsewhere.

    :param found: by directory, what the host said of it: ``at`` is where the model stands.
    """
    directory = directory_of(profile["model"])
    directory = (found or {}).get(directory, {}).get("at", directory)
    return directory if not directory or directory.startswith("/") else f"{models_dir.rstrip('/')}/{directory}"


def companion_paths(
    profile: Mapping[str, Any], models_dir: str, found: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the absolute path of each model beside the profile's own, by its name."""
    given = {name: profile["model"].get(name) for name in COMPANIONS}
    return {name: weights_path({"model": model}, models_dir, found) for name, model in given.items() if model}


def directories(profiles: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the directories of the models of complete profiles, with their commit and, as filled by hand, without."""
    models = [one for profile in profiles.values() for one in profile["weights"]]
    return list(dict.fromkeys(one[key] for key in ("directory", "base") for one in models))


def models_of(profile: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], list[str]]]:
    """Return the models of a profile: dotted path, model, and the patterns of its files; no pattern means all files."""
    model = profile["model"]
    beside = {name: model[name] for name in COMPANIONS if model.get(name)}
    return [
        ("model", model, files_of(profile)),
        *(
            (f"model.{name}", one, [gguf.pattern(one["file"])] if one.get("file") else [])
            for name, one in beside.items()
        ),
    ]


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
