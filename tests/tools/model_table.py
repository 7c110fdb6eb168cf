# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of shipped profiles into docs/profiles.md, from the catalogue.

``--check`` changes nothing and ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))

from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import is_commit  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import STATUSES  # noqa: E402
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.offers import OVERVIEW, overview  # noqa: E402

PAGE = ROOT / "docs" / "profiles.md"
BEGIN = "<!-- profiles: written by `make docs` from the catalogue -->"
END = "<!-- end of profiles -->"


def unpinned(catalogue: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The repositories of profiles that name no full commit, with those profiles: `REPOSITORY: [PROFILE]`."""
    found: dict[str, list[str]] = {}
    for name, profile in sorted(catalogue.items()):
        model = profile["model"]
        if model["hf_repo"] and not is_commit(model["revision"]):
            found.setdefault(model["hf_repo"], []).append(name)
    return dict(sorted(found.items()))


def table(catalogue: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the profiles that can be served, best status first, and why the others cannot."""
    rows = sorted(catalogue.values(), key=lambda profile: (STATUSES.index(profile["status"]), profile["name"]))
    refused = [profile for profile in rows if profile["status_reason"]]
    lines = [f"| {' | '.join(OVERVIEW)} |", "|---" * len(OVERVIEW) + "|"]
    for profile in [profile for profile in rows if profile not in refused]:
        cells = [f"`{profile['name']}`", *overview(profile)[1:]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "Not served, and why:", ""]
    lines += [
        f"- `{profile['name']}` ({profile['status']}): {' '.join(profile['status_reason'].split())}"
        for profile in refused
    ]
    if unknown := unpinned(catalogue):
        named = ", ".join(f"`{repository}`" for repository in unknown)
        lines += [
            "",
            f"Without a known revision; [the first download records one](weights.md#a-commit-not-a-branch): {named}.",
        ]
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with its table as it should be. Raises ValueError when it has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/profiles.md has no place for the table; put these two lines there:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n{table(load_catalogue(stacks=load_stacks()))}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    text = arguments.page.read_text()
    new = written(text)
    if new != text:
        print(f"{arguments.page.name}: {'is not up to date; run: make docs' if arguments.check else 'written'}")
        if not arguments.check:
            arguments.page.write_text(new)
    return int(arguments.check and new != text)


if __name__ == "__main__":
    sys.exit(main())
