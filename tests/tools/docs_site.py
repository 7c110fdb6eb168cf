# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation as a site in .cache/site/html: the documents, and the reference of plugins and roles.

antsibull-docs writes the reference from the documentation of plugins and the argument specifications of roles; Sphinx
renders it together with the Markdown documents, and the page of the catalogue stands beside them. Warnings are errors:
a link to a document, a heading or an option that does not exist fails the build. Addresses outside the collection are
not visited.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".cache" / "collections")]

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.page import catalogue_page  # noqa: E402
from tools.sanity import export_tree  # noqa: E402

SITE = ROOT / ".cache" / "site"
CONFIG = Path("docs") / "docsite"


def lay_out(root: Path, source: Path) -> None:
    """Copy the collection to ``source``, so that relative links lead where they lead in the checkout."""
    export_tree(root, source)
    shutil.copy(root / CONFIG / "index.md", source)
    # antsibull-docs refuses a folder that others may write to.
    (source / "reference").mkdir(mode=0o755)


def write_reference(root: Path, source: Path) -> int:
    """Write the reference of the collection below ``source``; return the exit status of antsibull-docs."""
    settings = ("--config-file", str(root / CONFIG / "antsibull-docs.cfg"))
    written = ("--use-current", "--fail-on-error", "--dest-dir", str(source / "reference"))
    command = ("antsibull-docs", *settings, "collection", *written, "arcpro.b70")
    # The checkout's own settings: they say where the collection is.
    environment = {**os.environ, "ANSIBLE_CONFIG": str(root / "ansible.cfg")}
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def render(root: Path, source: Path, html: Path, builder: str = "html") -> int:
    """Render ``source`` as ``root`` configures it; return the exit status of Sphinx, not 0 after any warning.

    :param builder: with ``dummy`` Sphinx reads all pages and follows all links, and writes doctrees but no pages.
    """
    cache = html.with_name("doctrees")
    settings = ("-c", str(root / CONFIG), "-d", str(cache), "-j", "auto", "-q", "-W", "--keep-going")
    return subprocess.run(("sphinx-build", "-b", builder, *settings, str(source), str(html)), check=False).returncode


def build(root: Path, site: Path, builder: str = "html") -> int:
    """Build the site of the collection at ``root`` into ``site``/html; return the exit status of what failed, or 0."""
    source = site / "source"
    lay_out(root, source)
    failed = write_reference(root, source) or render(root, source, site / "html", builder)
    if not failed and builder == "html":
        stacks = load_stacks()
        (site / "html" / "catalogue.html").write_text(catalogue_page(load_catalogue(stacks=stacks), stacks))
    return failed


if __name__ == "__main__":
    failed = build(ROOT, SITE)
    print("the site was not built" if failed else f"the site is in {(SITE / 'html').relative_to(ROOT)}/index.html")
    sys.exit(failed)
