# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The revision that hosts take of a repository of the hub, if neither the operator nor a profile names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import is_commit

# The need of a model: nothing, a record of the revision that the host has, or a question to the source for one.
NOTHING, RECORD, ASK = "", "record", "ask"


def is_open(source: Mapping[str, Any]) -> bool:
    """Return whether the pins decide about a source."""
    return "hub" in source and not source.get("revision")


def step(pinned: str, found: Mapping[str, Any]) -> str:
    """Return what to do for a model, from its ``state`` and the ``revision`` in its own record."""
    if pinned:
        return NOTHING
    if is_commit(found["revision"]):
        return RECORD
    return NOTHING if found["state"] == "complete" else ASK


def foretold(repository: str, revision: str, origin: str, path: str) -> str:
    """Return what check mode says would be recorded; without ``revision`` the source will be asked."""
    if revision:
        return f"{repository}: revision {revision}, which this host has, would be recorded in {path}"
    return f"{repository}: its revision would be asked for at {origin} and recorded in {path}"


def unrecordable(name: str, source: Mapping[str, Any], problem: str) -> str:
    """Return what to say if a first download can't record what it fetches."""
    repository, profile = source["hub"], source.get("profile")
    whose = f" (profile {profile})" if profile else ""
    return (
        f"model {name}{whose} comes from the hub's repository {repository}, and no revision of it is known. The first "
        f"download records one for all hosts, but {problem}. Or name a commit of 40 hex digits: "
        f"model_weights_revisions: {{{repository}: COMMIT}}"
    )
