# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches as objects of Git: a commit and a path pin the bytes, so a mirror is as good as the origin.

Of a repository only the commit, its trees and the one file are fetched. A server of plain files gives a pack with just
that, which `pack` makes; one that has no such pack gives the whole repository.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import tempfile
import urllib.error
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.module_utils.urls import open_url

from .git import WORDS, Git
from .recipe import BuildError, Patch

_PACK_BYTES = 256 * 2**20
_WEB = ("http://", "https://")


def read(
    patches: Sequence[Patch], scratch: Path, limit_s: float, mirrors: Mapping[str, str]
) -> list[tuple[Patch, bytes]]:
    """Return the patches with their content. scratch: a directory where repositories are made and removed."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="patches-", dir=scratch) as folder:
        repositories: dict[str, _Repository] = {}
        found = []
        for patch in patches:
            name = patch.repository
            if name not in repositories:
                repositories[name] = _Repository(Path(folder, str(len(repositories))), name, limit_s, mirrors)
            found.append((patch, _checked(decode(repositories[name].fetch(patch), patch), patch)))
        return found


def pack(patch: Patch, scratch: Path, limit_s: float, mirrors: Mapping[str, str]) -> bytes:
    """Return a pack with one file and all that pins it: the commit and the trees that lead to it."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="patches-", dir=scratch) as folder:
        repository = _Repository(Path(folder), patch.repository, limit_s, mirrors)
        repository.fetch(patch)
        return repository.pack(patch)


def _checked(content: bytes, patch: Patch) -> bytes:
    got = hashlib.sha256(content).hexdigest()
    if patch.sha256 and got != patch.sha256:
        raise BuildError(
            f"patch {patch.name} ({patch.place}) is not the pinned one: sha256 {got}, wanted {patch.sha256}; "
            "correct the commit or the digest in the manifest"
        )
    return content


def decode(content: bytes, patch: Patch) -> bytes:
    """Return the patch that a file of the repository holds."""
    if patch.encoding == "plain":
        return content
    try:
        return gzip.decompress(base64.b64decode(b"".join(content.split()), validate=True))
    except (binascii.Error, OSError, EOFError, zlib.error) as error:
        raise BuildError(f"patch {patch.name} ({patch.place}) is not gzip in base64: {error}") from error


def pack_name(commit: str, path: str) -> str:
    """Return the name of the file in a mirror, beside the repositories, that holds one file of a commit."""
    return f"b70-{commit[:12]}-{hashlib.sha256(path.encode()).hexdigest()[:12]}.pack"


class _Repository:
    """An empty bare repository, and what is fetched into it."""

    def __init__(self, folder: Path, address: str, limit_s: float, mirrors: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._git = Git(folder, limit_s, mirrors)
        self._limit_s = limit_s
        self._address = address
        self._mirror = _replaced(address, mirrors)
        self._there: set[str] = set()
        self._git("init", "--quiet", "--bare")
        self._git("config", "remote.origin.url", address)

    def fetch(self, patch: Patch) -> bytes:
        """Return the content of the patch's file, fetched from the mirror or the repository."""
        if patch.commit not in self._there and not self._take_pack(patch):
            self._take_commit(patch)
            self._there.add(patch.commit)
        done = self._git.raw("cat-file", "blob", f"{patch.commit}:{patch.path}")
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[-WORDS:]
            raise BuildError(f"patch {patch.name} cannot be had: {patch.place}: {words}")
        return done.stdout

    def pack(self, patch: Patch) -> bytes:
        """Return a pack of the fetched file, its commit and its trees."""
        parts = patch.path.split("/")
        inside = [f"{patch.commit}:{'/'.join(parts[:depth])}" for depth in range(len(parts) + 1)]
        names = [self._git("rev-parse", "--verify", name).stdout for name in (patch.commit, *inside)]
        done = self._git.raw("pack-objects", "-q", "--stdout", given="".join(names).encode())
        if done.returncode != 0:
            raise BuildError(f"{patch.place} cannot be packed: {done.stderr.decode(errors='replace').strip()[-WORDS:]}")
        return done.stdout

    def _take_commit(self, patch: Patch) -> None:
        """Fetch the commit and its trees alone where the server allows that, else everything.

        The file itself then comes as it is read.
        """
        # With a filter, a mirror of plain files would be asked for the same objects again and again.
        part = () if self._mirror.startswith(_WEB) else ("--filter=blob:none",)
        only = self._git("fetch", "--quiet", "--no-tags", "--depth=1", *part, "origin", patch.commit, check=False)
        if only.returncode != 0:
            self._git("fetch", "--quiet", "--no-tags", "origin", "+refs/*:refs/remotes/origin/*")
            if self._git("cat-file", "-e", f"{patch.commit}^{{commit}}", check=False).returncode != 0:
                raise BuildError(f"{self._address} has no commit {patch.commit}; asked for by patch {patch.name}")

    def _take_pack(self, patch: Patch) -> bool:
        """Take the pack of a mirror that is plain files; False where there is none."""
        if not self._mirror.startswith(_WEB):
            return False
        url = f"{self._mirror.rstrip('/')}/{pack_name(patch.commit, patch.path)}"
        try:
            with open_url(url, timeout=self._limit_s) as answer:
                content = answer.read(_PACK_BYTES)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise BuildError(f"patch {patch.name}: {url} answers {error.code} {error.reason}") from error
        except OSError as error:
            raise BuildError(f"patch {patch.name}: {url} cannot be read: {error}") from error
        done = self._git.raw("unpack-objects", "-q", given=content)
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()[-WORDS:]
            raise BuildError(f"patch {patch.name}: {url} is damaged ({words}); fill the mirror again")
        return True


def _replaced(repository: str, mirrors: Mapping[str, str]) -> str:
    """Return the address in the mirror, as Git finds it: the longest beginning wins.

    Empty where no mirror stands for it.
    """
    fitting = [address for address in mirrors if repository.startswith(address)]
    longest = max(fitting, key=len, default="")
    return mirrors[longest] + repository[len(longest) :] if longest else ""
