# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for known signatures in engine logs: what they mean and what to do. Pure.

They are data of each kind of engine, ordered by how much they explain: the first that is found is the one that is
named. `{1}` in an advice is what the first group of the pattern found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .kind import Kind, Symptom
from .table import DEFAULT

SYMPTOMS = DEFAULT.symptoms


@dataclass(frozen=True)
class Match:
    """line: where it was found. logged: that is a line of the engine's log."""

    symptom: Symptom
    advice: str
    line: str
    logged: bool = True


def diagnose(lines: Iterable[str], said: Sequence[str] = (), kind: Kind = DEFAULT) -> Match | None:
    """The most telling known symptom in an engine's log, newest line first; a harmless one only where there is no
    other. said: what was found to be wrong, in words that are no lines of a log.

    A line counts by what it begins to say, behind its prefixes: further on it may repeat what a client sent. What
    ends in quarantine is not believed of the process that listens to clients, however the line begins.
    """
    newest_first = [(line, kind.message_of(line), kind.by_clients(line)) for line in lines][::-1]
    for symptom in kind.symptoms:
        for line, message, doubtful in newest_first:
            found = None if symptom.quarantines and doubtful else symptom.pattern.match(message)
            if found is not None:
                return Match(symptom, symptom.advice.replace("{1}", _group(found)), line)
        for text in said:
            found = symptom.pattern.search(text)
            if found is not None:
                return Match(symptom, symptom.advice.replace("{1}", _group(found)), text, logged=False)
    return None


def _group(found: re.Match[str]) -> str:
    return next((group for group in found.groups() if group), "").strip()
