# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model directories that a host needs, and the removal of the others.

A directory is used if a process names it, or the rendering that a slot verified last: the slot serves it, boots it and
goes back to it. It is needed beside that if a profile of the host names it, or the operator does.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _paths
from . import job
from .host import beside
from .manifest import MANIFEST, WeightsError, size_in_words

_BELOW = r"/([A-Za-z0-9][A-Za-z0-9._-]*(?:@[0-9a-f]{40})?)"
_LEFT = re.compile(r"\.(.+)\.(?:incoming|old|fetch)")


@dataclass(frozen=True)
class Slots:
    """The directories of a host's slots. config_dir: that of the slot main; others have it as a prefix."""

    config_dir: str = _paths.CONFIG_DIR
    state_dir: str = _paths.STATE_DIR
    proc: str = "/proc"

    @property
    def config_dirs(self) -> list[Path]:
        """The configuration folders of all slots; empty if the host has no slot."""
        main = Path(self.config_dir)
        found = {file.parent for file in main.parent.glob(f"{main.name}*/slot.json")}
        for folder in list(found):
            try:
                others = json.loads((folder / "slot.json").read_text(encoding="utf-8")).get("others") or {}
                found |= {Path(other) for other in others.values()}
            except (ValueError, AttributeError, TypeError) as error:
                raise WeightsError(f"{folder}/slot.json can't be read ({error}): run the role slot again") from error
        return sorted(found)

    def used(self, directory: str) -> dict[str, str]:
        """Return what uses a model directory below ``directory`` now or must be able to, by the name of the latter."""
        found: dict[str, str] = {}
        for process in sorted(Path(self.proc).glob("[0-9]*/cmdline")):
            found |= dict.fromkeys(_named(directory, process), f"process {process.parent.name} names it")
        for file in sorted(Path(self.state_dir, "committed").glob("*.json")):
            found |= dict.fromkeys(_named(directory, file), f"slot {file.stem} serves it, or goes back to it")
        return found

    def named(self, directory: str) -> dict[str, str]:
        """Return which profile of the host names a model directory below ``directory``, by the name of the latter."""
        folders = [folder / name for folder in self.config_dirs for name in ("profiles", "pending")]
        files = sorted(file for folder in folders for file in folder.glob("*.json"))
        return {name: f"profile {file.stem} names it" for file in files for name in _named(directory, file)}


def _named(directory: str, file: Path) -> set[str]:
    """Return the model directories below ``directory`` that a file names."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a process that has ended
        return set()
    roots = {directory.rstrip("/"), os.path.realpath(directory)}
    return {name for root in roots for name in re.findall(re.escape(root) + _BELOW, text)}


def remove(directory: str, slots: Slots, wanted: Sequence[str], write: bool) -> dict[str, Any]:
    """Remove the model directories that nobody needs, if ``write``.

    Only what has a record, and what an interrupted download left, is removed. wanted: names that the operator needs, or
    patterns. Returns ``removed`` ({name: why}), ``kept`` ({name: why}) and ``frees`` in bytes; files that other
    directories share free nothing. Raise WeightsError on a host without a slot, where nothing tells what is needed.
    """
    if not slots.config_dirs:
        raise WeightsError(
            f"{slots.config_dir} has no slot.json, so nothing on this host tells which weights are needed, and none "
            "were removed: run the role slot first"
        )
    needed = slots.named(directory) | slots.used(directory)
    kept, removed = {}, {}
    for name in _candidates(directory):
        model = _model_of(name)
        asked = next((one for one in wanted if fnmatch.fnmatchcase(model, one)), None)
        if name.startswith(".") and job.running(os.path.join(directory, model)):
            kept[name] = "a download is under way"
        elif model in needed or asked:
            kept[name] = needed.get(model) or "model_weights_models names it"
        else:
            why = "an interrupted download left it, and " if name.startswith(".") else ""
            removed[name] = f"{why}no profile, slot or process of this host names it"
    frees = _freed(Path(directory, name) for name in removed)
    for name in removed if write else ():
        _remove(os.path.join(directory, name))
    summary = [f"{name}: {'removed' if write else 'would be removed'}, {why}" for name, why in removed.items()]
    summary += [f"{name}: stays, {why}" for name, why in kept.items()]
    if removed:
        summary.append(f"{size_in_words(frees)} {'are' if write else 'would be'} free")
    return {"removed": removed, "kept": kept, "frees": frees, "summary": summary}


def _remove(path: str) -> None:
    """Remove a directory. What is left of it after an interruption does not bear the model's name."""
    gone = path if os.path.basename(path).startswith(".") else beside(path, "old")
    if gone != path:
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(path, gone)
    shutil.rmtree(gone)


def _model_of(name: str) -> str:
    """Return the model of a directory; empty for a hidden one that no download left."""
    if not name.startswith("."):
        return name
    left = _LEFT.fullmatch(name)
    return left[1] if left else ""


def _candidates(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(
        entry.name
        for entry in folders
        if _model_of(entry.name) and (entry.name.startswith(".") or os.path.exists(f"{entry.path}/{MANIFEST}"))
    )


def _freed(folders: Iterable[Path]) -> int:
    """Return the bytes of the files that have no link outside of the folders."""
    links: dict[tuple[int, int], list[os.stat_result]] = {}
    for folder in folders:
        for file in folder.rglob("*"):
            status = file.lstat()
            if not file.is_dir():
                links.setdefault((status.st_dev, status.st_ino), []).append(status)
    return sum(found[0].st_blocks * 512 for found in links.values() if len(found) >= found[0].st_nlink)
