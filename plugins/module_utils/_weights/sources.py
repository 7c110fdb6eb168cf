# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of a model as plain data: which sources there are, and what is recorded of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _paths
from .manifest import WeightsError, at_revision

# The kinds of source, and the keys that a source of that kind may have beside its own.
KINDS: dict[str, frozenset[str]] = {
    "path": frozenset(),
    "host_path": frozenset(),
    "url": frozenset({"manifest_sha256"}),
    "hub": frozenset({"revision", "include", "exclude", "sha256", "size_gb", "profile", "manifest_sha256"}),
}
# The way in which the host fetches: the module's option of that name, as Ansible declares it.
OPTIONS: dict[str, dict[str, Any]] = {
    "endpoint": {"type": "str", "default": "https://huggingface.co"},
    "mirror": {"type": "str", "default": ""},
    "keyring": {"type": "path", "default": _paths.MIRROR_KEYRING},
    "accept_unsigned": {"type": "bool", "default": False},
    "exclude": {"type": "list", "elements": "str", "default": []},
    "xet": {"type": "bool", "default": False},
    "stall_s": {"type": "float", "default": 60},
    "attempts": {"type": "int", "default": 5},
    "workers": {"type": "int", "default": 4},
    "limit_s": {"type": "int", "default": 86400},
    "user": {"type": "str", "default": "root"},
    "hub_python": {"type": "path", "default": f"{_paths.HUB_DIR}/venv/bin/python"},
    "environment": {"type": "dict", "default": {}},
}
# The way in which hosts give models to each other.
PEERS: dict[str, dict[str, Any]] = {
    "network": {"type": "str", "default": ""},
    "port": {"type": "int", "default": 18090},
    "rate": {"type": "str", "default": ""},
}
STEPS = ("bring", "find", "share", "serve", "round", "close", "remove")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+")


def kind_of(name: str, source: Any) -> str:
    """Return the kind of a model's source; raise WeightsError with what is accepted."""
    kinds = [kind for kind in KINDS if isinstance(source, Mapping) and kind in source]
    if len(kinds) != 1 or not isinstance(source[kinds[0]], str):
        raise WeightsError(f"the source of model {name} must be a dictionary with exactly one of: {', '.join(KINDS)}")
    kind = kinds[0]
    unknown = sorted(set(source) - {kind} - KINDS[kind])
    if unknown:
        allowed = ", ".join(sorted({kind} | KINDS[kind]))
        raise WeightsError(f"the source of model {name} has {', '.join(unknown)}; with {kind} there may be: {allowed}")
    if kind == "hub" and not REPOSITORY.fullmatch(source["hub"]):
        raise WeightsError(f"hub of model {name} must be OWNER/NAME as the hub spells it, not {source['hub']!r}")
    if kind == "url" and not re.match(r"https?://[^/]", source["url"]):
        raise WeightsError(f"url of model {name} must begin with http:// or https://, not {source['url']!r}")
    if kind == "host_path" and not source["host_path"].startswith("/"):
        raise WeightsError(f"host_path of model {name} must be absolute, not {source['host_path']!r}")
    return kind


def identity(name: str, source: Mapping[str, Any], excluded: Iterable[str] = ()) -> dict[str, Any]:
    """Return what is recorded beside the files. While it is the same, the files are the wanted ones."""
    kind = kind_of(name, source)
    if kind == "path":
        return {"kind": "path"}
    if kind == "host_path":
        return {"kind": "host_path", "path": source["host_path"].rstrip("/")}
    if kind == "url":
        return {"kind": "url", "url": source["url"].rstrip("/"), "manifest_sha256": source.get("manifest_sha256")}
    return {
        "kind": "hub",
        "repository": source["hub"],
        "revision": source.get("revision"),
        "include": sorted(source.get("include") or []),
        "exclude": sorted(source.get("exclude", excluded)),
    }


def same(recorded: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Return whether files from ``recorded`` are those of ``wanted``, which may leave values open.

    Where only some files are wanted, there may be more of them: an engine loads the one that its profile names.
    """
    if recorded is None:
        return False
    return all(
        value is None
        or recorded.get(key) == value
        or (key == "include" and value and set(value) <= set(recorded.get(key) or ()))
        for key, value in wanted.items()
    )


def specification(name: str, source: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of the program on the host. A mirror may stand in for the hub; it must have the same files."""
    known = identity(name, source, options["exclude"])
    limits = {"stall_s": options["stall_s"], "attempts": options["attempts"]}
    digests = {"sha256": source.get("sha256") or {}}
    proof = {"keyring": options["keyring"], "accept_unsigned": options["accept_unsigned"]}
    kind = known.pop("kind")
    if kind == "hub" and options["mirror"]:
        proof["manifest_sha256"] = source.get("manifest_sha256")
        url = f"{options['mirror'].rstrip('/')}/{at_revision(name, known['revision'])}"
        return {"kind": "url", "url": url, "expect": known, **proof, **digests, **limits}
    if kind == "hub":
        return {"kind": "hub", **known, **digests, "endpoint": options["endpoint"], "xet": options["xet"], **limits}
    return {"kind": kind, **known, **(proof if kind == "url" else {}), **limits}


def from_peers(
    source: Mapping[str, Any],
    options: Mapping[str, Any],
    peers: Iterable[Mapping[str, str]],
    record: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the task of the program that takes a model from other hosts: ``record`` says what it must get."""
    return {
        "kind": "peers",
        "peers": [dict(peer) for peer in peers],
        "record": dict(record),
        "rate": options["rate"],
        "sha256": source.get("sha256") or {},
        "stall_s": options["stall_s"],
        "attempts": options["attempts"],
    }


def in_words(source: Mapping[str, Any]) -> str:
    """Return an identity in words."""
    if source["kind"] == "hub":
        revision = source.get("revision")
        return f"{source['repository']} at {revision[:12]}" if revision else str(source["repository"])
    return str(source.get("url") or source.get("path") or "the controller")
