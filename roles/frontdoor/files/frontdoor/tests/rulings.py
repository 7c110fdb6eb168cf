# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules of one path say to one body."""

from __future__ import annotations

import json
from typing import Any

from frontdoor.config import Rules
from frontdoor.errors import Refusal
from frontdoor.policy.document import Document
from frontdoor.policy.editing import policies

CHAT = "/v1/chat/completions"
GENERATE = "/inference/v1/generate"
TEXT = {"modalities": ["text"], "served_model_name": "tiny-a"}
IMAGE = {"modalities": ["text", "image"], "served_model_name": "tiny-a"}


def apply(rules: Rules, body: str | bytes, path: str = CHAT, profile: dict[str, Any] | None = None) -> str | Refusal:
    body = body.encode() if isinstance(body, str) else body
    found = policies(rules, profile).get(path)
    result = body if found is None else found.apply(Document(body))
    return result if isinstance(result, Refusal) else result.decode("utf-8", "surrogateescape")


def check_sent(result: str | Refusal, body: str, expected: str) -> None:
    """The engine is sent what is expected: what need not change byte for byte, all else by its meaning."""
    assert isinstance(result, str)
    assert result == body if expected == body else json.loads(result) == json.loads(expected)
