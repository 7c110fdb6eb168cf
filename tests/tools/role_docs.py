# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the variables of every role into its README.md, from meta/argument_specs.yml.

The tables stand between two comments; everything else in the README is written by people. ``--check`` changes nothing
and ends with 1 when a README is not as it would be written.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

ROOT = Path(__file__).resolve().parents[2]
BEGIN = "<!-- variables: written by `make docs` from meta/argument_specs.yml -->"
END = "<!-- end of variables -->"
LONG = 80
PATHS = Path("roles/paths/vars/main.yml")


class Places:
    """The shared paths as a reader wants them: where they are, and which variable moves them."""

    def __init__(self, root: Path) -> None:
        file = root / PATHS
        self._known: dict[str, Any] = yaml.safe_load(file.read_text()) if file.is_file() else {}

    def path(self, name: str) -> str:
        """Return where `__paths_NAME` or `__paths_own.KEY` is when no operator says otherwise."""
        first, _dot, key = name.partition(".")
        value = str(self._known[first][key] if key else self._known[first])
        templates = Environment(autoescape=False)

        def is_abs(folder: str) -> bool:
            """Ansible's own test, asked of the folder that stands for the operator's."""
            return bool(folder)

        templates.tests["abs"] = is_abs
        return str(templates.from_string(value).render(inventory_dir="INVENTORY_DIR", **self._rendered(value)))

    def _rendered(self, value: str) -> dict[str, Any]:
        data = {name: held for name, held in self._known.items() if isinstance(held, dict)}
        return {**data, **{name: self.path(name) for name in set(re.findall(r"__paths_\w+", value)) - data.keys()}}

    def moved_by(self, name: str) -> str:
        """Return the operator's variable that `__paths_NAME` follows, else nothing."""
        value = str(self._known.get(name, ""))
        own = re.search(r"\b((?!__)\w+) \| default", value)
        further = re.search(r"__paths_(?!own\b|site\b)\w+", value)
        return own[1] if own else self.moved_by(further[0]) if further else ""

    def read(self, text: str) -> tuple[str, str]:
        """Return a default with the paths in place of their names, and the variable that it follows."""
        found = re.search(r"__paths_\w+(?:\.\w+)?", text)
        if not found or not self._known:
            return text, ""
        path = self.path(found[0])
        if not path.startswith("/") and text != "{{ " + found[0] + " }}":
            return text.replace(found[0], self.moved_by(found[0])), ""
        whole = text.replace("{{ " + found[0] + " }}", path)
        quoted = whole.replace(f"{found[0]} ~ '", f"'{path}").replace(found[0], f"'{path}'")
        return quoted, self.moved_by(found[0])


def shown(option: dict[str, Any], places: Places | None = None) -> str:
    """Return a default as a person would write it on the command line; a long one is only pointed to."""
    if option.get("required"):
        return "required"
    value = option.get("default")
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    text, follows = places.read(text) if places else (text, "")
    if len(text) > LONG:
        return "see [defaults](defaults/main.yml)"
    # A bar would end the table's cell, inside code too.
    return "`" + (text.replace("|", "\\|") or "''") + "`" + (f", by `{follows}`" if follows else "")


def plain(description: Any) -> str:
    """Return a description in Markdown for a table cell: one line, semantic markup as code."""
    text = " ".join(description) if isinstance(description, list) else str(description or "")
    text = re.sub(r"\b[OVCEP]\(((?:[^()\\]|\\.)*)\)", r"`\1`", " ".join(text.split()))
    return text.replace("|", "\\|")


def kind(option: dict[str, Any]) -> str:
    """Return the type, with that of a list's elements and the choices."""
    name = str(option.get("type", "str"))
    if "elements" in option:
        name += f" of {option['elements']}"
    choices = option.get("choices")
    return f"{name}: {', '.join(map(str, choices))}" if choices else name


def tables(specs: dict[str, Any], places: Places | None = None) -> str:
    """Return one table per entry point; an option that an earlier one has already shown is not repeated."""
    parts = []
    known: set[str] = set()
    for point, spec in specs.items():
        options = {name: option for name, option in (spec.get("options") or {}).items() if name not in known}
        known.update(options)
        lines = [] if point == "main" else [f"Entry point `{point}`: {plain(spec.get('short_description'))}", ""]
        if options:
            lines += ["| variable | type | default | what it is |", "|---|---|---|---|"]
            lines += [
                f"| `{name}` | {kind(option)} | {shown(option, places)} | {plain(option.get('description'))} |"
                for name, option in options.items()
            ]
        elif point == "main":
            lines.append("None.")
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join(parts)


def written(readme: str, specs: dict[str, Any], places: Places | None = None) -> str:
    """Return a README with its tables as they should be. Raises ValueError when it has no place for them."""
    before, begin, rest = readme.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has no place for its variables; put these two lines where they belong:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n{tables(specs, places)}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, every role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args(argv)
    bad = False
    places = Places(arguments.root)
    for source in sorted(arguments.root.glob("roles/*/meta/argument_specs.yml")):
        readme = source.parents[1] / "README.md"
        name = readme.relative_to(arguments.root)
        text = readme.read_text() if readme.is_file() else ""
        try:
            new = written(text, yaml.safe_load(source.read_text())["argument_specs"], places)
        except ValueError as error:
            print(f"{name}: {error}")
            bad = True
            continue
        if new != text:
            print(f"{name}: {'is not up to date; run: make docs' if arguments.check else 'written'}")
            bad = bad or arguments.check
            if not arguments.check:
                readme.write_text(new)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
