# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded answers of a profile on one fingerprint, for cases that are compared with what was answered before. Pure.

A baseline is written when somebody asks for it and never by itself: a corrupt engine would record its own corruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..words.decode import decode_document
from ..words.types import Layout

SCHEMA = 1
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


def parse_baseline(text: str | None, where: str, profile: str) -> Baseline | None:
    """Return the baseline; None if there is no file. Raise SlotFault naming the file if it can't be read."""
    if text is None:
        return None
    return decode_document(Baseline, text, f"the baseline {where}", SCHEMA, how_to_record(profile))


def expected_of(
    baseline: Baseline | None, profile: str, fingerprint: str, case: str, request: str
) -> tuple[Recorded | None, str]:
    """Return the recorded answer of a case, else None with why the case can't be judged and what to do."""
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
