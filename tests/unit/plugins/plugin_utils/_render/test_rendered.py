# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No profile of the catalogue renders to anything else by accident. The digests of units, environments and fingerprints
are those of before there were kinds of engines; those of profiles are newer: the keys accuracy, same_answers_as and
liveness were added."""

from __future__ import annotations

import json

import pytest

from tools import rendered

RECORDED = json.loads(rendered.FILE.read_text())
NOW = rendered.digests()


def test_every_profile_is_recorded():
    assert sorted(RECORDED) == sorted(NOW), "when that is meant, run: python tests/tools/rendered.py"


@pytest.mark.parametrize("name", sorted(RECORDED.keys() & NOW.keys()))
def test_a_profile_renders_to_what_was_recorded(name):
    assert RECORDED[name] == NOW[name], "when that is meant, run: python tests/tools/rendered.py"
