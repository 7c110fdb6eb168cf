# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told while a slot changes what it serves: the truth, and always from where to where."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from kit import changed_state

from frontdoor import errors
from frontdoor.config import from_table
from frontdoor.slot.state import SlotState, StateError, epoch, fallback, parse

CONFIG = from_table({})
MOVE = {"from": "tiny-a", "to": "tiny-b", "started_at": "2026-06-07T09:08:44Z", "eta_s": 40, "loading": False}


def closed(phase: str, **switch: Any) -> dict[str, Any]:
    """(code, message, switch) of what is refused meanwhile."""
    state: SlotState = dataclasses.replace(
        fallback(CONFIG, is_open=False, reason=""), phase=phase, switch={**MOVE, **switch}, retry_after_s=40
    )
    refusal = errors.closed(state, epoch(state.updated_at))  # the clock may have struck the next second since
    assert refusal.details is not None
    assert refusal.code == refusal.details["phase"] == phase
    return {"message": refusal.message, "switch": refusal.details["switch"], "after": refusal.retry_after_s}


@pytest.mark.parametrize(
    ("phase", "switch", "message"),
    [
        ("switching", {}, "the model slot is switching from tiny-a to tiny-b"),
        ("switching", {"from": None}, "the model slot is switching from nothing to tiny-b"),
        ("switching", {"to": None}, "the model slot is switching from tiny-a to nothing"),
        ("switching", {"from": "tiny-b"}, "the model slot is starting tiny-b anew"),
        (
            "switching",
            {"loading": True},
            "the model slot is loading tiny-b in the place of tiny-a, about 40 s are left",
        ),
        ("switching", {"loading": True, "from": "tiny-b"}, "the model slot is loading tiny-b, about 40 s are left"),
        ("switching", {"loading": True, "from": None, "eta_s": None}, "the model slot is loading tiny-b"),
        ("verifying", {}, "tiny-b is loaded and is being verified"),
    ],
)
def test_what_a_client_is_told(phase: str, switch: dict[str, Any], message: str) -> None:
    told = closed(phase, **switch)
    assert told["message"] == message
    assert set(told["switch"]) == {"from", "to", "started_at", "eta_s"}
    assert (told["switch"]["from"], told["switch"]["to"]) == tuple({**MOVE, **switch}[name] for name in ("from", "to"))
    assert told["after"] == 40


def test_a_switch_that_does_not_know_whether_it_loads_is_refused() -> None:
    raw = json.dumps(changed_state("http://h:1", {"phase": "switching", "switch": {"loading": "yes"}})).encode()
    with pytest.raises(StateError, match=r"switch\.loading: expected bool"):
        parse(raw, CONFIG)
