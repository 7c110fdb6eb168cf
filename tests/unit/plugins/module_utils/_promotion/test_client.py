# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stream as it comes: the first text is the first that is not empty, whatever came before it."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._promotion import client

CAPTURED = Path(__file__).parents[1] / "_evidence/captured/vllm-0.32.0-completion.txt"
EMPTY = b'data: {"choices": [{"index": 0, "text": "", "logprobs": null, "finish_reason": null}]}\n\n'


@pytest.mark.parametrize(("before", "first_s"), [(b"", 0.0), (EMPTY, 2.0)])
def test_the_first_token_is_the_first_text_that_is_not_empty(
    monkeypatch: pytest.MonkeyPatch, before: bytes, first_s: float
) -> None:
    """As in the other figures of streams; that a generation has begun is told by any piece of it."""
    now = 0.0

    def lines() -> Iterator[bytes]:
        """One line each second."""
        nonlocal now
        for second, line in enumerate(io.BytesIO(before + CAPTURED.read_bytes())):
            now = float(second)
            yield line

    monkeypatch.setattr(time, "monotonic", lambda: now)
    job = client._Job(client.Client("http://127.0.0.1"), "/v1/completions", {})
    job._read(lines())  # type: ignore[arg-type]
    assert (job.stream.first_s, job.stream.error) == (first_s, "")
    assert job.stream.text
    assert job.stream.completion_tokens


def test_an_empty_piece_shows_that_a_generation_has_begun() -> None:
    job = client._Job(client.Client("http://127.0.0.1"), "/v1/completions", {})
    job._read(io.BytesIO(EMPTY))  # type: ignore[arg-type]
    assert job.begun.is_set()
    assert (job.stream.first_s, job.stream.last_s) == (None, None)
