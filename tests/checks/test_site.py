# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from tools import docs_site

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    assert docs_site.build(ROOT, place) == 0
    return place / "html"


def test_the_site_has_every_document(html: Path) -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")]
    missing = [file for file in documents if not (html / file.relative_to(ROOT)).with_suffix(".html").is_file()]
    assert documents
    assert missing == []


@pytest.mark.parametrize("kind", ["module", "filter", "lookup", "callback", "role"])
def test_the_site_has_the_reference(kind: str, html: Path) -> None:
    names = {
        "module": [file.stem for file in (ROOT / "plugins" / "modules").glob("b70_*.py")],
        "filter": [file.stem for file in (ROOT / "plugins" / "filter").glob("*.yml")],
        "lookup": [file.stem for file in (ROOT / "plugins" / "lookup").glob("*.py")],
        "callback": [file.stem for file in (ROOT / "plugins" / "callback").glob("*.py")],
        "role": [file.parents[1].name for file in ROOT.glob("roles/*/meta/argument_specs.yml")],
    }[kind]
    collection = html / "reference" / "collections" / "arcpro" / "b70"
    pages = {file.name for file in collection.glob(f"*_{kind}.html")}
    assert names
    assert {f"{name}_{kind}.html" for name in names} == pages


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("[a](missing.md)\n", "missing.md"),
        ("[a](index.md#no-such-heading)\n", "no-such-heading"),
        ("[a](#no-such-heading)\n", "no-such-heading"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(
    text: str, finding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text(f"# A page\n\n{text}")
    assert docs_site.render(ROOT, source, tmp_path / "html") != 0
    assert finding in capfd.readouterr().err
