# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Token counts that the engine reports at the end of an answer."""

from __future__ import annotations

import re

#: how a report begins
REPORT = b'"usage":'
# a report stands near the end; further back is text of the model, which must not be taken for one
KEPT = 4096
_COUNT = re.compile(rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')
_PROMPT = (b"prompt_tokens", b"input_tokens")


def rolled(tail: bytes, data: bytes) -> bytes:
    """The last bytes of an answer when more of it came."""
    return data if len(data) >= KEPT else (tail + data)[-KEPT:]


def usage(tail: bytes) -> tuple[int, int] | None:
    """Return (prompt tokens, generated tokens) from the last bytes of an answer, or None where there is no report."""
    at = tail.rfind(REPORT, -KEPT)
    if at < 0:
        return None
    prompt = completion = None
    for name, number in _COUNT.findall(tail, at):
        if name in _PROMPT:
            prompt = int(number) if prompt is None else prompt
        else:
            completion = int(number) if completion is None else completion
    return None if prompt is None and completion is None else (prompt or 0, completion or 0)
