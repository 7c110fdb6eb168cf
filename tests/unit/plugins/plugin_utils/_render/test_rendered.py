# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No profile renders to anything else by accident: one of each kind, to its last line."""

from __future__ import annotations

import pytest

from tools import rendered

NOW = rendered.texts()
MEANT = "when that is meant, run: python tests/tools/rendered.py"


def test_each_kind_has_a_file():
    assert sorted(NOW) == sorted(path.name for path in rendered.FOLDER.iterdir()), MEANT


@pytest.mark.parametrize("name", sorted(NOW))
def test_a_profile_renders_to_what_was_recorded(name):
    recorded = (rendered.FOLDER / name).read_text()
    assert NOW[name].splitlines() == recorded.splitlines(), MEANT
