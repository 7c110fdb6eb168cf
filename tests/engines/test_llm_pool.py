# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the request types of each pinned release make of llm-pool's fields, as the frontdoor translates them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from frontdoor.errors import Refusal
from frontdoor.policy.dialect import of_before
from frontdoor.policy.llm_pool import Served, thinking_kwargs, translate
from tools import engines

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SCRIPT = """
import json, sys
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

answers = []
for path, body in json.load(sys.stdin):
    request = (ChatCompletionRequest if path.endswith("completions") else ResponsesRequest)(**body)
    # a chat is told the length that its server found in the request
    wanted = request.to_sampling_params(getattr(request, "max_tokens", None) or 4096, {})
    arguments = request.build_chat_params(None, "auto").chat_template_kwargs
    names = ("temperature", "top_p", "top_k", "repetition_penalty", "max_tokens", "stop")
    sampling = {name: getattr(wanted, name) for name in names}
    # what the release does not know, it keeps and ignores
    extra = sorted(request.model_extra or {})
    answers.append({"ignored": extra, "sampling": sampling, "thinks": arguments.get("enable_thinking")})
print("answers " + json.dumps(answers))
"""
DECODING = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.25, "max_tokens": 9, "stop": ["END"]}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
REASONING = {"how": "disabled", "template_kwargs": {"enable_thinking": False}}


def asked(version: str, questions: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a release reads in these bodies."""
    engines.prepare()
    path = os.pathsep.join(str(engines.PLACE / name) for name in (version, "gguf"))
    done = subprocess.run(
        [str(engines.PLACE / "base" / "bin" / "python"), "-B", "-c", SCRIPT],
        input=json.dumps(questions),
        env={**os.environ, "PYTHONPATH": path, "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=engines.LIMIT_S,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("answers ")] or [done.stderr[-3000:]]
    answers: list[dict[str, Any]] = json.loads(line.removeprefix("answers "))
    return answers


@pytest.mark.parametrize("version", engines.VERSIONS)
def test_a_release_ignores_nothing_that_is_translated(version: str) -> None:
    served = Served("tiny-a", of_before("vllm", version), thinking_kwargs(REASONING))
    fields = {"model": "tiny-a", "decoding": DECODING, "fairness_key": "k", "allow_remote": True, "metrics": True}
    bodies = [
        (CHAT, {**fields, "messages": TURNS, "thinking": "enabled"}),
        (RESPONSES, {**fields, "messages": TURNS, "response_format": FORMAT, "reasoning_effort": "low"}),
        (RESPONSES, {**fields, "input": TURNS[0]["content"], "thinking": "enabled"}),
    ]
    translated = [(path, translate(path, body, served)) for path, body in bodies]
    reads = tuple(int(part) for part in version.split(".")[:2]) >= (0, 30)
    assert isinstance(translated[2][1], Refusal) is not reads
    questions = [(path, one.content) for path, one in translated if not isinstance(one, Refusal)]
    # a release that reads no such arguments in responses says so itself
    raw = (RESPONSES, {"input": "x", "chat_template_kwargs": {"enable_thinking": True}})
    *answers, last = asked(version, [*questions, raw])
    assert [answer["ignored"] for answer in answers] == [[]] * len(questions)
    assert [answer["sampling"] for answer in answers] == [DECODING] * len(questions)
    assert answers[0]["thinks"] is True
    assert (last["ignored"] == [], last["thinks"] is True) == (reads, reads)
