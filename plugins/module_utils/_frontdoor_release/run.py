# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes the steps of a plan. What fails while a release is activated leads back to the one that served before."""

from __future__ import annotations

from . import plan
from .types import (
    UNIT,
    Await,
    Identity,
    LastRelease,
    Release,
    ReleaseEffects,
    ReleaseFault,
    ReleasePlan,
    Reload,
    RunCommand,
    Step,
)

AGAIN = "Put right what is named here, then run this again"


def carry_out(steps: ReleasePlan, effects: ReleaseEffects, release: Release | None = None) -> None:
    """Take all steps. Raise ReleaseFault with what went wrong and, for a release, with what serves now."""
    for step in steps.prepare:
        _take(step, effects)
    for step in steps.activate:
        try:
            _take(step, effects)
        except ReleaseFault as fault:
            if release is None:
                raise
            raise _taken_back(step, str(fault), effects, release) from None
    for step in steps.finish:
        _take(step, effects)


def _take(step: Step, effects: ReleaseEffects) -> None:
    try:
        effects.do(step)
    except ReleaseFault as fault:
        raise ReleaseFault(f"Could not {step.told}: {str(fault).strip().rstrip('.')}") from None


def _taken_back(step: Step, wrong: str, effects: ReleaseEffects, release: Release) -> ReleaseFault:
    """Go back to the previous release after a failed step, and return the failure to report."""
    # Otherwise it was not started yet.
    started = isinstance(step, RunCommand | Await | Reload) and UNIT in step.told
    journal = plan.redacted(effects.journal()) if started else []
    said = "Its journal ends with:\n" + "\n".join(journal) + "\n" if journal else ""
    kept = effects.kept(release.place)
    was = kept.identity
    if was is None or was == release.identity:
        why = (
            "no version before is known to have served here"
            if was is None
            else "what served last was this very version and configuration"
        )
        text = f"There is nothing to go back to: {why}. {AGAIN}; or have it no more: frontdoor_state=absent"
        return ReleaseFault(f"{wrong}. {said}{text}", {"journal": journal, "restored": False})
    problem = _restore(release, was, kept, effects)
    serves = effects.answers(was.url) == was.build
    outcome = "serves again" if serves else f"DOES NOT ANSWER at {was.url} either: see journalctl -u {UNIT}"
    put = f"was put back and {outcome}" if not problem else f"could not be put back ({problem}) and {outcome}"
    if problem and serves:
        put = f"could not be put back ({problem}) but still answers"
    text = f"What served before, {was.environment} with its configuration and unit, {put}. {AGAIN}"
    tried = f"the version that was tried stays in {release.identity.environment}"
    evidence = {"journal": journal, "restored": serves and not problem}
    return ReleaseFault(f"{wrong}. {said}{text}; {tried}", evidence)


def _restore(release: Release, was: Identity, kept: LastRelease, effects: ReleaseEffects) -> str:
    """Go back to the release before; returns what kept its files from being put back, else nothing.

    It is not started on files that are not its own. A unit that systemd refuses is no reason to stop: whether it
    serves is asked at the end.
    """
    for step in plan.way_back(release, was, kept):
        try:
            _take(step, effects)
        except ReleaseFault as fault:
            if not isinstance(step, RunCommand):
                return str(fault)
    # Whatever could not be written may have left it alone.
    if effects.answers(was.url) != was.build:
        for step in plan.start_again(release, was):
            try:
                _take(step, effects)
            except ReleaseFault:
                continue
    return ""
