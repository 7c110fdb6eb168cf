# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from tools import model_table


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    code = model_table.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_a_stale_page_is_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "profiles.md"
    page.write_text(f"# Before\n\n{model_table.BEGIN}\nold\n{model_table.END}\n\nAfter.\n")
    assert model_table.main(["--check", "--page", str(page)]) == 1
    assert "is not up to date; run: make docs" in capsys.readouterr().out
    assert model_table.main(["--page", str(page)]) == 0
    assert model_table.main(["--check", "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Before\n")
    assert text.endswith("\nAfter.\n")
    assert text.count("\n| `") == 27
    page.write_text("# No place\n")
    with pytest.raises(ValueError, match="has no place for the table"):
        model_table.main(["--page", str(page)])


def test_a_row_has_status_modalities_context_limit_and_evidence() -> None:
    text = model_table.written(f"{model_table.BEGIN}\n{model_table.END}")
    assert (
        "| `gemma4-12b-it-int4-autoround-c8` | candidate | text, image | 4 | 32768 | 8 | 1,004,909 KV tokens; "
        "112.77 output tokens/s at 1; upstream lab, with captured graphs, "
        "2026-06-07, on lab-2.11 |"
    ) in text.splitlines()
    assert "- `gemma4-12b-it-int4-autoround-c12`: 2026-06-07, device lost" in text
