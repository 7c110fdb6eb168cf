# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates of the collection, in `templates/` at its root: what hosts get is rendered from plain data.

Jinja2 reads them itself: Ansible's own templar also reads what stands in braces in a value, such as a chat template.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._environment import quoted
from ansible_collections.arcpro.b70.plugins.module_utils._slot_paths import MARKER

from ._catalogue.problems import did_you_mean
from ._quoting import one_line, quote, quote_path

SHIPPED = Path(__file__).resolve().parents[2] / "templates"


def render(name: str, data: Mapping[str, Any], folders: Sequence[str] = ()) -> str:
    """Return the text of a template, which a site's folder may replace; the first folder that has it wins.

    :raises ValueError: naming the template and what is wrong with it.
    """
    try:
        return _environment(tuple(folders)).get_template(f"{name}.j2").render(data)
    except jinja2.TemplateError as error:
        raise ValueError(f"the template {name}.j2 cannot be rendered: {error}") from error


@functools.cache
def _environment(folders: tuple[str, ...]) -> jinja2.Environment:
    known = {file.name for file in SHIPPED.iterdir()}
    for folder in folders:
        if not Path(folder).is_absolute() or not Path(folder).is_dir():
            raise ValueError(f"b70_template_dirs names {folder}, which is no folder; write an absolute path")
        for name in sorted(file.name for file in Path(folder).glob("*.j2") if file.name not in known):
            raise ValueError(f"{folder}/{name} replaces no template of the collection{did_you_mean(name, known)}")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, str(SHIPPED)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"word": quote, "path": quote_path, "one_line": one_line, "quoted": quoted}
    environment.filters |= {"json": json.dumps, "yaml": _yaml}
    environment.globals["marker"] = MARKER
    return environment


def _yaml(value: Any) -> str:
    """Return a value as YAML in its own order; texts of Ansible's own types, which YAML does not know, become plain."""
    plain = json.loads(json.dumps(value))
    return str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=False, width=120)).rstrip("\n")
