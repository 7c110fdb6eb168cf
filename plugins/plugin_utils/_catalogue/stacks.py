# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stack manifests: pinned sets of versions, and the id under which a host installs one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .places import MADE, unmade_paths
from .problems import CatalogueError, Problem, did_you_mean
from .reading import SHIPPED, plain, read_folder, schema
from .schema import Fault, faults

# Keys that may change without another installation: words for people, where the file lies, the environment at run time.
NOT_IN_ID = (
    "title",
    "description",
    "notes",
    "evidence",
    "installable",
    "reason",
    "env",
    "patched_variables",
    "card_interface",
    "rules",
    "source_file",
    "based_on",
    "lock_file",
)
# The same for a patch: what it is for, and where it comes from if its digest identifies it. Without a digest its place
# in a Git repository does: a commit and a path stand for the bytes there.
NOT_IN_PATCH = ("needed_by", "dropped_at", "upstream")
PLACE_OF_PATCH = ("repo", "commit", "path", "encoding")
# The same for a wheel: where it comes from.
NOT_IN_FIRST = ("index", "url")

CMAKE_NEEDS = ("cmake", "ninja", "scikit-build-core")
NEEDED_TO_INSTALL = ("machines", "python", "disk_mib")
# An image has its own Python, and nothing else is installed beside it.
NEEDED_OF_IMAGE = ("machines", "disk_mib")
NOT_OF_IMAGE = ("python", "first", "lock", "aliases", "sources", "build", "patches", "oneapi", "verify")
# Keys that identify an image, and say how it is started. Of two digests the first one counts.
IN_ID_OF_IMAGE = ("name", "program", "start", "debs")
# Keys of a stack itself, not of stacks that are based on it.
NOT_INHERITED = ("name", "title", "description", "notes", "evidence", "installable", "reason", "based_on")
# Keys that an image takes from the image that it is based on.
KEPT_OF_IMAGE = ("name", "program", "start")
# Lists of named things are merged by that name.
NAMED_BY = {"sources": "name", "patches": "name", "aliases": "name", "first": "requirement", "rules": "id"}


