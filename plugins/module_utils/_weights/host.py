# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model directories on a disk: find and inspect one, prepare a replacement beside it, put that in place.

A model of a repository stands at ``NAME@COMMIT``, so several revisions are there side by side, and equal files are
hard links. What has no commit (a copied directory, files that somebody put there) stands at ``NAME``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from stat import S_ISDIR, S_ISREG
from typing import Any

from .._files import sha256
from .contents import faults
from .manifest import (
    MANIFEST,
    MISSING,
    NO_TIME,
    Manifest,
    ManifestEntry,
    SourceFile,
    Stat,
    WeightsComparison,
    WeightsError,
    as_recorded,
    at_revision,
    base_of,
    check_relative,
    compare,
    in_words,
    index_of,
    missing_parts,
    parse_index,
    parse_manifest,
    parse_origin,
    render_manifest,
    size_in_words,
)
from .sources import in_words as source_in_words
from .sources import same

# Left free on the disk after a copy, so that a full disk does not stop the host's other work.
_RESERVE = 64 * 1024 * 1024


@dataclass
class WeightsState:
    """The findings about a directory.

    ``state``: complete, missing (no directory), incomplete (files are missing or cut off), differs (from its source or
    its own manifest), unknown (its source must be read first). ``reason`` says it in words. ``adopted``: its files are
    right but it has no manifest yet. ``revision``: that of the wanted repository, as the directory's own record has it.
    """

    state: str
    reason: str = ""
    files: int = 0
    size: int = 0
    adopted: bool = False
    unknown: list[str] = field(default_factory=list)
    revision: str = ""

    def as_result(self) -> dict[str, Any]:
        """Return the finding as plain data, for a module's result."""
        return dict(vars(self))


def revisions(parent: str, name: str) -> list[str]:
    """Return the names of a model's directories below ``parent``: NAME first, then NAME@COMMIT in order.

    A link from NAME to one of the others, as a mirror has it, is none of them.
    """
    base = base_of(name)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(parent) as entries:
        mine = [entry for entry in entries if base_of(entry.name) == base and entry.is_dir()]
        return sorted(
            entry.name for entry in mine if not (entry.is_symlink() and os.readlink(entry.path).startswith(f"{base}@"))
        )
    return []


def stand(parent: str, name: str, repository: str | None = None, revision: str | None = None) -> str:
    """Return the name of the directory below ``parent`` in which a model stands, or is to stand.

    Of a known ``revision`` this is ``NAME@COMMIT``, or ``NAME`` where somebody put a whole model that no other revision
    is recorded for. Without a revision it is what is there: ``NAME``, else the revision that was recorded last.
    """
    base, there = base_of(name), revisions(parent, name)
    known = at_revision(base, revision) if revision else name
    if known in there:
        return known
    wanted = {"kind": "hub", "repository": repository, "revision": known.partition("@")[2] or None}
    if base in there:
        path = os.path.join(parent, base)
        origin = read_origin(path) or {}
        if (origin.get("kind") != "hub" or same(origin, wanted)) and not lacking(path, scan(path)):
            return base
    recorded = {one: read_origin(os.path.join(parent, one)) for one in there if "@" in one}
    mine = [one for one, source in recorded.items() if source and repository in (None, source.get("repository"))]
    if "@" in known or not mine:
        return known
    return max(mine, key=lambda one: os.stat(os.path.join(parent, one, MANIFEST)).st_mtime_ns)


def scan(directory: str) -> dict[str, Stat]:
    """Return the files below ``directory`` by relative name; links are followed, hidden files and folders left out."""
    found: dict[str, Stat] = {}

    def walk(folder: str, prefix: str) -> None:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    walk(entry.path, f"{prefix}{entry.name}/")
                elif entry.is_file():
                    status = entry.stat()
                    found[prefix + entry.name] = Stat(status.st_size, status.st_mtime_ns)

    walk(directory, "")
    return found


def lacking(directory: str, present: Mapping[str, Stat], include: Sequence[str] = ()) -> list[str]:
    """Return what the directory lacks to be a model, in words; an index that cannot be read is named too."""
    index = index_of(present)
    if index is None:
        return missing_parts(present, None, include)
    try:
        with open(os.path.join(directory, index), encoding="utf-8") as stream:
            indexed = parse_index(stream.read(), index)
    except (WeightsError, UnicodeDecodeError) as error:
        return [str(error)]
    return missing_parts(present, indexed, include)


