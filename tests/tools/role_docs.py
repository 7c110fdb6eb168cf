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

ROOT = Path(__file__).resolve().parents[2]
BEGIN = "<!-- variables: written by `make docs` from meta/argument_specs.yml -->"
END = "<!-- end of variables -->"
LONG = 70


def shown(option: dict[str, Any]) -> str:
    """Return a default as a person would write it on the command line; a long one is only pointed to."""
    if option.get("required"):
        return "required"
    value = option.get("default")
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > LONG:
        return "see [defaults](defaults/main.yml)"
    # A bar would end the table's cell, inside code too.
    return "`" + (text.replace("|", "\\|") or "''") + "`"


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


def tables(specs: dict[str, Any]) -> str:
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
                f"| `{name}` | {kind(option)} | {shown(option)} | {plain(option.get('description'))} |"
                for name, option in options.items()
            ]
        elif point == "main":
            lines.append("None.")
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join(parts)


def written(readme: str, specs: dict[str, Any]) -> str:
    """Return a README with its tables as they should be. Raises ValueError when it has no place for them."""
    before, begin, rest = readme.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has no place for its variables; put these two lines where they belong:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n{tables(specs)}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, every role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args(argv)
    bad = False
    for source in sorted(arguments.root.glob("roles/*/meta/argument_specs.yml")):
        readme = source.parents[1] / "README.md"
        name = readme.relative_to(arguments.root)
        text = readme.read_text() if readme.is_file() else ""
        try:
            new = written(text, yaml.safe_load(source.read_text())["argument_specs"])
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
