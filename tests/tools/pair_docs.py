# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what is known of kernels and firmware into docs/installing.md, from the tables that judge them.

``--check`` changes nothing and ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".cache" / "collections")]

from tools import generated  # noqa: E402

# isort: split
from ansible_collections.arcpro.b70.plugins.module_utils._gpu_driver import KERNELS, PAIRS  # noqa: E402

PAGE = Path("docs/installing.md")
BEGIN = "<!-- pairs: written by `make docs` from plugins/module_utils/_gpu_driver.py -->"
END = "<!-- end of pairs -->"


def _source(address: str) -> str:
    return f"[record]({address})" if address else "a public record of an owner"


def tables() -> str:
    """Return the table of pairs and that of the series of the kernel."""
    pairs = [
        f"| {pair.kernel} | {pair.guc} | {pair.wanted or 'any'} | {pair.least_cards} | {pair.verdict} | {pair.reason} "
        f"| {_source(pair.source)} |"
        for pair in PAIRS
    ]
    kernels = [f"| {series.kernel} | {series.verdict} | {series.reason} |" for series in KERNELS]
    return "\n".join(
        [
            "| kernel | GuC | the kernel wanted | cards, at least | verdict | why | from |",
            "|---|---|---|---|---|---|---|",
            *pairs,
            "",
            "| series of the kernel | verdict | what is known |",
            "|---|---|---|",
            *kernels,
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, the page."""
    return generated.main(__doc__, PAGE, {BEGIN: tables}, END, argv)


if __name__ == "__main__":
    sys.exit(main())
