# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's repositories that profiles and inventories name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import (
    WeightsError,
    at_revision,
    check_name,
    is_commit,
)
from ansible_collections.arcpro.b70.plugins.module_utils._weights.sources import REPOSITORY, kind_of

from .._catalogue.places import models_of


def refuse_branch(name: str, source: Mapping[str, Any]) -> None:
    """Raise WeightsError if the revision of a repository is named but is not a commit."""
    said = source.get("revision")
    if "hub" not in source or not said or is_commit(said):
        return
    repository, profile = source["hub"], source.get("profile")
    whose = f" (profile {profile})" if profile else ""
    raise WeightsError(
        f"model {name}{whose} comes from the hub's repository {repository}, but its revision {said!r} is no full "
        f"commit: what is fetched today and tomorrow could differ. Name a commit of 40 hex digits (the hub shows it "
        f"under Files, {said}, History), or none: then the first download records the one that it finds"
    )


def site_problems(models: Mapping[Any, Any], revisions: Mapping[Any, Any]) -> Iterator[str]:
    """Yield a sentence for each entry of model_weights_models and model_weights_revisions that is of no use."""
    for name, source in models.items():
        try:
            check_name(str(name))
            kind_of(str(name), source)
            refuse_branch(str(name), source)
        except WeightsError as error:
            yield f"model_weights_models: {error}."
    for repository, revision in revisions.items():
        where = f"model_weights_revisions: {repository}"
        if not REPOSITORY.fullmatch(str(repository)):
            yield f"{where} must be OWNER/NAME as the hub spells it."
        elif not is_commit(revision):
            yield f"{where} has {revision!r}, which must be a commit: 40 hex digits in small letters, in quotes."


def from_catalogue(
    catalogue: Mapping[str, Any], names: Iterable[str], revisions: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return the sources that profiles name themselves: directory to source, for those with a repository of the hub.

    ``revisions`` (repository to commit) is the operator's and wins over the profile's. A second revision of a directory
    is there as ``NAME@COMMIT``. A directory that several profiles share has the files of all of them.
    """
    found: dict[str, dict[str, Any]] = {}
    shared: dict[tuple[str, str | None], set[str]] = {}
    wanted = []
    for name, profile in catalogue.items():
        for _where, model, files in models_of(profile):
            directory, repository = model.get("directory"), model.get("hf_repo")
            if not directory or not repository or directory.startswith("/"):
                continue
            revision = revisions.get(repository) or model.get("revision")
            shared.setdefault((directory, revision), set()).update(files)
            extra = {"revision": revision, "sha256": model.get("sha256"), "size_gb": model.get("size_gb")}
            wanted.append((name, directory, {"hub": repository, "profile": name, **extra}))
    for name in names:
        for _name, directory, source in [one for one in wanted if one[0] == name]:
            source = {key: value for key, value in source.items() if value}
            revision = source.get("revision")
            if include := shared[directory, revision]:
                # Such a repository has the model in many formats, and one of them is wanted.
                source.update(include=sorted(include), exclude=[])
            other = found.get(directory, source).get("revision") != revision
            found[at_revision(directory, revision) if other else directory] = source
    return found


def patterns_of(catalogue: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the files that profiles load of their directories, as patterns, for those that do not load all files."""
    models = [found for name in names if name in catalogue for found in models_of(catalogue[name])]
    return {model["directory"]: files for _where, model, files in models if files and model.get("directory")}