def read_source(directory: str) -> dict[str, SourceFile]:
    """Look at a source directory without reading more than heads; raise WeightsError when it is no complete model."""
    if not os.path.isdir(directory):
        raise WeightsError(
            f"{directory} is not a directory on this machine: correct the path, or bring the model there"
        )
    present = scan(directory)
    for name in present:
        check_relative(name)
    missing = lacking(directory, present)
    if missing:
        raise WeightsError(f"{directory} is not a complete model, it lacks: {', '.join(missing)}")
    # A source that the operator names may be a projector for another model.
    problems = faults(directory, present, include=["*.gguf"])
    if problems:
        raise WeightsError(f"{directory} is not a complete model: {in_words(problems)}")
    return {name: SourceFile(stat.size, stat.mtime_ns) for name, stat in present.items()}


def read_record(directory: str) -> str | None:
    """Return the text of the record in ``directory``, or None where there is none that can be read."""
    try:
        with open(os.path.join(directory, MANIFEST), encoding="utf-8") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def read_manifest(directory: str) -> Manifest | None:
    """Return the manifest in ``directory``, or None where there is no usable one."""
    text = read_record(directory)
    return None if text is None else parse_manifest(text)


def read_origin(directory: str) -> dict[str, Any] | None:
    """Return where the directory's files came from, as its manifest has it, or None."""
    text = read_record(directory)
    return None if text is None else parse_origin(text)


def write_manifest(
    directory: str, wanted: Mapping[str, SourceFile], digests: Mapping[str, str], source: Mapping[str, Any]
) -> None:
    """Write the manifest for files that were verified, in one step."""
    present = scan(directory)
    manifest = {
        name: ManifestEntry(present[name].size, digests[name], present[name].mtime_ns, want.mtime_ns)
        for name, want in wanted.items()
    }
    path = os.path.join(directory, MANIFEST)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(render_manifest(manifest, source))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(f"{path}.new", path)


def inspect(
    directory: str, wanted: Mapping[str, SourceFile] | None, source: Mapping[str, Any], full: bool, write: bool
) -> WeightsState:
    """Judge ``directory`` by its source (``wanted``) or, without one, by its own manifest.

    ``full`` reads every file. With ``write`` the manifest of a right directory is brought up to date. A directory
    with neither is judged by what its files say of themselves.
    """
    if not os.path.isdir(directory):
        return WeightsState("missing", f"{directory} does not exist")
    present = scan(directory)
    size = sum(stat.size for stat in present.values())
    manifest = read_manifest(directory)
    include = source.get("include") or ()
    missing = lacking(directory, present, include) if wanted is None else []
    if missing:
        return WeightsState("incomplete", f"{directory} lacks: {', '.join(missing)}", len(present), size)
    if wanted is None and manifest is None:
        problems = faults(directory, present, include)
        if problems:
            return WeightsState("incomplete", f"{directory}: {in_words(problems)}", len(present), size)
        return WeightsState("complete", "no digests are known for it", len(present), size)
    target = as_recorded(manifest or {}) if wanted is None else wanted
    judgement = _compare(directory, target, present, manifest, full)
    if judgement.problems:
        return WeightsState("differs", f"{directory}: {in_words(judgement.problems)}", len(present), size)
    if judgement.unknown:
        return WeightsState("unknown", "", len(present), size, unknown=judgement.unknown)
    if write:
        if judgement.stale:
            write_manifest(directory, target, judgement.digests, source)
        for kind in ("incoming", "old"):
            shutil.rmtree(beside(directory, kind), ignore_errors=True)  # left by a run that was cut off
    adopted = manifest is None
    return WeightsState("complete", "not recorded yet" if adopted else "", len(present), size, adopted)


