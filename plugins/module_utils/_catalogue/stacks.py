# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stack manifests: pinned sets of versions, and the id under which a host installs one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .problems import CatalogueError, Problem
from .reading import SHIPPED, plain, read_folder, schema
from .schema import Fault, faults

# What may change without another installation: words for people, where the file lies, the environment at run time.
NOT_IN_ID = ("title", "description", "notes", "evidence", "installable", "reason", "env", "source_file")

NEEDED_TO_INSTALL = ("machines", "python", "disk_mib")


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
    return f"{name}-{hashlib.sha256(canonical(content)).hexdigest()[:10]}"


def load_stacks(folders: Sequence[str | Path] = ()) -> dict[str, dict[str, Any]]:
    """Return ``{name: manifest}`` of the shipped folder and ``folders``, later ones win; raise CatalogueError.

    Each manifest gets ``source_file`` and, when it names a ``lock`` beside it, ``lock_sha256`` (64 hex digits).
    """
    problems: list[Problem] = []
    stacks: dict[str, dict[str, Any]] = {}
    for folder in [SHIPPED / "stacks", *map(Path, folders)]:
        for name, (file, data) in read_folder(folder, problems).items():
            manifest = plain(data)
            manifest["source_file"] = file
            problems += [Problem(file, path, message) for path, message in _faults(manifest)]
            if isinstance(manifest.get("lock"), str):
                lock = Path(file).parent / manifest["lock"]
                if lock.is_file():
                    manifest["lock_sha256"] = hashlib.sha256(lock.read_bytes()).hexdigest()
                else:
                    problems.append(
                        Problem(file, "lock", f"the file {manifest['lock']} does not exist beside the manifest")
                    )
            stacks[name] = manifest
    if problems:
        raise CatalogueError(problems)
    return stacks


def _faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    written = {key: value for key, value in manifest.items() if key != "source_file"}
    yield from faults(written, schema("stack.schema.json"))
    if manifest.get("installable") is False and not manifest.get("reason"):
        yield "reason", "is required when installable is false: say why and what to do instead"
    if manifest.get("installable") is True:
        for key in NEEDED_TO_INSTALL:
            if key not in manifest:
                yield key, "is missing; a stack that is installable needs it"
