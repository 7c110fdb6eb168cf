# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a host's support bundle: the effects around `bundle`, and the only place where the doctor writes a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .._slot.words.redact import Redactor
from . import bundle, examine, host, registry, show


def make(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `archive` (bytes), `contents`, `redactions` and `findings` of this host, all redacted."""
    site = host.survey(settings, settings["manifests"])
    effects = host.DoctorHost(site)
    first = examine.collect(effects, [*bundle.secret_places(site), bundle.heads_of(site)], settings["limit"])
    redactor = Redactor.of(bundle.secrets_in(site, first), [*host.names_of_people(), *settings["people"]])
    listed = [*bundle.items(site), *bundle.checkouts(first.texts(bundle.heads_of(site)))]
    asked = [check for check in registry.CHECKS if not check.waived(site)]
    probes = [item.probe for item in listed] + [probe for check in asked for probe in check.probes(site)]
    answers = examine.collect(effects, probes, settings["limit"])
    findings = bundle.clean_data(redactor, examine.verdicts(site, registry.CHECKS, answers))
    held, rows = bundle.contents(listed, answers, redactor, settings["max_item_kib"] * 1024)
    told = {
        "doctor.json": json.dumps(findings, indent=1).encode(),
        "doctor.txt": "\n".join(show.table(findings, settings["name"])).encode() + b"\n",
    }
    return {
        "archive": bundle.archive(held, rows, told, settings["name"]),
        "contents": [vars(row) for row in rows],
        "redactions": dict(sorted(redactor.counts.items())),
        "findings": findings,
    }


def write(path: str, data: bytes) -> int:
    """Write the archive, readable only by its owner, and return its size in bytes."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        return stream.write(data)
