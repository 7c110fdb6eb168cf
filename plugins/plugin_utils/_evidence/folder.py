# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's folder of records: HOST/KIND/ID.json. Records that break the schema are named and left out."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import baseline_key, lacking
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


def chosen(folder: Path, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the benchmarks that a person chose as baselines; raise ValueError if one can't be one."""
    stores = [Store(entry) for entry in sorted(folder.iterdir()) if entry.is_dir()] if folder.is_dir() else []
    found: dict[Any, dict[str, Any]] = {}
    for one in ids:
        place = f"benchmark_baselines: {one}"
        try:
            store = next((store for store in stores if store.path(one).exists()), None)
            if store is None:
                raise ValueError(f"{place} is in no host's folder of {folder}: run playbooks/collect_evidence.yml")
            record = store.read(one)
        except StoreError as error:
            raise ValueError(f"{place}: {error}") from error
        if record["kind"] != "benchmark" or record["verdict"] != "passed":
            raise ValueError(f"{place} is a {record['kind']} that {record['verdict']}: name a benchmark that passed")
        if wrong := [*faults_of(record)] or lacking(record["data"]):
            raise ValueError(f"{place} can't be compared with: {'; '.join(wrong)}")
        other = found.setdefault(baseline_key(record), record)
        if other is not record:
            words = "for the same profile, class of host and generator: keep one"
            raise ValueError(f"benchmark_baselines: {other['id']} and {one} are both {words}")
    return list(found.values())
