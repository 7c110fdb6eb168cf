# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of models that others report to run on these cards, and the search in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .problems import CatalogueError, Problem, did_you_mean
from .reading import SHIPPED, plain, read_folder, schema
from .schema import faults


def load_models(folder: Path = SHIPPED / "models") -> dict[str, dict[str, Any]]:
    """Return ``{name: {name, source, precisions, notes, models}}``; raise CatalogueError with every fault."""
    problems: list[Problem] = []
    lists: dict[str, dict[str, Any]] = {}
    for name, (file, data) in read_folder(folder, problems).items():
        found = plain(data)
        problems += [Problem(file, path, message) for path, message in faults(found, schema("models.schema.json"))]
        notes = found.get("notes", {})
        for index, row in enumerate(found.get("models", []) if not problems else []):
            for note in row.get("notes", []):
                if note not in notes:
                    problems.append(Problem(file, f"models[{index}].notes", f"{note!r} is not explained in notes"))
        lists[name] = found
    if problems:
        raise CatalogueError(problems)
    return lists


def known_models(
    lists: Mapping[str, Mapping[str, Any]],
    profiles: Mapping[str, Mapping[str, Any]],
    model: str = "",
    precision: str = "",
    category: str = "",
) -> list[str]:
    """Return one line per model that fits, with its precisions, notes and the profiles that serve it, then the sources.

    :param model: part of the name, case ignored; empty for all.
    :param precision: one that a list has; empty for all. category likewise.
    :raises ValueError: for a precision or category that no list has.
    """
    rows = [(row, whole) for whole in lists.values() for row in whole["models"]]
    _one_of("precision", precision, {kind for row, _whole in rows for kind in row["precisions"]})
    _one_of("category", category, {row["category"] for row, _whole in rows})
    served: dict[str, list[str]] = {}
    for name, profile in profiles.items():
        served.setdefault(str(profile["model"]["hf_repo"]).lower(), []).append(f"{name} ({profile['status']})")
    lines = []
    for row, whole in rows:
        if model.lower() not in row["model"].lower() or category not in ("", row["category"]):
            continue
        if precision and precision not in row["precisions"]:
            continue
        notes = [whole["notes"][note] for note in row.get("notes", [])]
        shipped = served.get(row["model"].lower())
        parts = [f"{row['model']} ({row['category']}): {', '.join(row['precisions'])}", *notes]
        lines.append("; ".join([*parts, *([f"profiles: {', '.join(shipped)}"] if shipped else [])]))
    sources = [f"{len(lines)} of {len(rows)} models", *(f"from {whole['source']}" for whole in lists.values())]
    return [*lines, "; ".join(sources)]


def _one_of(what: str, value: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if value and value not in names:
        raise ValueError(f'no list has the {what} "{value}"{did_you_mean(value, names)} (there are {", ".join(names)})')
