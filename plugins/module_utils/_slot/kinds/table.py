# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of engines that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kind import Kind
from .llama_server import LLAMA_SERVER
from .openai import OPENAI
from .vllm import VLLM

KINDS: dict[str, Kind] = {kind.name: kind for kind in (VLLM, LLAMA_SERVER, OPENAI)}
DEFAULT: Kind = VLLM  # of a profile that names none
_OTHER = Kind()


def kind_of_engine(engine: Mapping[str, Any]) -> Kind:
    """Return the kind of a profile's engine section, which need not name one."""
    return kind_of(str(engine.get("kind") or DEFAULT.name))


def kind_of(name: str) -> Kind:
    """Return the kind of this name; for another version's kind one with what every engine has."""
    return KINDS.get(name, _OTHER)