def inspect_fetched(directory: str, source: Mapping[str, Any], strict: bool, full: bool, write: bool) -> WeightsState:
    """Judge a directory that the host fetches by itself: its own record tells whether it is what was asked for.

    Nobody outside is asked. Without ``strict``, files of unknown origin that look whole are left as they are.
    """
    if not os.path.isdir(directory):
        return WeightsState("missing", f"{directory} does not exist")
    origin = read_origin(directory)
    found = _inspect_recorded(directory, origin, source, strict, full, write)
    if origin and origin.get("kind") == "hub" and origin.get("repository") == source.get("repository"):
        found.revision = str(origin.get("revision") or "")
    return found


def _inspect_recorded(
    directory: str, origin: dict[str, Any] | None, source: Mapping[str, Any], strict: bool, full: bool, write: bool
) -> WeightsState:
    if same(origin, source):
        return inspect(directory, None, origin or {}, full, write)
    if not strict and (origin is None or origin.get("kind") != source["kind"]):
        # Right in itself is the most that can be said of it.
        found = inspect(directory, None, {**(origin or {}), "include": source.get("include")}, full, write=False)
        reason = f"its files were not compared with {source_in_words(source)}"
        return replace(found, reason=reason) if found.state == "complete" else found
    recorded = source_in_words(origin) if origin else "nowhere"
    reason = f"{directory} is recorded as coming from {recorded}, not from {source_in_words(source)}"
    present = scan(directory)
    return WeightsState("differs", reason, len(present), sum(stat.size for stat in present.values()))


def prepare(
    directory: str,
    wanted: Mapping[str, SourceFile],
    uploader: int,
    begun: Callable[[str, list[str]], int] | None = None,
    full: bool = False,
    used: str = "",
) -> tuple[str, list[str]]:
    """Make the folder beside ``directory`` in which its replacement is put together.

    What an interrupted run left there, and what ``directory`` or another revision of the model already has right, is
    kept; ``uploader`` (a user id) may write there. ``begun`` is given the folder and the files still to bring, and
    returns how many of their bytes are there. ``full`` reads what is there, because a record may be wrong. ``used``
    says what uses ``directory``: its files may then be repaired and others added, but not replaced. Return the folder
    and the files still to bring; raise WeightsError when the disk is too small, or for files in use.
    """
    parent, name = os.path.split(directory)
    if used and (lost := _lost(directory, wanted)):
        raise WeightsError(
            f"{directory} is in use ({used}), and {in_words(lost)}. Nothing was replaced. Name another directory for "
            "the new weights, in model_weights_models and in model.directory of the profile"
        )
    staging = beside(directory, "incoming")
    os.makedirs(parent, mode=0o755, exist_ok=True)
    os.makedirs(staging, mode=0o700, exist_ok=True)
    _drop_links(staging)
    left = _keep_right(staging, wanted)
    if os.path.isdir(directory):
        _link(directory, staging, wanted, left, full)
    for other in revisions(parent, name):
        # A time at the source tells nothing about another revision.
        known = {file: wanted[file] for file in left if wanted[file].sha256 is not None}
        if other != name and known:
            _link(os.path.join(parent, other), staging, known, left, full)
    for file in left:
        _make_folders(staging, file)
    need = sum(wanted[file].size for file in left) - (begun(staging, sorted(left)) if begun else 0)
    status = os.statvfs(staging)
    free = status.f_bavail * status.f_frsize
    if need + _RESERVE > free:
        raise WeightsError(
            f"{parent} has {size_in_words(free)} free and {name} needs {size_in_words(need)} more "
            f"(and {size_in_words(_RESERVE)} to spare): remove models that are not used"
        )
    if uploader not in (0, os.geteuid()):
        for folder, _folders, files in os.walk(staging):
            os.chown(folder, uploader, -1)
            for file in files:
                if file.startswith("."):  # parts that another user began
                    os.chown(os.path.join(folder, file), uploader, -1)
    return staging, sorted(left)


