# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two states a host may be in, asserted from outside.

A verified model is served, or nothing is and clients are told why.
"""

from __future__ import annotations

from typing import Any

from machine import wait_for
from scenarios.recording import Answer, ask, status
from scenarios.rig import Facts, Rig, names_of


def assert_serves(rig: Rig, *profiles: str) -> str:
    """Assert that one of these profiles is served, verified, by the one engine there is, and boots. Return which."""
    told, state = status(rig), rig.state()
    facts = rig.facts()
    assert (told["open"], told["verified"], told["phase"]) == (True, True, "serving"), told
    name = str(told["model_slot"]["name"])
    assert name in profiles, f"{name} is served, wanted {' or '.join(profiles)}: {told}"
    assert names_of(facts.running) == [name], facts
    assert len(facts.engines) == 1, facts
    assert facts.invocation == state["engine"]["invocation_id"], (facts, state)
    assert names_of(facts.enabled) == [name], f"{name} is verified, but what boots is {facts.enabled}"
    answer = ask(rig.address, stream=False)
    assert (answer.status, answer.text) == (200, f"I am {name}."), answer
    assert answer.stamp.split(" ")[1] == facts.invocation, (answer, facts)
    assert_journal_closed(rig)
    return name


def wait_served(rig: Rig, before: str) -> None:
    """Wait until another process than the invocation `before` is served, verified.

    Until then the state file still says what was served last.
    """

    def again() -> bool:
        state = rig.state()
        return bool(state.get("open")) and state["engine"]["invocation_id"] not in ("", before)

    wait_for(lambda: again() and status(rig)["open"], "it is served again")
    rig.wait_settled()


def loading(rig: Rig) -> bool:
    """Does the new engine run, and not answer yet?"""
    return bool((rig.state().get("switch") or {}).get("loading"))


def assert_stopped(rig: Rig, *reasons: str) -> None:
    """Assert that nothing runs, nothing boots, and that a client is told why in these words."""

    def at_rest() -> tuple[dict[str, Any], Facts, Answer] | None:
        """Look at everything between two tries of the controller: each begins with another state."""
        rig.wait_settled()
        before = rig.state().get("sequence")
        seen = status(rig), rig.facts(), ask(rig.address, stream=False)
        return seen if rig.state().get("sequence") == before else None

    looked = wait_for(at_rest, "the controller pauses while the slot is looked at")
    assert looked is not None
    told, facts, answer = looked
    assert (told["open"], told["verified"]) == (False, False), told
    assert told["phase"] in ("stopped", "failed"), told
    assert (facts.running, facts.engines) == ((), ()), facts
    # What was committed boots, and is tried again whatever boots.
    assert not facts.enabled or names_of(facts.enabled) == [rig.wanted()], f"{facts.enabled} boots"
    assert answer.status == 503, answer
    assert int(answer.retry_after) > 0, answer
    for reason in reasons:
        assert reason in answer.error, f"a client is not told {reason!r}: {answer.error}"
        assert reason in told["reason"], told
    assert_journal_closed(rig)


def assert_journal_closed(rig: Rig) -> None:
    """Assert that every attempt in the journal has come to its end, once."""
    assert rig.attempts_open() == []
    ended = [record["id"] for record in rig.journal() if record["event"] == "end"]
    assert len(ended) == len(set(ended)), ended
