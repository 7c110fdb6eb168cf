# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done to requests, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

MODEL_POLICIES = ("pass", "rewrite", "reject")


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is done to requests; the state file's `request` sets it, the configuration where that is silent."""

    chat_template_kwargs: dict[str, Any] | None = None
    max_tokens_default: int | None = None
    max_tokens_cap: int | None = None
    sampling_defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    model_policy: str = "pass"
    model_aliases: tuple[str, ...] = ()
    #: where media may be fetched from; None where the profile does not say
    allowed_media_domains: tuple[str, ...] | None = None