def commit(
    directory: str, wanted: Mapping[str, SourceFile], source: Mapping[str, Any], verified: Manifest | None = None
) -> None:
    """Verify what was put together and let it take the directory's place; raise WeightsError on any wrong file.

    ``verified`` are files that were read back since they arrived: they are believed as a manifest's are.
    A process that has the old files open keeps them. At no moment does an incomplete directory bear the model's name.
    """
    staging, old = beside(directory, "incoming"), beside(directory, "old")
    _drop_links(staging)
    judgement = _compare(staging, wanted, scan(staging), verified, full=verified is None)
    for file in judgement.problems:
        if os.path.exists(os.path.join(staging, file)):
            os.unlink(os.path.join(staging, file))
    if judgement.problems:
        raise WeightsError(
            f"what arrived in {staging} is not what was sent: {in_words(judgement.problems)}. The wrong files were "
            "removed and the right ones kept: run again"
        )
    missing = lacking(staging, scan(staging))
    if missing:
        raise WeightsError(f"what came to {staging} is not a complete model, it lacks: {', '.join(missing)}")
    for folder, _folders, files in os.walk(staging):
        os.chown(folder, os.geteuid(), os.getegid())
        os.chmod(folder, 0o755)
        for file in files:
            path = os.path.join(folder, file)
            if file.startswith("."):  # a part of another version
                os.unlink(path)
                continue
            os.chown(path, os.geteuid(), os.getegid())
            os.chmod(path, 0o644)
            _sync(path)
        _sync(folder)
    write_manifest(staging, wanted, judgement.digests, source)
    shutil.rmtree(old, ignore_errors=True)
    if os.path.lexists(directory):
        os.rename(directory, old)
    os.rename(staging, directory)
    _sync(os.path.dirname(directory))
    if os.path.islink(old):
        os.unlink(old)
    shutil.rmtree(old, ignore_errors=True)


def _drop_links(staging: str) -> None:
    """Remove all but files and folders: another user wrote here, and a link leads root to other files."""
    for folder, folders, files in os.walk(staging):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if not S_ISDIR(mode := os.lstat(path).st_mode) and not S_ISREG(mode):
                os.unlink(path)


def beside(directory: str, kind: str) -> str:
    """Return the hidden neighbour of a model directory; on the same file system, so that a rename is enough."""
    parent, name = os.path.split(directory)
    return os.path.join(parent, f".{name}.{kind}")


def _compare(
    directory: str, wanted: Mapping[str, SourceFile], present: Mapping[str, Stat], manifest: Manifest | None, full: bool
) -> WeightsComparison:
    return compare(wanted, present, manifest, lambda name: sha256(os.path.join(directory, name)), full)


def _keep_right(staging: str, wanted: Mapping[str, SourceFile]) -> set[str]:
    """Remove from an earlier attempt what is wrong; return the files that are not there yet."""
    judgement = _compare(staging, wanted, scan(staging), None, full=True)
    for file in judgement.problems:
        if os.path.lexists(os.path.join(staging, file)):
            os.unlink(os.path.join(staging, file))
    return set(wanted) - set(judgement.digests)


def _link(directory: str, staging: str, wanted: Mapping[str, SourceFile], left: set[str], full: bool) -> None:
    """Link the wanted files that a directory has right into ``staging``, and take them off ``left``."""
    present = {file: stat for file, stat in scan(directory).items() if file in left}
    asked = {file: wanted[file] for file in left if file in wanted}
    judgement = _compare(directory, asked, present, read_manifest(directory), full=full)
    for file in sorted(judgement.digests):
        _make_folders(staging, file)
        try:
            os.link(os.path.realpath(os.path.join(directory, file)), os.path.join(staging, file))
        except OSError:
            continue  # another file system: it is brought again
        left.discard(file)


def _lost(directory: str, wanted: Mapping[str, SourceFile]) -> dict[str, str]:
    """Return the files of a directory that it would no longer have, by what would become of each."""
    if not os.path.isdir(directory):
        return {}
    manifest = read_manifest(directory)
    if manifest is None:
        judged = _compare(directory, wanted, scan(directory), None, full=True)
        return {file: "would be replaced" for file, why in judged.problems.items() if why != MISSING}
    lost = {}
    for file, entry in manifest.items():
        want = wanted.get(file)
        if want is None:
            lost[file] = "would be removed"
            continue
        by_time = want.mtime_ns in (NO_TIME, entry.source_mtime_ns)
        if want.size != entry.size or not (by_time if want.sha256 is None else want.sha256 == entry.sha256):
            lost[file] = "would be replaced"
    return lost


def _make_folders(root: str, file: str) -> None:
    os.makedirs(os.path.join(root, os.path.dirname(file)), exist_ok=True)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
