# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No body takes the frontdoor's time or memory by being looked through."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rulings import CHAT, TEXT, apply

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy import document
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies

INTRICATE = [
    *(b'"",', b"[],", b'{"a":1},', b"[" * 3, b"1,", b'"a","b",', b'"\\"",'),
    *(b'{"type":"x"},', b'{"content":[{"type":"text"}]},', b'["x"],', b'"' + b"x" * 300 + b'",'),
]
SETUPS = [(Rules(max_tokens_cap=10), None), (Rules(), TEXT), (Rules(max_tokens_cap=10, model_policy="reject"), TEXT)]


FEW = (b" ", b'\\"', b"\\\\", b"\xf0\x9f\x98\x80", b'"' + b"x" * 600 + b'",')


@pytest.mark.parametrize(("rules", "profile"), SETUPS)
@pytest.mark.parametrize("filler", [*INTRICATE, *FEW, b"9", b'{"a":', b'"', b":"])
def test_an_intricate_body_does_not_hold_up_everybody(
    filler: bytes, rules: Rules, profile: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    for name in ("loads", "dumps"):
        monkeypatch.setattr(document.orjson, name, counted(getattr(document.orjson, name), sizes))
    text = filler * ((3_000_000 if filler == b" " else 5_000_000) // len(filler))
    inside = b'"' + text + b'",' if filler in FEW[1:4] else text
    body = b'{"model":"tiny-a","messages":["image",' + inside + b'0],"max_tokens":5000}'
    result = policies(rules, profile)[CHAT].apply(Document(body))
    # few values of any length are passed over, at the speed of memory; many are not even begun
    if filler in FEW:
        assert not isinstance(result, Refusal)
        assert inside.strip() in result
        assert max(sizes) < 4_000_000
    else:
        assert isinstance(result, Refusal)
        assert (result.status, result.code) == (400, "body_too_intricate")
        assert not sizes


def counted(function: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    def call(content: Any) -> Any:
        sizes.append(len(content))
        return function(content)

    return call


@pytest.mark.interpreted
def test_a_member_that_stands_there_very_often_is_no_mistake() -> None:
    for name in ("model", "max_tokens"):
        refusal = apply(
            Rules(max_tokens_cap=9, model_policy="rewrite"), "{" + f'"{name}":9,' * 200 + '"a":1}', profile=TEXT
        )
        assert isinstance(refusal, Refusal)
        assert refusal.code == "ambiguous_json"


def test_an_intricate_body_takes_no_memory() -> None:
    program = """
from frontdoor.config import Rules
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies
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
    rules.apply(Document(body))
    print(memory("VmHWM:") - before)
    del body
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(document.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == 6
    # a string of many escapes is one value: it takes what a body takes, while it is read
    assert grown.pop(3) <= 60
    assert max(grown) <= 16
