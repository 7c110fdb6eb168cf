# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No example of hypothesis fails because a machine is slow, and every state that a test feeds is held to its schema."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
from compiled import source
from hypothesis import HealthCheck, settings
from referencing import Registry, Resource

# before anything imports it
sys.path.insert(0, str(source()))

from frontdoor.config import Config
from frontdoor.slot import state

# The same examples in each run, or new ones: --hypothesis-profile=fresh.
for name, derandomize in (("fixed", True), ("fresh", False)):
    settings.register_profile(
        name, derandomize=derandomize, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("fixed")

SCHEMA = Path(__file__).parents[4] / "slot/files/schema/state.schema.json"
FILES: Registry[Any] = Registry(
    retrieve=lambda uri: Resource.from_contents(json.loads(Path(urlsplit(uri).path).read_text()))
)
VALIDATOR = jsonschema.Draft202012Validator({"$id": SCHEMA.as_uri(), **json.loads(SCHEMA.read_text())}, registry=FILES)
# Tests feed nonsense here on purpose: it does not decide whether clients are served.
TOLERATED = "$.updated_at"
_parse = state.parse


def parse(raw: bytes, config: Config) -> state.SlotState:
    """Parse as the frontdoor does. What it refuses breaks the schema, and what it takes keeps to it."""
    try:
        found = _parse(raw, config)
    except state.StateError:
        with contextlib.suppress(ValueError):
            assert not VALIDATOR.is_valid(json.loads(raw)), raw
        raise
    faults = VALIDATOR.iter_errors(json.loads(raw))
    assert not [fault for fault in faults if fault.json_path != TOLERATED]
    return found


state.parse = parse
