# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the YAML and JSON files of the catalogue. Duplicate keys are faults, and a file is parsed once per change."""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from .problems import Problem

# roles/profiles/files of this collection: present in a checkout and in the installed tarball alike.
SHIPPED = Path(__file__).resolve().parents[3] / "roles" / "profiles" / "files"
SUFFIXES = (".yml", ".yaml")


class Unreadable(Exception):
    """A file that is not usable YAML; the text says what and where in the file."""


@functools.cache
def _loader() -> Any:
    # Imported on use, so that the rest of this file works without PyYAML.
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class UniqueKeyLoader(base):
        """A safe loader that refuses a key given twice instead of keeping the last one."""

    def mapping(loader: Any, node: Any, deep: bool = True) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _value in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise Unreadable(f"line {key_node.start_mark.line + 1}: the key {key!r} is not text; quote it")
            if key in seen:
                raise Unreadable(f'line {key_node.start_mark.line + 1}: the key "{key}" is given twice')
            seen.add(key)
        result: dict[Hashable, Any] = base.construct_mapping(loader, node, deep=deep)
        return result

    UniqueKeyLoader.add_constructor("tag:yaml.org,2002:map", mapping)
    return UniqueKeyLoader


@functools.lru_cache(maxsize=1024)
def _parse(path: str, mtime_ns: int, size: int) -> Any:
    import yaml

    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise Unreadable(f"not valid YAML: {line}{error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise Unreadable(f"cannot be read: {error}") from error


def read_yaml(path: Path) -> Any:
    """Return the parsed content of ``path``; raise Unreadable. Callers must not change what they get: it is cached."""
    try:
        status = path.stat()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    return _parse(str(path), status.st_mtime_ns, status.st_size)


def read_folder(folder: Path, problems: list[Problem]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return ``{name: (file, mapping)}`` of the YAML files of one folder; faults are appended to ``problems``.

    The name inside a file must equal the file name, so that a person finds a profile by looking at the folder.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    if not folder.is_dir():
        problems.append(Problem(str(folder), "", "this folder does not exist; correct or remove its entry"))
        return found
    for path in sorted(entry for entry in folder.iterdir() if entry.suffix in SUFFIXES and entry.is_file()):
        try:
            data = read_yaml(path)
        except Unreadable as error:
            problems.append(Problem(str(path), "", str(error)))
            continue
        if not isinstance(data, dict):
            problems.append(Problem(str(path), "", "must be one YAML mapping"))
        elif data.get("name") != path.stem:
            problems.append(
                Problem(str(path), "name", f'must be "{path.stem}", like the file, not {data.get("name")!r}')
            )
        elif path.stem in found:
            problems.append(Problem(str(path), "name", f"the same name stands in {found[path.stem][0]}; keep one file"))
        else:
            found[path.stem] = (str(path), data)
    return found


def schema(name: str) -> dict[str, Any]:
    """Return a shipped JSON Schema, as `inlined` does."""
    return inlined(SHIPPED / "schema" / name)


@functools.cache
def inlined(file: Path) -> dict[str, Any]:
    """Return a JSON Schema with the content of other files, and what stands beside it, in place of references to it."""

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        own = {key: resolved(value) for key, value in node.items()}
        if str(own.get("$ref", "#")).startswith("#"):
            return own
        name, _hash, place = own.pop("$ref").partition("#/")
        found = inlined((file.parent / name).resolve())
        for key in place.split("/") if place else ():
            found = found[key]
        return _over(found, own)

    result: dict[str, Any] = resolved(json.loads(file.read_text(encoding="utf-8")))
    return result


def _over(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: _over(base.get(key), value) for key, value in over.items()}}
    return over


def plain(value: Any) -> Any:
    """Return ``value`` with plain dicts (text keys) and lists all the way down, as a copy."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
