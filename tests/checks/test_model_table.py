# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
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
    assert text.count("\n| `") + text.count("\n- `") == len(load_catalogue())
    page.write_text("# No place\n")
    with pytest.raises(ValueError, match="has no place for the table"):
        model_table.main(["--page", str(page)])


def test_repositories_without_a_known_revision_are_listed_and_no_revision_is_a_branch() -> None:
    catalogue = load_catalogue(stacks=load_stacks())
    text = model_table.table(catalogue)
    for profile in catalogue.values():
        repository, revision = profile["model"]["hf_repo"], profile["model"]["revision"]
        listed = f"`{repository}`" in text
        assert listed is (repository is not None and revision is None), profile["name"]
    branch: dict[str, Any] = {
        "p": {"model": {"hf_repo": "o/n", "revision": "main"}},
        "q": {"model": {"hf_repo": None, "revision": None}},
    }
    assert model_table.unpinned(branch) == {"o/n": ["p"]}


def test_a_row_has_status_modalities_context_limit_and_evidence() -> None:
    text = model_table.written(f"{model_table.BEGIN}\n{model_table.END}")
    (row,) = [line for line in text.splitlines() if line.startswith("| `minimax-m27-c1`")]
    assert row == (
        "| `minimax-m27-c1` | baseline | text | 4 | 32768 | 1 | 83.172 tok/s with 1 stream, up to 96.82 with 1 stream; "
        "upstream lab, 2026-05-24, lab-2.11 |"
    )
    assert "- `gemma4-12b-it-int4-autoround-c12` (rejected): 2026-06-07, device lost" in text
