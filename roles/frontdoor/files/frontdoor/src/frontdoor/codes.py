# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The codes that clients may be told, as codes.toml lists them, and the types that go with statuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Code(NamedTuple):
    """No status means that it only comes in a stream that was begun. `admin`: of the administration alone."""

    statuses: tuple[int, ...]
    means: str
    then: str
    admin: bool = False


CODES = {
    name: Code(**{**row, "statuses": tuple(row["statuses"])})
    for name, row in tomllib.loads(Path(__file__).with_name("codes.toml").read_text()).items()
}


def _of(*statuses: int) -> tuple[str, ...]:
    return tuple(name for name, code in CODES.items() if set(code.statuses) & set(statuses))


# by what they say about whom, as the metrics count them
TURNED_AWAY_CODES = _of(503)
# also of streams that were begun, and answers of the engine's own that say that it failed
ENGINE_CODES = (*_of(502, 504), "upstream_cut", "upstream_timeout", "http_500")
OTHER_CODES = tuple(name for name in CODES if name not in TURNED_AWAY_CODES + ENGINE_CODES and CODES[name].statuses)

_TYPES = {
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("invalid_request_error", "not_found_error"),
    408: ("timeout_error", "invalid_request_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    502: ("upstream_error", "api_error"),
    503: ("service_unavailable", "overloaded_error"),
    504: ("timeout_error", "timeout_error"),
}


def types_of(status: int) -> tuple[str, str]:
    """Return the `type` of an error with this status, as OpenAI and as Anthropic call it."""
    return _TYPES.get(status, ("invalid_request_error", "invalid_request_error" if status < 500 else "api_error"))
