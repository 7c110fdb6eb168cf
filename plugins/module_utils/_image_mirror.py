# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images as plain files of a mirror: brought there from a registry, and taken from there by a host.

Each manifest has a folder named by its digest. That of an image is skopeo's layout `dir:`, which keeps every byte; that
of an index has only the index, so that an image is found by either digest. A host puts both together again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from ansible.module_utils.urls import open_url

SKOPEO = "/usr/bin/skopeo"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAYOUT_VERSION = "Directory Transport Version: 1.1\n"
_ANSWER_S = 30
_MANIFEST_BYTES = 4 * 2**20


class ImageFault(Exception):
    """Something about an image is wrong; the text says what and what to do."""


def architecture() -> str:
    """Return what registries call this machine."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)


def child(manifest: bytes, digest: str, wanted: str) -> str:
    """Return the digest of the image of an architecture: that in an index, else the given one of an image. Pure."""
    items = _parsed(manifest, digest).get("manifests")
    if items is None:
        return digest
    for item in items:
        platform = item.get("platform", {})
        if (platform.get("os"), platform.get("architecture")) == ("linux", wanted):
            return str(item["digest"])
    raise ImageFault(f"the index {digest} has no image for linux/{wanted}: name another image in the manifest")


def blobs(manifest: bytes, digest: str) -> dict[str, int]:
    """Return digest and size of the configuration and the layers of an image. Pure."""
    parsed = _parsed(manifest, digest)
    try:
        return {str(blob["digest"]): int(blob["size"]) for blob in (parsed["config"], *parsed["layers"])}
    except (LookupError, TypeError, ValueError) as error:
        raise ImageFault(f"{digest} is no manifest of an image that is known here: {error!r}") from error


def _parsed(manifest: bytes, digest: str) -> Mapping[str, Any]:
    if f"sha256:{hashlib.sha256(manifest).hexdigest()}" != digest:
        raise ImageFault(f"what came as the manifest {digest} is not that: remove it from where it came and run again")
    try:
        parsed = json.loads(manifest)
    except ValueError as error:
        raise ImageFault(f"the manifest {digest} is no JSON: {error}") from error
    return parsed if isinstance(parsed, dict) else {}


def _digest_of(source: str) -> str:
    digest = source.partition("@")[2]
    if not digest.startswith("sha256:"):
        raise ImageFault(f"{source} has no digest, and a mirror knows images by nothing else: name it in the manifest")
    return digest


def _folder(digest: str) -> str:
    return digest.partition(":")[2]


# On the machine that makes the mirror.


def bring(dest: Path, source: str, authfile: str | None, limit_s: int, *, write: bool) -> bool:
    """Copy an image from its registry to the mirror below `dest`, by digest. Return whether it was not there."""
    digest, name = _digest_of(source), source.partition("@")[0]
    index = dest / _folder(digest) / "manifest.json"
    if index.is_file():
        one = child(index.read_bytes(), digest, architecture())
        if (dest / _folder(one) / "manifest.json").is_file():
            return False
    if not write:
        return True
    login = [f"--authfile={authfile}"] if authfile else []
    manifest = _skopeo(["inspect", "--raw", *login, f"docker://{source}"], source, limit_s)
    one = child(manifest, digest, architecture())
    whole = dest / _folder(one)
    if not (whole / "manifest.json").is_file():
        part = dest / f"{whole.name}.part"
        for path in (part, whole):
            shutil.rmtree(path, ignore_errors=True)
        _skopeo(["copy", "--preserve-digests", *login, f"docker://{name}@{one}", f"dir:{part}"], source, limit_s)
        part.rename(whole)
    if one != digest:
        index.parent.mkdir(exist_ok=True)
        part = index.with_suffix(".part")
        part.write_bytes(manifest)
        part.rename(index)
    return True


def _skopeo(words: Sequence[str], source: str, limit_s: int) -> bytes:
    try:
        done = subprocess.run(
            [SKOPEO, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ImageFault(
            f"{source} was not copied within {limit_s} s: run again with a longer mirror_timeout"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-600:]
        raise ImageFault(f"{source} could not be copied from its registry: {said}")
    return done.stdout


# On a host.


def lacking(layout: Path, mirror: str, source: str) -> dict[str, Path]:
    """Write the manifests of a mirror's image to a folder, and return the blobs that it lacks: path by address."""
    digest = _digest_of(source)
    layout.mkdir(parents=True, exist_ok=True)
    manifest = _manifest(mirror, digest)
    one = child(manifest, digest, architecture())
    (layout / "version").write_text(_LAYOUT_VERSION, encoding="ascii")
    (layout / "manifest.json").write_bytes(manifest)
    if one != digest:
        manifest = _manifest(mirror, one)
        (layout / f"{_folder(one)}.manifest.json").write_bytes(manifest)
    found = {}
    for blob, size in blobs(manifest, one).items():
        path = layout / _folder(blob)
        if not path.is_file() or path.stat().st_size != size:
            found[f"{mirror}/{_folder(one)}/{_folder(blob)}"] = path
    return found


def _manifest(mirror: str, digest: str) -> bytes:
    address = f"{mirror}/{_folder(digest)}/manifest.json"
    try:
        with open_url(address, timeout=_ANSWER_S) as answer:
            return bytes(answer.read(_MANIFEST_BYTES))
    except HTTPError as error:
        raise ImageFault(
            f"{address}: {error.code} {error.reason}. Fill the mirror with this stack: playbooks/mirror.yml with "
            "mirror_stacks; or leave stack_image_mirror empty, so that hosts pull from the registry"
        ) from error
    except (URLError, OSError) as error:
        raise ImageFault(f"{address} cannot be had: {error}. Serve the mirror, or correct b70_mirror_url") from error


def download_argv(folder: Path, lacks: Mapping[str, Path]) -> list[str]:
    """Write the list of downloads, and return the argv that carries it out."""
    lines = [f'url = "{address}"\noutput = "{path}"\n' for address, path in lacks.items()]
    listed = folder / "downloads"
    listed.write_text("".join(lines), encoding="utf-8")
    return [
        "/usr/bin/curl",
        "--fail",
        "--silent",
        "--show-error",
        "--location",
        "--retry",
        "5",
        "--config",
        str(listed),
    ]


def load_argv(layout: Path, source: str) -> list[str]:
    """Return the argv that brings a layout into Podman's storage under the name of a pull. Pure."""
    return [SKOPEO, "copy", "--preserve-digests", f"dir:{layout}", f"containers-storage:{source}"]
