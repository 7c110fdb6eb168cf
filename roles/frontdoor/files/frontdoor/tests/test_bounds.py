# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No body takes the frontdoor's time or memory by being looked through."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rulings import CHAT, TEXT, apply

from frontdoor.errors import Refusal
from frontdoor.policy import editing as policy
from frontdoor.policy import splice
from frontdoor.policy.editing import policies
from frontdoor.policy.rules import Rules


class Counted:
    """A pattern that counts what is asked of it, and how much it looks at."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self.calls = self.bytes = 0

    def match(self, body: bytes, at: int, end: int = sys.maxsize) -> re.Match[bytes] | None:
        found = self._pattern.match(body, at, end)
        self.calls += 1
        self.bytes += found.end() - at if found else 0
        return found


INTRICATE = [
    *(b'"",', b"[],", b'{"a":1},', b"[" * 3, b"1,", b'"a","b",', b" ", b'"\\"",'),
    *(b'{"type":"x"},', b'{"content":[{"type":"text"}]},', b'["x"],', b'"' + b"x" * 300 + b'",'),
]
SETUPS = [(Rules(max_tokens_cap=10), None), (Rules(), TEXT), (Rules(max_tokens_cap=10, model_policy="reject"), TEXT)]


@pytest.mark.parametrize(("rules", "profile"), SETUPS)
@pytest.mark.parametrize("filler", [*INTRICATE, b'\\"', b"\\\\"])
def test_an_intricate_body_does_not_hold_up_everybody(
    filler: bytes, rules: Rules, profile: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    for name in ("_SPACE", "_SCALAR", "_PLAIN", "_ESCAPED"):
        counted.append(Counted(getattr(splice, name)))
        monkeypatch.setattr(splice, name, counted[-1])
    text = filler * (20_000_000 // len(filler))
    inside = b'"' + text + b'",' if filler.startswith(b"\\") else text
    body = b'{"model":"tiny-a","messages":["image",' + inside + b'0],"max_tokens":5000}'
    result = policies(rules, profile)[CHAT].apply(body)
    # so much is looked at, which takes about a tenth of a second; all of it would take several
    assert sum(one.calls for one in counted) < 450_000
    assert sum(one.bytes for one in counted) < 15_000_000
    if filler.startswith(b'"xxx'):
        assert not isinstance(result, Refusal)
    else:
        assert isinstance(result, Refusal)
        assert (result.status, result.code) == (400, "body_too_intricate")


def test_a_member_that_stands_there_very_often_is_no_mistake() -> None:
    for name in ("model", "max_tokens"):
        refusal = apply(
            Rules(max_tokens_cap=9, model_policy="rewrite"), "{" + f'"{name}":9,' * 200 + '"a":1}', profile=TEXT
        )
        assert isinstance(refusal, Refusal)
        assert refusal.code == "body_too_intricate"


def test_looking_for_images_takes_no_memory() -> None:
    program = """
from frontdoor.policy.editing import policies
from frontdoor.policy.rules import Rules
rules = policies(Rules(max_tokens_cap=9), {"modalities": ["text"]})["/v1/chat/completions"]
def memory(what):
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith(what))
for filler in (b"[],", b'"",', b'{"type":"x"},', b'\\\\"', b"1,", b'"max_tokens":9,'):
    content = filler * (20_000_000 // len(filler))
    if filler[:1] == b"\\\\":
        content = b'"' + content + b'",'
    body = b'{"messages":["image",' + content + b"0]}"
    if filler.startswith(b'"max'):
        body = b"{" + content + b'"image":0}'
    del content
    # the peak is to be that from now on
    open("/proc/self/clear_refs", "w").write("5")
    before = memory("VmRSS:")
    rules.apply(body)
    print(memory("VmHWM:") - before)
    del body
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(policy.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == 6
    assert max(grown) <= 16