def canonical(value: Any) -> bytes:
    """Return the one JSON text of ``value`` that hashes are made of (sorted keys, no spaces, UTF-8)."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def stack_id(manifest: Mapping[str, Any]) -> str:
    """Return ``NAME-<10 hex digits>`` for a manifest as the lookup returns it; raise ValueError for anything else."""
    name = manifest.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(
            "a stack manifest is a mapping with a name, as the lookup arcpro.b70.catalogue (kind=stacks) returns it"
        )
    if manifest.get("lock") and not manifest.get("lock_sha256"):
        raise ValueError(
            f"the manifest {name} names the lock {manifest['lock']!r} but has no lock_sha256; take it from the lookup"
        )
    content = {key: value for key, value in manifest.items() if key not in NOT_IN_ID}
    if "patches" in content:
        content["patches"] = [_without(patch, _not_counted(patch)) for patch in content["patches"]]
    if "first" in content:
        content["first"] = [_without(item, NOT_IN_FIRST) for item in content["first"]]
    if "image" in content:
        content["image"] = _of_image(content["image"])
    return f"{name}-{hashlib.sha256(canonical(content)).hexdigest()[:10]}"


def _not_counted(patch: Any) -> tuple[str, ...]:
    known = isinstance(patch, Mapping) and patch.get("sha256")
    return NOT_IN_PATCH + PLACE_OF_PATCH if known else NOT_IN_PATCH


def _of_image(image: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: image[key] for key in IN_ID_OF_IMAGE if key in image}
    if "debs" in kept:
        kept["debs"] = [deb["sha256"] for deb in kept["debs"]]
    # A tag may be given to another image; a digest can't.
    version = image.get("digest") or image.get("amd64")
    return {**kept, "digest": version} if version else {**kept, "tag": image.get("tag")}


def _without(item: Any, keys: Collection[str]) -> Any:
    return {key: value for key, value in item.items() if key not in keys} if isinstance(item, Mapping) else item


def load_stacks(folders: Sequence[str | Path] = ()) -> dict[str, dict[str, Any]]:
    """Return ``{name: manifest}`` of the shipped folder and ``folders``, later ones win; raise CatalogueError.

    Each manifest is complete, whatever it is based on. It gets ``source_file`` and, if it names a ``lock`` beside the
    file that names it, ``lock_file`` and ``lock_sha256`` (64 hex digits).
    """
    problems: list[Problem] = []
    layers: list[dict[str, dict[str, Any]]] = []
    for folder in [SHIPPED / "stacks", *map(Path, folders)]:
        written: dict[str, dict[str, Any]] = {}
        for name, (file, data) in read_folder(folder, problems).items():
            manifest = plain(data)
            problems += [
                Problem(file, path, message) for path, message in faults(manifest, schema("stack.schema.json"))
            ]
            manifest["source_file"] = file
            _read_lock(manifest, problems)
            written[name] = manifest
        layers.append(written)
    stacks: dict[str, dict[str, Any]] = {}
    for depth, layer in enumerate(layers):
        for name in layer:
            chain = _chain(name, depth, layers, problems)
            stacks[name] = _merged(chain) if chain else {"name": name, "installable": False}
            if chain:
                file = stacks[name]["source_file"]
                problems += [Problem(file, path, message) for path, message in _faults(stacks[name])]
    if problems:
        raise CatalogueError(problems)
    return stacks


def is_relay(manifest: Mapping[str, Any]) -> bool:
    """Return whether a stack has no engine: the relay to an engine elsewhere is a package of the system."""
    return manifest.get("device") == "none"


def _read_lock(manifest: dict[str, Any], problems: list[Problem]) -> None:
    if not isinstance(manifest.get("lock"), str):
        return
    file = manifest["source_file"]
    lock = Path(file).parent / manifest["lock"]
    if lock.is_file():
        manifest["lock_file"] = str(lock)
        manifest["lock_sha256"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    else:
        problems.append(Problem(file, "lock", f"the file {manifest['lock']} does not exist beside the manifest"))


def _chain(
    name: str, depth: int, layers: Sequence[Mapping[str, Any]], problems: list[Problem]
) -> list[dict[str, Any]] | None:
    """Return the manifests from the root of the ``based_on`` chain to the named one; None after adding a problem."""
    chain: list[dict[str, Any]] = []
    seen: list[tuple[str, int]] = []
    while True:
        # A stack that is based on its own name changes the one of an earlier folder.
        top = depth - 1 if seen and seen[-1][0] == name else depth
        place = next((index for index in range(top, -1, -1) if name in layers[index]), None)
        if place is None:
            known = {other for layer in layers for other in layer}
            text = f'there is no stack "{name}" to be based on{did_you_mean(name, known)}'
            problems.append(Problem(chain[-1]["source_file"], "based_on", text))
            return None
        if (name, place) in seen:
            loop = " -> ".join([*(item for item, _layer in seen), name])
            problems.append(Problem(chain[-1]["source_file"], "based_on", f"stacks are based on each other: {loop}"))
            return None
        seen.append((name, place))
        chain.append(layers[place][name])
        parent = chain[-1].get("based_on")
        if not isinstance(parent, str):
            return chain[::-1]
        name, depth = parent, place if parent == name else len(layers) - 1


def _merged(chain: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = dict(chain[0])
    for manifest in chain[1:]:
        taken = {key: value for key, value in whole.items() if key not in NOT_INHERITED}
        if "image" in taken and "image" in manifest:
            taken["image"] = {key: value for key, value in taken["image"].items() if key in KEPT_OF_IMAGE}
        whole = _merge(taken, manifest, "")
    return whole


def _merge(base: Mapping[str, Any], change: Mapping[str, Any], key: str) -> dict[str, Any]:
    merged = dict(base)
    for name, value in change.items():
        old = merged.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[name] = _merge(old, value, name)
        elif not key and name in NAMED_BY and isinstance(old, list) and isinstance(value, list):
            merged[name] = _merge_named(old, value, NAMED_BY[name])
        else:
            merged[name] = value
    return merged


def _merge_named(base: Sequence[Any], change: Sequence[Any], key: str) -> list[Any]:
    """Return both lists merged by name: an entry that exists keeps its place, new entries follow in order."""
    merged = {_label(item, key): item for item in base}
    for item in change:
        label = _label(item, key)
        old = merged.get(label)
        merged[label] = item
        # A requirement of another version takes nothing from the one that it replaces, least of all its digests.
        if isinstance(old, Mapping) and isinstance(item, Mapping) and old.get("requirement") == item.get("requirement"):
            merged[label] = _merge(old, item, label)
    return list(merged.values())


def _label(item: Any, key: str) -> str:
    """Return the name of an entry. A requirement is named without its version, so another version replaces it."""
    return str(item.get(key, "")).partition("==")[0] if isinstance(item, Mapping) else repr(item)


def _faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of one whole manifest that no schema can express."""
    if manifest.get("installable") is False and not manifest.get("reason"):
        yield "reason", "is required when installable is false: say why and what to do instead"
    if manifest.get("installable") is True and not is_relay(manifest):
        for key in NEEDED_OF_IMAGE if "image" in manifest else NEEDED_TO_INSTALL:
            if key not in manifest:
                yield key, "is missing; a stack that is installable needs it"
        engine = manifest.get("engine")
        # An image is made by others, who don't always say which release it contains.
        if isinstance(engine, Mapping) and "version" not in engine and "image" not in manifest:
            yield "engine.version", "is missing; a stack that is installable needs it"
    if "image" in manifest:
        yield from _image_faults(manifest)
    sources = [item.get("name") for item in _mappings(manifest.get("sources"))]
    for index, source in enumerate(_mappings(manifest.get("sources"))):
        for key in ("repo", "commit"):
            if key not in source:
                yield f"sources[{index}].{key}", "is missing; a source that is built needs it"
        if isinstance(source.get("cmake"), Mapping):
            yield from _cmake_faults(manifest, source, f"sources[{index}]")
    for name in sorted({name for name in sources if sources.count(name) > 1}, key=str):
        yield "sources", f"{name} stands there twice"
    yield from _patch_faults(manifest, [str(name) for name in sources])
    for index, item in enumerate(_mappings(manifest.get("first"))):
        if ("index" in item) == ("url" in item):
            yield f"first[{index}]", "needs either index (the page that lists its versions) or url (its one wheel)"
    for name, value in (manifest.get("env") or {}).items():
        for path in unmade_paths(str(value), manifest.get("python")):
            yield f"env.{name}", f"{path} is nothing that a role makes; {MADE}"
    yield from _lock_faults(manifest)


