# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a failure that everybody may read: fixed words per phase and symptom. Pure.

The failure itself quotes logs, answers and other people's command lines. It stands in the journal, in the play's result
and in what b70ctl prints; the frontdoor shows what stands here to whoever asks it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kinds.known import KERNEL
from ..kinds.table import KINDS
from ..words.types import Failure, Phase

_MEANING = {
    symptom.id: symptom.meaning
    for symptoms in (KERNEL, *(kind.symptoms for kind in KINDS.values()))
    for symptom in symptoms
}
_WENT_WRONG = {
    Phase.LOCK: "another switch held the slot's lock",
    Phase.RESOLVE: "what the slot is to serve could not be settled",
    Phase.GUARD: "something that a switch needs was missing or taken",
    Phase.JOURNAL: "the journal could not be written to",
    Phase.PREPARE: "the preparation was interrupted",
    Phase.CLEAR: "another slot did not free its cards",
    Phase.CLOSE: "the frontdoor was not closed in time",
    Phase.DRAIN: "the engine could not be taken out of what starts at boot",
    Phase.STOP: "the engine did not stop",
    Phase.RELEASE: "the port or a card was not let go of",
    Phase.START: "the engine could not be started",
    Phase.ALIVE: "the engine's process did not come up",
    Phase.HEALTH: "the engine did not become ready",
    Phase.IDENTITY: "the engine does not serve what was rendered",
    Phase.FIRST_TOKEN: "the engine gave no first token",
    Phase.WARM_UP: "a request of the warm-up failed or was not answered in time",
    Phase.CANARY: "a canary answer was wrong or missing",
    Phase.OPEN: "the frontdoor could not be opened",
    Phase.ENABLE: "what starts at boot could not be changed",
    Phase.COMMIT: "the end of the switch could not be recorded",
    Phase.RESTORE: "what was served before could not be opened again",
}


def reason_of(failures: Sequence[Failure]) -> str:
    """Return the failures in one line without its full stop; empty where there are none."""
    return "; then ".join(_reason(failure) for failure in failures)


def _reason(failure: Failure) -> str:
    wrong = "the switch was told to end" if failure.told else _WENT_WRONG[failure.phase]
    meaning = _MEANING.get(failure.symptom or "", "")
    return f"{failure.place}: {wrong}{f': {meaning}' if meaning else ''}"
