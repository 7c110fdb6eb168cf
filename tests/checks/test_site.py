# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from shipped import kept, version
from tools import docs_site

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["dummy", pytest.param("html", marks=pytest.mark.release)])
def pages(request: pytest.FixtureRequest) -> set[str]:
    """Build the site of the checkout, unless that was done before, and return the names of its pages.

    Half of the time is for writing them. The links are followed without.
    """

    def build(place: Path) -> None:
        assert docs_site.build(ROOT, place, request.param) == 0

    place = kept(f"checked-site-{request.param}", version(), build)
    folder, suffix = (place / "html", ".html") if request.param == "html" else (place / "doctrees", ".doctree")
    return {str(file.relative_to(folder).with_suffix("")) for file in folder.rglob(f"*{suffix}")}


def test_the_site_has_every_document(pages: set[str]) -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")]
    assert documents
    assert {str(file.relative_to(ROOT).with_suffix("")) for file in documents} <= pages


@pytest.mark.parametrize("kind", ["module", "filter", "lookup", "callback", "role"])
def test_the_site_has_the_reference(kind: str, pages: set[str]) -> None:
    names = {
        "module": [file.stem for file in (ROOT / "plugins" / "modules").glob("b70_*.py")],
        "filter": [file.stem for file in (ROOT / "plugins" / "filter").glob("*.yml")],
        "lookup": [file.stem for file in (ROOT / "plugins" / "lookup").glob("*.py")],
        "callback": [file.stem for file in (ROOT / "plugins" / "callback").glob("*.py")],
        "role": [file.parents[1].name for file in ROOT.glob("roles/*/meta/argument_specs.yml")],
    }[kind]
    folder = "reference/collections/arcpro/b70/"
    assert names
    assert {f"{folder}{name}_{kind}" for name in names} == {
        page for page in pages if page.startswith(folder) and page.endswith(f"_{kind}")
    }


def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = ("missing.md", "index.md#no-such-heading", "#another-heading")
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# A page\n\n" + "".join(f"[a]({link})\n" for link in nowhere))
    assert docs_site.render(ROOT, source, tmp_path / "html") != 0
    told = capfd.readouterr().err
    for link in nowhere:
        assert link.rpartition("#")[2] in told
