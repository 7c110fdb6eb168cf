# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for known symptoms in an engine's log and in the kernel's: what they mean and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from . import kernel as kernel_log
from .first_error import first_error
from .kind import Kind, Symptom
from .known import KERNEL, LOST_CARD
from .table import DEFAULT

SYMPTOMS = DEFAULT.symptoms


@dataclass(frozen=True)
class Match:
    """line: where it was found. logged: that is a line of the engine's log or of the kernel's."""

    symptom: Symptom
    advice: str
    line: str
    logged: bool = True


def diagnose(
    lines: Iterable[str], said: Sequence[str] = (), kind: Kind = DEFAULT, kernel: Sequence[str] = ()
) -> Match | None:
    """Return the most telling known symptom; a harmless one only where there is no other.

    A card that the kernel declares lost explains everything. Then come what the engine says of a lost card, what began
    the failure (see `first_error`), the rest of the log with its newest line first, what the kernel says of a card, and
    at last what only names what ended.

    A line counts by what it begins to say, behind its prefixes: further on it may repeat what a client sent. What
    ends in quarantine is not believed of the process that listens to clients, however the line begins.

    :param said: what was found to be wrong, in words that are no lines of a log.
    :param kernel: the lines of the kernel's log that may explain it (see `kernel.about`).
    """
    log = list(lines)
    cause = first_error(log, kind)
    began = () if cause is None else cause.logged
    lost = [symptom for symptom in kind.symptoms if symptom.quarantines]
    clear = [symptom for symptom in kind.symptoms if not (symptom.vague or symptom.harmless)]
    vague = [symptom for symptom in kind.symptoms if symptom.vague]
    harmless = [symptom for symptom in kind.symptoms if symptom.harmless]
    found = chain(
        _lost(kernel),
        _found(lost, log, said, kind),
        _found(clear, began, (), kind, log),
        _found(clear, log, said, kind),
        _of_kernel(kernel),
        _found(vague, began, (), kind, log),
        _found(vague, log, said, kind),
        _found(harmless, log, said, kind),
    )
    return next(found, None)


def warnings(lines: Sequence[str], kind: Kind = DEFAULT) -> tuple[Match, ...]:
    """Return what the log of an engine that serves says against it, each symptom once."""
    found = _found([symptom for symptom in kind.symptoms if symptom.warns], lines, (), kind)
    return tuple({match.symptom.id: match for match in found}.values())


def _found(
    symptoms: Sequence[Symptom], lines: Sequence[str], said: Sequence[str], kind: Kind, log: Sequence[str] = ()
) -> Iterator[Match]:
    """Yield a match of each symptom that is found, in their order. log: all lines, where `lines` are some of them."""
    messages = [(line, kind.message_of(line), kind.by_clients(line)) for line in lines][::-1]
    whole = [kind.message_of(line) for line in log] if log else [message for _line, message, _doubtful in messages]
    for symptom in symptoms:
        if symptom.needs is not None and not any(map(symptom.needs.match, whole)):
            continue
        for line, message, doubtful in messages:
            found = None if symptom.quarantines and doubtful else symptom.pattern.match(message)
            if found is not None:
                yield _match(symptom, found, line)
                break
        else:
            for text in said:
                found = symptom.pattern.search(text)
                if found is not None:
                    yield _match(symptom, found, text, logged=False)
                    break


def _lost(kernel: Sequence[str]) -> Iterator[Match]:
    for fault in kernel_log.card_faults(kernel):
        if fault.lost:
            yield Match(LOST_CARD, LOST_CARD.advice, fault.line)


def _of_kernel(kernel: Sequence[str]) -> Iterator[Match]:
    for symptom in KERNEL:
        for line in kernel:
            found = symptom.pattern.match(kernel_log.message_of(line))
            if found is not None:
                yield _match(symptom, found, line)


def _match(symptom: Symptom, found: re.Match[str], line: str, *, logged: bool = True) -> Match:
    group = next((group for group in found.groups() if group), "").strip()
    # A match that may be empty stands in brackets.
    advice = symptom.advice if group else symptom.advice.replace(" ({1})", "")
    return Match(symptom, advice.replace("{1}", group), line, logged)
