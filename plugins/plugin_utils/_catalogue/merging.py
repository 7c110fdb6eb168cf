# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inheritance: ``extends`` chains, deep merge, and where each value was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine

from .problems import Problem, did_you_mean

ROOT = "_defaults"
# The keys of an engine section that mean nothing to another kind of engine.
_OF_KIND = ("settings", "extra_args", "env", "kill_signal")
# A variant is another experiment: what was found out about its parent says nothing about it.
NOT_INHERITED = (
    "name",
    "extends",
    "title",
    "purpose",
    "status",
    "status_reason",
    "recommended",
    "notes",
    "evidence",
)


@dataclass(frozen=True)
class ProfileSource:
    """One profile as written: its name, the file (or "b70_profiles") and the layer. Later layers override earlier."""

    name: str
    file: str
    layer: int
    data: Mapping[str, Any]

    @property
    def abstract(self) -> bool:
        return self.name.startswith("_")


class Library:
    """All sources by name and layer; finds parents and walks chains."""

    def __init__(self, sources: Sequence[ProfileSource]) -> None:
        self._by_name: dict[str, list[ProfileSource]] = {}
        for source in sorted(sources, key=lambda item: item.layer):
            self._by_name.setdefault(source.name, []).append(source)

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def top(self) -> list[ProfileSource]:
        """Return the winning source of every name, in name order."""
        return [self._by_name[name][-1] for name in self.names()]

    def _parent(self, source: ProfileSource) -> ProfileSource | None:
        name = source.data.get("extends")
        if name is None:
            roots = self._by_name.get(ROOT, [])
            return roots[-1] if roots and source.name != ROOT else None
        # A profile that extends its own name changes the one of an earlier layer.
        below = [item for item in self._by_name.get(name, []) if name != source.name or item.layer < source.layer]
        if not below:
            hint = did_you_mean(name, (known for known in self.names() if known != source.name))
            raise LookupError(f'there is no profile "{name}" to extend{hint}')
        return below[-1]

    def chain(self, source: ProfileSource, problems: list[Problem]) -> list[ProfileSource] | None:
        """Return the sources from the root down to ``source``, or None after adding a problem (missing, cycle)."""
        chain = [source]
        while True:
            try:
                parent = self._parent(chain[-1])
            except LookupError as error:
                problems.append(Problem(chain[-1].file, "extends", str(error)))
                return None
            if parent is None:
                return chain[::-1]
            if parent in chain:
                loop = " -> ".join(item.name for item in [*chain[chain.index(parent) :], parent])
                problems.append(Problem(chain[-1].file, "extends", f"profiles extend each other in a circle: {loop}"))
                return None
            chain.append(parent)


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path


def _forget(origins: dict[str, str], path: str) -> None:
    for known in [known for known in origins if known == path or known.startswith(f"{path}.")]:
        del origins[known]


def _merge(base: dict[str, Any], over: Mapping[str, Any], origins: dict[str, str], label: str, path: str) -> None:
    for key, value in over.items():
        where = f"{path}.{key}" if path else key
        if value is None:
            base.pop(key, None)
            _forget(origins, where)
        elif isinstance(value, Mapping) and isinstance(base.get(key), dict):
            if value:
                origins.pop(where, None)
            _merge(base[key], value, origins, label, where)
        else:
            _forget(origins, where)
            copy = _copy(value)
            base[key] = copy
            origins.update(dict.fromkeys(_leaves(copy, where), label))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items() if item is not None}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def merge_chain(chain: Sequence[ProfileSource]) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge a chain (root first): the child wins, null deletes, lists replace, NOT_INHERITED comes from the last only.

    Return the merged mapping and ``{dotted path: name of the profile that wrote the value}``.
    """
    return _merged(chain, [source.name for source in chain])


def origin_files(chain: Sequence[ProfileSource]) -> dict[str, str]:
    """Return ``{dotted path: the file that the value of the merged chain is written in}``.

    A name is not enough to find it: a profile that extends its own name is in two files.
    """
    return _merged(chain, [source.file for source in chain])[1]


def _merged(chain: Sequence[ProfileSource], labels: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source, label in zip(chain, labels, strict=True):
        data = source.data if source is chain[-1] else _without(source.data)
        _forget_other_kind(merged, data, origins)
        _merge(merged, data, origins, label, "")
    return merged, origins


def _forget_other_kind(merged: dict[str, Any], data: Mapping[str, Any], origins: dict[str, str]) -> None:
    """Drop what was written for the engine of a parent when a profile names another kind of engine."""
    had, engine = merged.get("engine"), data.get("engine")
    if not isinstance(had, dict) or not isinstance(engine, Mapping):
        return
    if kind_of_engine({**had, "kind": engine.get("kind") or had.get("kind")}) is kind_of_engine(had):
        return
    for key in _OF_KIND:
        had.pop(key, None)
        _forget(origins, f"engine.{key}")


def _without(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in NOT_INHERITED}
