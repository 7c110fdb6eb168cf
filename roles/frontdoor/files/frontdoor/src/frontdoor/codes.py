# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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

# The `type` of an error, by its status; other 4xx are invalid_request_error.
OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "service_unavailable",
    504: "timeout_error",
}
# all else is api_error
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
