# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of a stack's container image: in its registry, and on a host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOCAL = "localhost/b70"


def known_digest(image: Mapping[str, Any]) -> str:
    """Return the digest by which an image is pulled; empty if none is recorded."""
    return str(image.get("digest") or image.get("amd64") or "")


def tagged(image: Mapping[str, Any]) -> str:
    """Return name and tag of an image, under which its pin is kept."""
    return f"{image['name']}:{image['tag']}"


def source(image: Mapping[str, Any], pinned: str = "") -> str:
    """Return what is pulled from the registry: by digest if one is known or pinned, else by tag."""
    digest = known_digest(image) or pinned
    return f"{image['name']}@{digest}" if digest else tagged(image)


def known_as(image: Mapping[str, Any]) -> list[str]:
    """Return what reports may call an image: name and tag, digests, and the image that it was built on."""
    named = [tagged(image)] if {"name", "tag"} <= set(image) else []
    given = [image.get("digest"), image.get("amd64"), (image.get("inside") or {}).get("base")]
    return [*named, *(str(text) for text in given if text)]


def runtime_of(manifest: Mapping[str, Any]) -> str | None:
    """Return the version of the compute runtime in a stack's image; None if there is none, or nobody recorded it."""
    found = ((manifest.get("image") or {}).get("inside") or {}).get("compute-runtime")
    return str(found) if found else None


def is_own(image: Mapping[str, Any]) -> bool:
    """Return whether hosts give the image their own name: they build it, or its digest is only pinned."""
    return "debs" in image or not known_digest(image)


def reference(manifest: Mapping[str, Any], identity: str) -> str:
    """Return what a unit runs: the image by digest, or by the host's own name for it, which contains the stack's id."""
    image = manifest["image"]
    if not is_own(image):
        return source(image)
    name = manifest["name"]
    return f"{LOCAL}/{name}:{identity.removeprefix(f'{name}-')}"
