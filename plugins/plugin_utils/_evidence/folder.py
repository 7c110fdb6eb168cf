# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's folder of records: HOST/KIND/ID.json. Records that break the schema are named and left out."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import conditions
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store, StoreError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.schema import faults

_SCHEMA = Path(__file__).parents[3] / "roles/evidence/files/schema/record.schema.json"


@functools.cache
def _rules() -> dict[str, Any]:
    """Return the schema with its own definitions in place of the references to them."""
    whole = json.loads(_SCHEMA.read_text(encoding="utf-8"))

    def resolved(node: Any) -> Any:
        if isinstance(node, Mapping):
            if "$ref" in node:
                return resolved(whole["$defs"][node["$ref"].rpartition("/")[2]])
            return {key: resolved(value) for key, value in node.items()}
        return [resolved(item) for item in node] if isinstance(node, list) else node

    found: dict[str, Any] = resolved(whole)
    return found


def faults_of(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what breaks the schema in a record, with the place."""
    rules = _rules()
    data = {"properties": {"data": rules["$defs"].get(str(record.get("kind")), {})}}
    for part in (rules, data):
        yield from (f"{path}: {message}" for path, message in faults(record, part))


def read(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Return the sound records of each host, newest first, and what is wrong with the others."""
    records: dict[str, list[dict[str, Any]]] = {}
    problems = []
    for place in sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []:
        store = Store(place)
        for record_id in reversed(store.ids()):
            try:
                found = store.read(record_id)
            except StoreError as error:
                problems.append(str(error))
                continue
            wrong = list(faults_of(found))
            if wrong:
                problems.append(f"{store.path(record_id)}: {'; '.join(wrong)}")
            else:
                records.setdefault(place.name, []).append(found)
        records.get(place.name, []).sort(key=itemgetter("number"), reverse=True)
    return records, problems


def newest_good(folder: Path, profile: str, generator: str) -> list[dict[str, Any]]:
    """Return the good benchmarks of a profile by a generator: the newest of each class of host and set of requests.

    Unsound records are left out.
    """
    name = re.compile(rf"[0-9TZ]+-benchmark-{re.escape(profile)}-[0-9a-f]{{6}}")
    places = [Store(entry) for entry in sorted(folder.iterdir())] if folder.is_dir() else []
    named = sorted(((one, place) for place in places for one in place.ids() if name.fullmatch(one)), key=itemgetter(0))
    found: dict[Any, dict[str, Any]] = {}
    for record_id, place in named:
        with contextlib.suppress(StoreError):
            record = place.read(record_id)
            good = record["verdict"] == "passed" and not list(faults_of(record))
            if good and record["data"]["generator"]["name"] == generator:
                found[record["host"]["class"], conditions(record["data"])] = record
    return list(found.values())
