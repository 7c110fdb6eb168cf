# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a model directory, as it must be and as it is known: pure functions over names, sizes and digests.

A manifest lies in the model directory as ``.b70-weights.json``, written only after every file was verified:
``{"schema": 1, "source": {"kind": "path"}, "files": {"config.json": {"size": 612, "sha256": "<64 hex>",
"mtime_ns": 1781000000000000000, "source_mtime_ns": 1780000000000000000}}}``. Sizes are bytes. ``mtime_ns`` is the
file's own on the host, ``source_mtime_ns`` that of the file it was copied from. As long as size and time are the
recorded ones, the recorded digest is believed, so that 100 GB are not read at every run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .._slot.kinds import gguf
from .._slot.model.weights import RECORDED

MANIFEST = RECORDED
SCHEMA = 1
# Below this size a file is always read: configurations and tokenizers cost nothing and are what people edit by hand.
ALWAYS_HASH_BELOW = 16 * 1024 * 1024

MISSING = "is missing"
# Never the time of a file, and never recorded as one.
NO_TIME = -1

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(rf"([A-Za-z0-9][A-Za-z0-9._-]{{0,127}})(@{_COMMIT.pattern})?")
_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")
_WEIGHTS = re.compile(r"[^/]+\.safetensors")
# One of these groups must be there in full.
TOKENIZERS = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("tekken.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)


class WeightsError(Exception):
    """Something about a model directory is wrong; the text says what, where and what to do."""


@dataclass(frozen=True)
class Stat:
    """Size in bytes and time of last change in nanoseconds of one file."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class SourceFile:
    """A file as its source has it. ``sha256`` is None while the source was not read, only looked at."""

    size: int
    mtime_ns: int
    sha256: str | None = None


@dataclass(frozen=True)
class ManifestEntry:
    """A file as the manifest recorded it."""

    size: int
    sha256: str
    mtime_ns: int
    source_mtime_ns: int


Manifest = dict[str, ManifestEntry]


@dataclass
class WeightsComparison:
    """The comparison of a directory with its source and its manifest.

    ``problems``: file -> what is wrong with it. ``unknown``: files whose source has to be read before anything can be
    said. ``digests``: the digest of every file that is right. ``stale``: the manifest does not describe this directory
    (yet or any more) although its files are right.
    """

    problems: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    stale: bool = False


def is_commit(revision: object) -> bool:
    """Return whether a revision names exactly one state of a repository for ever."""
    return isinstance(revision, str) and _COMMIT.fullmatch(revision) is not None


def at_revision(name: str, revision: object) -> str:
    """Return the name of a model's directory at a revision: ``NAME@COMMIT``; without a commit ``name`` as it is."""
    return f"{name}@{revision}" if is_commit(revision) and "@" not in name else name


def base_of(name: str) -> str:
    """Return the name of a model without the revision that its directory is named by."""
    return name.partition("@")[0]


def check_name(name: str) -> None:
    """Refuse a directory name that is not one plain path component; raise WeightsError."""
    if not _NAME.fullmatch(name):
        raise WeightsError(
            f"{name!r} cannot name a model directory: use letters, digits, dots, dashes and underscores, "
            "starting with a letter or digit"
        )


def check_relative(path: str) -> None:
    """Refuse a file name that leads out of its directory, is hidden or not printable; raise WeightsError."""
    parts = path.split("/")
    if any(not part or part.startswith(".") for part in parts) or not path.isprintable():
        raise WeightsError(f"{path!r} is not a file name that can be part of a model: rename the file at the source")


def parse_index(text: str, name: str) -> list[str]:
    """Return the weight files an index names, sorted; raise WeightsError on anything that is no such index."""
    try:
        weights = json.loads(text)["weight_map"]
        files = sorted(set(weights.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{name} is not an index of weights ({type(error).__name__}): fetch it again") from error
    for file in files:
        if not isinstance(file, str):
            raise WeightsError(f"{name} names {file!r} as a weight file: fetch it again")
        check_relative(file)
    return files


def index_of(names: Collection[str]) -> str | None:
    """Return the index among ``names`` that lists the weight files, or None when the model needs none."""
    return next((index for index in _INDEXES if index in names), None)


def missing_parts(names: Collection[str], indexed: Collection[str] | None, include: Iterable[str] = ()) -> list[str]:
    """Return what a directory lacks to be served, in words; empty when nothing.

    ``names`` are the files below the directory, ``indexed`` the weight files its index names (None without index),
    ``include`` the patterns of the files that are wanted of the source.
    """
    wanted = [pattern for pattern in include if pattern.endswith(".gguf")]
    missing = [pattern for pattern in wanted if not any(fnmatchcase(name, pattern) for name in names)]
    if _is_gguf(names):
        whole = {part for name in names if name.endswith(".gguf") for part in gguf.parts(name)}
        return missing + sorted(whole - set(names))
    if "config.json" not in names:
        missing.append("config.json")
    if indexed is not None:
        missing += [file for file in indexed if file not in names]
        if not indexed:
            missing.append("weight files (the index names none)")
    elif not any(_WEIGHTS.fullmatch(name) for name in names):
        missing.append("weights (model.safetensors, or model.safetensors.index.json and the files it names)")
    elif index_of(names) is None:
        shards = {part for name in names if _WEIGHTS.fullmatch(name) for part in gguf.parts(name)}
        missing += sorted(shards - set(names))
    if not any(all(part in names for part in group) for group in TOKENIZERS):
        missing.append(
            "a tokenizer (tokenizer.json, tokenizer.model, tekken.json, vocab.json with merges.txt, or vocab.txt)"
        )
    return missing


def _is_gguf(names: Collection[str]) -> bool:
    """Tell whether a directory holds a model in GGUF alone, with its configuration and its tokens in the file."""
    others = any(name.endswith(".safetensors") for name in names) or index_of(names) is not None
    return not others and any(name.endswith(".gguf") for name in names)


def parse_manifest(text: str) -> Manifest | None:
    """Return the manifest, or None when the text is none: it is then as if nothing had been recorded."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            return None
        manifest = {}
        for name, entry in data["files"].items():
            numbers = (entry["size"], entry["mtime_ns"], entry["source_mtime_ns"])
            if not (all(isinstance(number, int) for number in numbers) and isinstance(entry["sha256"], str)):
                return None
            manifest[str(name)] = ManifestEntry(numbers[0], entry["sha256"], numbers[1], numbers[2])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest


def parse_origin(text: str) -> dict[str, Any] | None:
    """Return where the files of a manifest came from, or None when the text is no manifest."""
    if parse_manifest(text) is None:
        return None
    origin = json.loads(text).get("source")
    return dict(origin) if isinstance(origin, dict) else None


def render_manifest(manifest: Mapping[str, ManifestEntry], source: Mapping[str, Any]) -> str:
    """Return the manifest's text for files that came from ``source`` (for example ``{"kind": "path"}``)."""
    files = {
        name: {
            "size": entry.size,
            "sha256": entry.sha256,
            "mtime_ns": entry.mtime_ns,
            "source_mtime_ns": entry.source_mtime_ns,
        }
        for name, entry in sorted(manifest.items())
    }
    return json.dumps({"schema": SCHEMA, "source": dict(source), "files": files}, indent=1) + "\n"


def compare(
    wanted: Mapping[str, SourceFile],
    present: Mapping[str, Stat],
    manifest: Manifest | None,
    digest: Callable[[str], str],
    full: bool,
) -> WeightsComparison:
    """Compare a directory with its source.

    ``digest`` reads one file of the directory and returns its SHA-256; it is called for small files, for those the
    manifest does not describe as they are now, and for all with ``full``.
    """
    judgement = WeightsComparison(stale=manifest is None)
    known = manifest or {}
    for name, want in sorted(wanted.items()):
        have, entry = present.get(name), known.get(name)
        if have is None:
            judgement.problems[name] = MISSING
            continue
        if have.size != want.size:
            judgement.problems[name] = f"has {have.size} bytes instead of {want.size}"
            continue
        expected = want.sha256
        if expected is None and entry is not None and (entry.size, entry.source_mtime_ns) == (want.size, want.mtime_ns):
            expected = entry.sha256
        if expected is None:
            judgement.unknown.append(name)
            continue
        actual = _actual(name, have, entry, digest, full)
        if actual != expected:
            judgement.problems[name] = f"has sha256 {actual[:12]}... instead of {expected[:12]}..."
            continue
        judgement.digests[name] = actual
        if entry != ManifestEntry(have.size, actual, have.mtime_ns, want.mtime_ns):
            judgement.stale = True
    for name in sorted(set(present) - set(wanted)):
        judgement.problems[name] = "is not part of the model"
    if set(known) - set(wanted):
        judgement.stale = True
    return judgement


def as_recorded(manifest: Manifest) -> dict[str, SourceFile]:
    """Return what a directory without a source should be: what its manifest says."""
    return {name: SourceFile(entry.size, entry.source_mtime_ns, entry.sha256) for name, entry in manifest.items()}


def _actual(name: str, have: Stat, entry: ManifestEntry | None, digest: Callable[[str], str], full: bool) -> str:
    """Return the digest of a file: the recorded one where that may be believed."""
    if not full and entry is not None and have.size >= ALWAYS_HASH_BELOW and have == Stat(entry.size, entry.mtime_ns):
        return entry.sha256
    return digest(name)


def in_words(problems: Mapping[str, str], limit: int = 3) -> str:
    """Return the first problems as one line for people."""
    shown = [f"{name} {problem}" for name, problem in list(problems.items())[:limit]]
    if len(problems) > limit:
        shown.append(f"and {len(problems) - limit} more")
    return ", ".join(shown)


def size_in_words(size: int) -> str:
    """Return bytes as a short decimal figure such as ``5.1 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
