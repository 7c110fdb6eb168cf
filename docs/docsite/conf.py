# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Sphinx configuration of the site that `make site` builds; tests/tools/docs_site.py lays out its source."""

from __future__ import annotations

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

project = "arcpro.b70"
copyright = "2026, arcpro.b70 contributors"
title = html_title = html_short_title = "arcpro.b70"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "reference/**",
    "roles/*/README.md",
    "roles/frontdoor/files/frontdoor/README.md",
    "tests/*/README.md",
    "tests/lab/*/README.md",
]

# Anchors as code hosts make them: a link to a heading works there and here, and one that leads nowhere is a warning.
myst_heading_anchors = 4
# The documents mark code blocks with and without a language; what has none is shown as it is.
highlight_language = "text"
pygments_style = "ansible"

html_theme = "sphinx_ansible_theme"
html_theme_options = {"topbar_links": {}}
html_show_sphinx = False
html_copy_source = False
html_use_index = False

# Warnings are errors: the tool calls Sphinx with -W. A reference that resolves to nothing is a warning.
nitpicky = True

# Where the reference leads into Ansible's own documentation; everything else must stand in this site.
ANSIBLE = "https://docs.ansible.com/projects/ansible/latest"
ANSIBLE_PAGES = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "callback_plugins": "plugins/callback.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}


def lead_to_ansible(
    app: Sphinx, env: BuildEnvironment, reference: pending_xref, content: nodes.Element
) -> nodes.reference | None:
    """Return the link for a label of Ansible's documentation, else None, which leaves Sphinx its warning."""
    target = reference["reftarget"]
    builtin = target.removeprefix("ansible_collections.ansible.builtin.")
    page = ANSIBLE_PAGES.get(target) or (f"collections/ansible/builtin/{builtin}.html" if builtin != target else None)
    return nodes.reference("", "", content, refuri=f"{ANSIBLE}/{page}") if page else None


def setup(app: Sphinx) -> None:
    """Register what this site adds to Sphinx."""
    app.connect("missing-reference", lead_to_ansible)
