# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._gpu_driver import PAIRS
from tools import pair_docs


def test_the_page_of_this_collection_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = pair_docs.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_every_pair_has_a_row() -> None:
    rows = pair_docs.tables().splitlines()
    for pair in PAIRS:
        assert [row for row in rows if row.startswith(f"| {pair.kernel} | {pair.guc} |") and pair.verdict in row], pair
