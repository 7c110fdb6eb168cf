# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stream says: the first text, the tokens, and what came instead."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.streams import Generated, figures, generated
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply

CAPTURED = Path(__file__).parent / "captured"


def event(delta: dict[str, Any] | None = None, **more: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]
    data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "a", "choices": choices}
    return f"data: {json.dumps({**data, **more})}\n\n"


ROLE = event({"role": "assistant", "content": ""})
DONE = "data: [DONE]\n\n"


def usage(tokens: int, prompt: int = 100) -> str:
    counted = {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}
    return event(usage=counted)


def arriving(*parts: str) -> Reply:
    """A reply whose parts come at 1 s, 2 s and so on."""
    sizes = accumulate(len(part.encode()) for part in parts)
    return Reply(200, "".join(parts), arrivals=tuple((float(second), size) for second, size in enumerate(sizes, 1)))


def streamed(prompt: int, tokens: int) -> Reply:
    return arriving(
        ROLE, *(event({"content": " word"}) for _token in range(min(tokens, 2))), usage(tokens, prompt), DONE
    )


@pytest.mark.parametrize(
    ("parts", "first"),
    [
        ((ROLE, event({"content": "Once"}), event({"content": " upon"}), usage(2), DONE), 2.0),
        ((ROLE, event({"content": None, "reasoning_content": "Hm"}), event({"content": "Once"}), usage(2), DONE), 2.0),
        ((ROLE, event({"reasoning": "Hm"}), usage(1), DONE), 2.0),
        # A line that is cut, and characters of several bytes.
        ((ROLE + event({"content": "ä\u2028ö"})[:40], event({"content": "ä\u2028ö"})[40:], usage(2) + DONE), 2.0),
        ((ROLE + event({"content": "Once"}) + usage(2) + DONE,), 1.0),
        ((ROLE, usage(2), DONE), None),
    ],
)
def test_the_first_token_is_the_first_text_that_is_not_empty(parts: tuple[str, ...], first: float | None) -> None:
    found = generated(arriving(*parts))
    assert (found.prompt_tokens, found.first_s) == (100, first)
    assert found.output_tokens > 0


@pytest.mark.parametrize(
    ("name", "found", "texts"),
    [("chat", Generated(17, 7, 2.0), 6), ("completion", Generated(16, 4, 1.0), 3)],
)
def test_a_stream_of_vllm_is_understood(name: str, found: Generated, texts: int) -> None:
    whole = (CAPTURED / f"vllm-0.32.0-{name}.txt").read_text()
    parts = [f"{part}\n\n" for part in whole.split("\n\n") if part]
    assert generated(arriving(*parts)) == found
    silent = [part for part in parts if '"content":"' not in part and '"text":"' not in part]
    assert generated(arriving(*silent)).first_s is None
    assert len(parts) - len(silent) >= texts


def test_a_completion_has_its_text_elsewhere() -> None:
    text = "data: " + json.dumps({"object": "text_completion", "choices": [{"index": 0, "text": "Once"}]}) + "\n\n"
    assert generated(arriving(text, usage(1), DONE)) == Generated(100, 1, 1.0)


ERROR = (
    'data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}\n\n'
)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(0, error="timeout"), "timeout"),
        (Reply(503, "full"), "503 full"),
        (Reply(200, ""), "200 "),
        (arriving(ROLE, ERROR, DONE), "200 .*EngineCore encountered an issue"),
        (arriving(ROLE, usage(0), DONE), '200 .*"completion_tokens": 0'),
        (arriving(ROLE, event({"content": "Once"})), "200 .*Once"),
        (Reply(200, "[]"), r"200 \[\]"),
    ],
)
def test_what_is_no_generation_is_said(reply: Reply, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        generated(reply)


def test_the_figures_are_those_of_all_answers() -> None:
    late = arriving(ROLE, "", event({"content": "Once"}), usage(512), DONE)
    assert figures([(streamed(100, 512), 5.0), (late, 5.2)], 5.25) == {
        "requests": 2,
        "failed": 0,
        "error": "",
        "prompt_tokens": 200,
        "output_tokens": 1024,
        "mean_ttft_s": 2.5,
        "wall_s": 5.25,
        "tok_s": 195.05,
        "slowest_s": 5.2,
    }


def test_an_answer_without_tokens_has_failed() -> None:
    found = figures([(streamed(100, 512), 5.0), (Reply(0, error="timeout"), 1.0)], 5.0)
    assert (found["failed"], found["error"], found["output_tokens"]) == (1, "timeout", 512)
    nothing = figures([(Reply(0, error="timeout"), 1.0)], 1.0)
    assert (nothing["slowest_s"], nothing["mean_ttft_s"]) == (None, None)
