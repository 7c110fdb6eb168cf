# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of records on a host: KIND/ID.json, and index.json with a row for each.

The index saves readers from opening every record. The files decide: a row that the index lacks is read from its file.
Records are numbered as they are written, because a clock may be set. Those of another machine, from whose disk this one
was cloned, are not listed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from .._files import replace
from .._lock import hold
from .._paths import RECORDS_DIR
from .._slot.host.files import make_directory
from .host_class import machine
from .record import ID, KINDS, SCHEMA, parse, row, text

INDEX = "index.json"
LOCK = ".lock"
LOCK_LIMIT_S = 60.0  # a writer holds it only while it writes two files
_FILE_MODE = 0o644


class StoreError(Exception):
    """A record can't be read or written; the text names the file and what to do."""


class Store:
    """The records in one folder. The user who owns it writes records; everybody may read them."""

    def __init__(self, root: str | Path = RECORDS_DIR) -> None:
        self.root = Path(root)

    def path(self, record_id: str) -> Path:
        """Return the file of a record; raise StoreError if this is no id, so that no path leads elsewhere."""
        found = ID.fullmatch(record_id)
        if not found:
            raise StoreError(f"{record_id!r} is not the id of a record")
        return self.root / found[1] / f"{record_id}.json"

    def write(self, record: Mapping[str, Any]) -> Path:
        """Write a record and its row, once: one of this id stays as it is. Return its file.

        One without a number (0) gets the next. Raise StoreError if another writer does not end, and OSError.
        """
        path = self.path(record["id"])
        make_directory(PurePosixPath(path.parent))
        with hold(self.root / LOCK, LOCK_LIMIT_S, StoreError):
            with contextlib.suppress(StoreError):
                self.read(record["id"])
                return path
            rows = self.rows()
            number = record["number"] or 1 + max((one["number"] for one in rows), default=0)
            numbered = {**record, "number": number}
            replace(path, text(numbered).encode(), _FILE_MODE)
            rows = _newest_first([row(numbered), *rows])
            listed = {"schema": SCHEMA, "machine": machine(), "records": rows}
            replace(self.root / INDEX, (json.dumps(listed, ensure_ascii=False, indent=1) + "\n").encode(), _FILE_MODE)
        return path

    def read(self, record_id: str) -> dict[str, Any]:
        """Return a record; raise StoreError if it is missing or damaged."""
        path = self.path(record_id)
        try:
            return parse(path.read_text(encoding="utf-8"), record_id)
        except FileNotFoundError as error:
            raise StoreError(f"there is no record {record_id} in {self.root}") from error
        except (OSError, ValueError) as error:
            raise StoreError(f"the record {path} can't be read: {error}; remove it, or restore it") from error

    def rows(self, kind: str | None = None, profile: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of this machine's readable records, newest first."""
        found = _newest_first(self._rows())
        return [item for item in found if kind in (None, item["kind"]) and profile in (None, item["profile"])]

    def ids(self) -> list[str]:
        """Return the ids of all files, readable or not, oldest first."""
        names = (file.stem for kind in KINDS for file in (self.root / kind).glob("*.json"))
        return sorted(name for name in names if ID.fullmatch(name))

    def _rows(self) -> Iterator[dict[str, Any]]:
        listed = self._listed()
        for record_id in self.ids():
            with contextlib.suppress(StoreError):
                if record_id in listed:
                    yield listed[record_id]
                elif own(record := self.read(record_id)):
                    yield row(record)

    def _listed(self) -> dict[str, dict[str, Any]]:
        try:
            index = json.loads((self.root / INDEX).read_text(encoding="utf-8"))
            mine = (index["schema"], index["machine"]) == (SCHEMA, machine())
            return {item["id"]: item for item in index["records"] if item["number"]} if mine else {}
        except (OSError, ValueError, LookupError, TypeError):
            return {}  # missing, torn, or of another version: the files have everything


def own(record: Mapping[str, Any]) -> bool:
    """Return whether a record was made on this machine."""
    host = record["host"]
    return isinstance(host, Mapping) and host.get("machine") == machine()


def _newest_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: int(one["number"]), reverse=True)
