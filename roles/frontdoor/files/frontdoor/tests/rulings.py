# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules of one path say to one body."""

from __future__ import annotations

from typing import Any

from frontdoor.errors import Refusal
from frontdoor.policy.editing import policies
from frontdoor.policy.rules import Rules

CHAT = "/v1/chat/completions"
GENERATE = "/inference/v1/generate"
TEXT = {"modalities": ["text"], "served_model_name": "tiny-a"}
IMAGE = {"modalities": ["text", "image"], "served_model_name": "tiny-a"}


def apply(rules: Rules, body: str | bytes, path: str = CHAT, profile: dict[str, Any] | None = None) -> str | Refusal:
    body = body.encode() if isinstance(body, str) else body
    found = policies(rules, profile).get(path)
    result = (body,) if found is None else found.apply(body)
    return result if isinstance(result, Refusal) else b"".join(result).decode("utf-8", "surrogateescape")
