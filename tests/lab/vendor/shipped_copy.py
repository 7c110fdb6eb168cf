# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped collection with the digests of the lab's fixtures in its stacks, and with the Python of lab hosts."""

from __future__ import annotations

import filecmp
import re
from pathlib import Path

import yaml

from vendor.upstream import Upstream, manifest_of

STACKS = Path("roles/profiles/files/stacks")
SHIPPED_PYTHON = ('{min: "3.12", below: "3.13"}', "cp312-")
LAB_PYTHON = ('{min: "3.11", below: "3.12"}', "cp311-")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HASH_LINE = re.compile(r" \\\n +--hash=sha256:[0-9a-f]{64}")


def _manifest(text: str, upstream: Upstream) -> str:
    for former, ours in zip(SHIPPED_PYTHON, LAB_PYTHON, strict=True):
        text = text.replace(former, ours)
    for step in yaml.safe_load(text).get("first", []):
        for digests in step.get("hashes", {}).values():
            for former in digests:
                text = text.replace(former, f"sha256:{upstream.first[step['requirement']]}")
    return text


def _lock(text: str, upstream: Upstream) -> str:
    for requirement, sha256 in upstream.lock.items():
        hashes = r" \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
        block = re.compile(rf"(?m)^({re.escape(requirement)}(?: ;[^\\\n]*)?){hashes}")
        text = block.sub(rf"\1 \\\n    --hash=sha256:{sha256}\n", text)
    return text


def rewrite(collection: Path, names: list[str], upstream: Upstream) -> list[Path]:
    """Replace in `collection`, the unpacked one, what these stacks pin; returns the changed files below it."""
    changed = []
    for name in names:
        for file, change in ((f"{name}.yml", _manifest), (manifest_of(collection / STACKS, name)["lock"], _lock)):
            path = collection / STACKS / file
            former = path.read_text(encoding="utf-8")
            path.write_text(change(former, upstream), encoding="utf-8")
            if path.read_text(encoding="utf-8") != former:
                changed.append(STACKS / file)
    return changed


def without_digests(text: str) -> str:
    """A manifest or lock as it is but for digests and for the Python that they are of."""
    for former, ours in zip(SHIPPED_PYTHON, LAB_PYTHON, strict=True):
        text = text.replace(ours, former)
    return _DIGEST.sub("sha256:-", _HASH_LINE.sub("", text))


def differences(shipped: Path, copy: Path) -> list[str]:
    """What is not the same in the two trees, where digests do not count in stacks."""
    files = {path.relative_to(root) for root in (shipped, copy) for path in root.rglob("*") if path.is_file()}
    found = []
    for file in sorted(files):
        one, other = shipped / file, copy / file
        if one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False):
            continue
        in_stacks = file.parent == STACKS and one.exists() and other.exists()
        if not in_stacks or without_digests(one.read_text()) != without_digests(other.read_text()):
            found.append(str(file))
    return found
