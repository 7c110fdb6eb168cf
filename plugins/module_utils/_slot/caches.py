# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compile cache of an engine belongs to what compiled it: the stack, and the driver and compiler of the host.

The unit of an engine runs this file by itself before each start, as the engine's user and with the standard library
alone. It makes the folders that the engine's variables name. Where the provenance of the cache is not that of this
start, the cache is set aside under the digest of its provenance, and the one of this start comes back if it is there:
so nothing stale is loaded, and a way back to another stack still finds what it had compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = "provenance.json"  # in the cache, beside what was compiled
HOME = "home"  # the engine's own, made before there is anything to keep
ASIDE = "@"  # between the name of a cache and a digest; no cache key has one
KEPT = 2  # that were set aside, of each cache
DPKG_STATUS = Path("/var/lib/dpkg/status")
RUNTIME = "libze-intel-gpu1"  # the package whose version is that of the compute runtime
_DRIVER_PACKAGES = ("intel-", "libze", "libigc", "libigdfcl", "libigdgmm", "level-zero")
_INSTALLED = re.compile(r"^Status: \S+ \S+ installed$", re.M)
_VERSION = re.compile(r"^Version: (\S+)$", re.M)

Provenance = Mapping[str, Any]


def driver_packages(dpkg_status: str | None) -> list[str] | None:
    """Return ``NAME VERSION`` of the driver's and compiler's packages in dpkg's status file; None without the file."""
    if dpkg_status is None:
        return None
    wanted = tuple(f"Package: {prefix}" for prefix in _DRIVER_PACKAGES)
    entries = [part for part in dpkg_status.split("\n\n") if part.lstrip("\n").startswith(wanted)]
    return sorted(
        f"{part.split()[1]} {version[1]}"
        for part in entries
        if _INSTALLED.search(part) and (version := _VERSION.search(part))
    )


def runtime(dpkg_status: str | None) -> str:
    """Return the version of the host's compute runtime; empty if it is not known."""
    packages = [line.split() for line in driver_packages(dpkg_status) or []]
    return next((version for name, version in packages if name == RUNTIME), "")


def provenance(stack: str, image: str, dpkg_status: str | None, *, cards: bool) -> dict[str, Any]:
    """Return what decides whether a compile cache may be reused.

    An image brings its own driver and compiler, and its digest is in its reference; without cards no driver takes part.
    """
    packages = driver_packages(dpkg_status) if cards and not image else []
    return {"schema": 1, "stack": stack, "image": image, "packages": packages}


def digest(of: Provenance) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:12]


def parse(text: str | None) -> Provenance | None:
    """Return the provenance in the text of its file; None if it can't be read."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def aside(name: str, of: Provenance) -> str:
    """Return the name of a cache that is set aside."""
    return f"{name}{ASIDE}{digest(of)}"


def warm(name: str, names: Collection[str], text: str | None, beside: Collection[str], wanted: Provenance) -> bool:
    """Tell whether a start will find anything compiled. Pure.

    :param name: of the cache's folder.
    :param names: the entries of that folder.
    :param text: of its provenance.
    :param beside: the entries beside that folder.
    """
    if is_stale(text, wanted):
        return aside(name, wanted) in beside
    return bool({*names} - {HOME, FILE})


def is_stale(text: str | None, wanted: Provenance) -> bool:
    """Tell whether a cache was compiled by something else. text: of its provenance."""
    have = parse(text)
    return have is not None and have != wanted


def settle(root: Path, wanted: Provenance) -> str:
    """Put the cache of this provenance in place, and return what was done; empty if nothing was.

    A cache without provenance is taken to be of this start.
    """
    have = parse(_text(root / FILE))
    if have == wanted:
        return ""
    said = ""
    if have is not None:
        gone, back = root.with_name(aside(root.name, have)), root.with_name(aside(root.name, wanted))
        _remove(gone)
        root.rename(gone)
        said = f"{root} was compiled by {_words(have)}; set aside as {gone.name}"
        if back.is_dir():
            back.rename(root)
            said += f", and {back.name} is used again"
        _prune(root)
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".{FILE}"
    temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, root / FILE)
    return said


def _words(of: Provenance) -> str:
    return f"{of.get('image') or of.get('stack')} with {len(of.get('packages') or ())} driver packages"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _prune(root: Path) -> None:
    """Remove the caches that were set aside longest ago."""
    found = [path for path in root.parent.glob(f"{root.name}{ASIDE}*") if path.is_dir() and not path.is_symlink()]
    # A rename leaves the time of the folder alone and changes that of its inode.
    for path in sorted(found, key=lambda path: path.stat().st_ctime_ns, reverse=True)[KEPT:]:
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def main(argv: Sequence[str], dpkg_status: Path = DPKG_STATUS) -> int:
    """Run the command line and return the exit status; actions and errors go to the unit's log."""
    form = argparse.ArgumentParser(prog="caches", description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    form.add_argument("--stack", required=True)
    form.add_argument("--image", default="")
    form.add_argument("--cards", action="store_true", help="the driver of the host takes part")
    form.add_argument("--root", type=Path, required=True, help="the cache")
    form.add_argument("folders", type=Path, nargs="*", help="to be made")
    asked = form.parse_args(argv)
    wrong = ""
    try:
        wanted = provenance(asked.stack, asked.image, _text(dpkg_status), cards=asked.cards)
        if said := settle(asked.root, wanted):
            sys.stderr.write(f"compile cache: {said}\n")
    except OSError as error:
        wrong = f"{error.strerror or error}: {error.filename}"
    for folder in asked.folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = wrong or f"{error.strerror or error}: {error.filename}"
    if wrong:
        sys.stderr.write(f"compile cache: {wrong}; the engine compiles without it\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
