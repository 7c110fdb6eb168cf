# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels under the names and versions that the stacks for cards pin.

A repacked wheel is a real one under another name: its files are the real ones, byte for byte and as compressed as they
were, so that two runs make the same wheel with the same digest. A stand-in is a distribution without a module.
"""

from __future__ import annotations

import base64
import copy
import csv
import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

_DATE = (2026, 5, 23, 0, 0, 0)
_LOCAL_HEADER = 30


class Writer:
    """A new wheel. Its RECORD is written last."""

    def __init__(self, path: Path, name: str, version: str, tag: str) -> None:
        self._zip = zipfile.ZipFile(path, "w")
        self.info = f"{name.replace('-', '_')}-{version}.dist-info"
        self._name, self._version, self._tag = name, version, tag
        self._record: list[str] = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_error: object) -> None:
        if f"{self.info}/WHEEL" not in self._zip.NameToInfo:
            pure = "true" if self._tag.endswith("-any") else "false"
            self.text(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\nTag: {self._tag}\n")
        self._store(f"{self.info}/RECORD", "".join([*self._record, f"{self.info}/RECORD,,\n"]).encode())
        self._zip.close()

    def _store(self, name: str, content: bytes) -> None:
        entry = zipfile.ZipInfo(name, _DATE)
        entry.external_attr = 0o100644 << 16
        self._zip.writestr(entry, content)

    def text(self, name: str, content: str) -> None:
        """A file of ours."""
        self._store(name, content.encode())
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(content.encode())}\n")

    def take(self, source: zipfile.ZipFile, entry: zipfile.ZipInfo, row: str, name: str) -> None:
        """A file of another wheel as it is there, with its row of that wheel's RECORD."""
        assert source.fp is not None
        assert self._zip.fp is not None
        source.fp.seek(entry.header_offset)
        header = source.fp.read(_LOCAL_HEADER)
        source.fp.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
        fresh = copy.copy(entry)
        fresh.filename, fresh.extra, fresh.flag_bits = name, b"", entry.flag_bits & ~0x08
        fresh.header_offset = self._zip.fp.tell()
        self._zip.fp.write(fresh.FileHeader(zip64=False))
        self._zip.fp.write(source.fp.read(entry.compress_size))
        self._zip.filelist.append(fresh)
        self._zip.NameToInfo[name] = fresh
        self._zip.start_dir = self._zip.fp.tell()
        quoted = f'"{name}"' if "," in name else name
        self._record.append(f"{quoted},{row}\n")


def metadata(name: str, version: str, words: str, requires: tuple[str, ...] = ()) -> str:
    """The METADATA of a wheel of ours."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {words}"]
    return "\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires)]) + "\n"


def file_name(name: str, version: str, tag: str) -> str:
    return f"{name.replace('-', '_')}-{version}-{tag}.whl"


def tag_of(wheel: Path) -> str:
    return wheel.stem.split("-", 2)[2]


def stand_in(folder: Path, name: str, version: str, modules: tuple[str, ...] = ()) -> Path:
    """A distribution that has a name and a version and installs no module, so that nobody takes it for the real one.

    `modules`: files that are there and empty, where somebody must be able to import them.
    """
    tag = "py3-none-any"
    path = folder / file_name(name, version, tag)
    with Writer(path, name, version, tag) as wheel:
        words = f"fixture of the lab in the place of {name}; it holds nothing of it"
        wheel.text(f"{wheel.info}/METADATA", metadata(name, version, words))
        for module in modules:
            wheel.text(module, "")
    return path


def _rows(source: zipfile.ZipFile) -> dict[str, str]:
    """File -> the rest of its row in RECORD."""
    record = next(name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
    return {row[0]: ",".join(row[1:]) for row in csv.reader(source.read(record).decode().splitlines()) if row}


def _entries(source: zipfile.ZipFile, wanted: Callable[[str], bool]) -> Iterator[zipfile.ZipInfo]:
    for entry in source.infolist():
        if not entry.is_dir() and not entry.filename.endswith(".dist-info/RECORD") and wanted(entry.filename):
            yield entry


def repack(
    real: Path,
    folder: Path,
    name: str,
    version: str,
    changes: dict[str, Callable[[str], str]],
    added: dict[str, str] | None = None,
) -> Path:
    """A real wheel under another name or version. `changes`: file -> its new text; INFO/ is the metadata's folder."""
    tag = tag_of(real)
    path = folder / file_name(name, version, tag)

    def named(text: str) -> str:
        text = re.sub(r"(?m)^Name: .*$", f"Name: {name}", text, count=1)
        return re.sub(r"(?m)^Version: .*$", f"Version: {version}", text, count=1)

    with zipfile.ZipFile(real) as source, Writer(path, name, version, tag) as wheel:
        rows = _rows(source)
        former = next(name for name in rows if name.endswith(".dist-info/METADATA")).partition("/")[0]
        own = {"INFO/METADATA": named, **changes}
        edits = {file.replace("INFO/", f"{former}/"): change for file, change in own.items()}
        for entry in _entries(source, lambda _name: True):
            file = entry.filename.replace(f"{former}/", f"{wheel.info}/")
            if entry.filename in edits:
                wheel.text(file, edits.pop(entry.filename)(source.read(entry).decode()))
            else:
                wheel.take(source, entry, rows[entry.filename], file)
        if edits:
            raise ValueError(f"{real.name} has no {', '.join(edits)}")
        for file, content in (added or {}).items():
            wheel.text(file, content)
    return path


def versioned(version: str) -> Callable[[str], str]:
    """Says another version in the text of a version.py."""
    return lambda text: re.sub(r"(?m)^__version__ = .*$", f"__version__ = '{version}'", text, count=1)


def repack_torch(real: Path, folder: Path, version: str) -> Path:
    """The real torch of this machine's kind under the version that the stack pins: built against as it is."""
    return repack(real, folder, "torch", version, {"torch/version.py": versioned(version)})


def native_part(real: Path, folder: Path, name: str, version: str) -> Path:
    """A wheel with nothing but the native libraries of a real one."""
    tag = tag_of(real)
    path = folder / file_name(name, version, tag)
    with zipfile.ZipFile(real) as source, Writer(path, name, version, tag) as wheel:
        rows = _rows(source)
        for entry in _entries(source, lambda name: name.endswith(".so")):
            wheel.take(source, entry, rows[entry.filename], entry.filename)
        words = f"fixture of the lab: the native libraries of {real.name}"
        wheel.text(f"{wheel.info}/METADATA", metadata(name, version, words))
    return path


def extract_sources(real: Path, tree: Path) -> None:
    """All files of a real wheel that are not native and not its metadata, with the modes that Git has for files."""
    with zipfile.ZipFile(real) as source:
        for entry in _entries(source, lambda name: not name.endswith(".so") and ".dist-info/" not in name):
            target = tree / entry.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read(entry))
            target.chmod(0o644)