def _cmake_faults(manifest: Mapping[str, Any], source: Mapping[str, Any], where: str) -> Iterator[Fault]:
    if not source["cmake"].get("programs"):
        yield f"{where}.cmake.programs", "is missing; name at least one target of the project"
    for key in ("script", "subdirectory"):
        if source.get(key):
            yield f"{where}.{key}", "cannot be combined with cmake"
    required = (manifest.get("build") or {}).get("requires") or []
    for name in (tool for tool in CMAKE_NEEDS if tool not in required):
        yield "build.requires", f"{name} is missing; {source.get('name')} is built by it"


def _image_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    for key in NOT_OF_IMAGE:
        if key in manifest:
            yield key, "is for stacks that are installed from wheels; this one is an image, which has all of it"
    image = manifest["image"]
    if manifest.get("installable") is True and isinstance(image, Mapping):
        for key in ("name", "program"):
            if key not in image:
                yield f"image.{key}", "is missing; an image that is pulled needs it"
        if not any(key in image for key in ("digest", "amd64", "tag")):
            yield "image.digest", "is missing; without it a tag says which image is pulled, and what came is pinned"
    for name, value in (manifest.get("env") or {}).items():
        if "@stack_dir@" in str(value):
            yield f"env.{name}", "@stack_dir@ is no folder of an image; @venv@ is the one above its program's bin"


def _patch_faults(manifest: Mapping[str, Any], sources: Sequence[str]) -> Iterator[Fault]:
    for index, patch in enumerate(_mappings(manifest.get("patches"))):
        target = patch.get("applies_to")
        if target is not None and target not in sources:
            yield f"patches[{index}].applies_to", f'there is no source "{target}"{did_you_mean(str(target), sources)}'
        for key in ("repo", "commit", "path"):
            if key not in patch:
                yield f"patches[{index}].{key}", "is missing; a patch is a file of a Git repository at a commit"


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _lock_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    build = manifest.get("build")
    required = build.get("requires") if isinstance(build, Mapping) else None
    if not isinstance(required, list) or not manifest.get("lock_file"):
        return
    pinned = locked_versions(Path(manifest["lock_file"]).read_text(encoding="utf-8"))
    for index, name in enumerate(required):
        if name not in pinned:
            yield f"build.requires[{index}]", f"{manifest['lock']} has no {name}; make the lock again with it"


def locked_versions(lock: str) -> dict[str, str]:
    """Return name to version for everything in the text of a lock."""
    return dict(re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", lock, re.MULTILINE))
