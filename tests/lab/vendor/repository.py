# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real .deb packages in a real apt repository with a real signature, made with dpkg-deb, apt-ftparchive and gpg."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vendor.packages import LINK, Package

TOOLS = {"dpkg-deb": "dpkg", "apt-ftparchive": "apt-utils", "gpg": "gpg", "gpg-agent": "gpg-agent"}


def missing_tools() -> list[str]:
    """The packages that this machine lacks for making repositories."""
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})


def _run(*argv: str | Path, stdin: str = "", environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        input=stdin,
        env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Keys:
    """gpg's home with secret keys that exist for one test run. Use as `with keys(DIRECTORY) as ring`."""

    home: Path

    def _gpg(self, *words: str, stdin: str = "") -> str:
        quiet = ("--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", "")
        return _run("gpg", *quiet, *words, stdin=stdin, environment={"GNUPGHOME": str(self.home)})

    def make(self, name: str) -> str:
        """A new key for `name`; returns its fingerprint."""
        self._gpg("--quick-generate-key", f"{name} (fixture of the lab)", "ed25519", "sign", "never")
        listed = self._gpg("--list-keys", "--with-colons", f"={name} (fixture of the lab)")
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def public(self, *fingerprints: str) -> str:
        """These keys, armoured, one block each as vendors publish them."""
        return "".join(self._gpg("--armor", "--export", fingerprint) for fingerprint in fingerprints)

    def sign(self, text: str, fingerprint: str) -> str:
        """The text with its signature around it, as apt wants InRelease."""
        return self._gpg("--local-user", fingerprint, "--clear-sign", "--output", "-", stdin=text)


@contextlib.contextmanager
def keys(home: Path) -> Iterator[Keys]:
    """A key ring of its own at `home`, whose agent ends with the block."""
    home.mkdir(mode=0o700, parents=True)
    try:
        yield Keys(home)
    finally:
        _run("gpgconf", "--kill", "gpg-agent", environment={"GNUPGHOME": str(home)})


def build(package: Package, pool: Path) -> Path:
    """Make one .deb in `pool`."""
    tree = pool / f".{package.name}.tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(package.control(), encoding="utf-8")
    note = f"/usr/share/doc/{package.name}/README.fixture"
    for path, (content, mode) in {note: (package.control(), 0o644), **package.files}.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            target.symlink_to(content)
            continue
        target.write_text(content, encoding="utf-8")
        target.chmod(mode)
    for folder, _names, _files in os.walk(tree):
        os.chmod(folder, 0o755)
    made = pool / package.file_name
    _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made)
    shutil.rmtree(tree)
    return made


def publish(root: Path, suite: str, ring: Keys, fingerprint: str, component: str = "main") -> None:
    """Index and sign what is in `root`/pool as the one component of `suite`. Again after every change."""
    index = root / "dists" / suite / component / "binary-amd64"
    index.mkdir(parents=True, exist_ok=True)
    (index / "Packages").write_text(_run("apt-ftparchive", "packages", "pool", cwd=root), encoding="utf-8")
    options = {"Origin": "Lab", "Suite": suite, "Codename": suite, "Components": component, "Architectures": "amd64"}
    words = [word for name, value in options.items() for word in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    for old in ("Release", "InRelease"):
        (root / "dists" / suite / old).unlink(missing_ok=True)
    text = _run("apt-ftparchive", *words, "release", root / "dists" / suite)
    (root / "dists" / suite / "InRelease").write_text(ring.sign(text, fingerprint), encoding="utf-8")


def make(
    root: Path, suite: str, packages: Iterable[Package], ring: Keys, fingerprint: str, component: str = "main"
) -> None:
    """A whole repository below `root`."""
    pool = root / "pool"
    pool.mkdir(parents=True)
    for package in packages:
        build(package, pool)
    publish(root, suite, ring, fingerprint, component)
