# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS
from tools import doctor_docs


def test_the_page_of_this_collection_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = doctor_docs.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_the_table_is_written_between_the_comments_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / doctor_docs.PAGE
    page.parent.mkdir()
    page.write_text("# doctor\n")
    root = ["--root", str(tmp_path)]
    assert doctor_docs.main(root) == 1
    assert "has no place for this part" in capsys.readouterr().out
    page.write_text(f"# doctor\n\n{doctor_docs.BEGIN}\nold\n{doctor_docs.END}\n\nThe end.\n")
    assert doctor_docs.main([*root, "--check"]) == 1
    assert doctor_docs.main(root) == 0
    assert doctor_docs.main([*root, "--check"]) == 0
    lines = page.read_text().splitlines()
    assert lines[-1] == "The end."
    ids = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert ids == [check.id for check in CHECKS]
