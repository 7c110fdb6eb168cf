# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schemas of the files that several programs of a host share."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import inlined

SCHEMAS = [Path(__file__).parents[2] / f"roles/{role}/files/schema" for role in ("slot", "evidence")]


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema called ``state``, ``journal``, ``resolved-profile``, ``record`` or ``index``."""
    return inlined(next(file for folder in SCHEMAS for file in folder.glob(f"{name}.schema.json")))


@functools.cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return a compiled validator: the tests that kill a switch everywhere check some ten thousand files."""
    return jsonschema_rs.Draft202012Validator(schema(name))


class ContractBroken(BaseException):
    """A file that is written breaks its schema. No handler of exceptions takes this for trouble with the host."""


def check(name: str, text: str) -> None:
    """Raise ContractBroken when the JSON text breaks the schema of that name."""
    for fault in validator(name).iter_errors(json.loads(text)):
        raise ContractBroken(f"{name}: {fault.instance_path}: {fault.message}")
