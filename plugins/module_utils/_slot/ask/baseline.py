# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded answers of a profile on one fingerprint, for cases that are compared with what was answered before. Pure.

A baseline is written when somebody asks for it and never by itself: a corrupt engine would record its own corruption.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..words.types import Layout, SlotFault

SCHEMA = 1
SHOWN = 200  # characters of an answer that are kept beside its hash
RECORD = "record one with `b70ctl record PROFILE` on this host"


def how_to_record(profile: str) -> str:
    return f"record one with `b70ctl record {profile}` on this host, when its answers are known to be sound"


@dataclass(frozen=True)
class Recorded:
    """One answer. request: hash of what was asked, so that a changed question is not judged by an old answer."""

    sha256: str
    text: str
    request: str


@dataclass(frozen=True)
class Baseline:
    profile: str
    fingerprint: str
    recorded_at: str
    who: str
    cases: Mapping[str, Recorded]


def baseline_file(layout: Layout, profile: str) -> PurePosixPath:
    return layout.evidence_dir / "baselines" / f"{profile}.json"


def baseline_text(baseline: Baseline) -> str:
    document = {
        "schema": SCHEMA,
        "profile": baseline.profile,
        "fingerprint": baseline.fingerprint,
        "recorded_at": baseline.recorded_at,
        "who": baseline.who,
        "cases": {
            name: {"sha256": case.sha256, "text": case.text[:SHOWN], "request": case.request}
            for name, case in baseline.cases.items()
        },
    }
    return json.dumps(document, indent=2) + "\n"


def parse_baseline(text: str | None, where: str, profile: str) -> Baseline | None:
    """The baseline, or None where there is no file. Raises SlotFault that names the file when it can't be read."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, this version reads {SCHEMA}")
        return Baseline(
            profile=str(data["profile"]),
            fingerprint=str(data["fingerprint"]),
            recorded_at=str(data["recorded_at"]),
            who=str(data["who"]),
            cases={
                str(name): Recorded(str(case["sha256"]), str(case["text"]), str(case["request"]))
                for name, case in data["cases"].items()
            },
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise SlotFault(f"the baseline {where} can't be read ({problem}); {how_to_record(profile)}") from error


def expected_of(
    baseline: Baseline | None, profile: str, fingerprint: str, case: str, request: str
) -> tuple[Recorded | None, str]:
    """(what was recorded for the case, "") or (None, why it can't be judged and what to do)."""
    hint = how_to_record(profile)
    if baseline is None:
        return None, f"no baseline is recorded; {hint}"
    when = f"the baseline of {baseline.recorded_at} by {baseline.who}"
    if baseline.fingerprint != fingerprint:
        return None, (
            f"{when} is of another fingerprint ({baseline.fingerprint[:19]}, this is {fingerprint[:19]}): "
            f"what can change tokens has changed; {hint}"
        )
    recorded = baseline.cases.get(case)
    if recorded is None:
        return None, f"{when} does not hold this case; {hint}"
    if recorded.request != request:
        return None, f"{when} holds another question under this name; {hint}"
    return recorded, ""
