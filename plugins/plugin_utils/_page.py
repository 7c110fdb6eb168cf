# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frame of the pages that the controller writes. Pure."""

from __future__ import annotations

import html

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { background: Canvas; color: CanvasText; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top; }
.FAIL { color: #c22; font-weight: 600; } .WARN { color: #850; font-weight: 600; }
.PASS { color: #272; } .SKIP { color: #6b6b6b; }
@media (prefers-color-scheme: dark) {
  .FAIL { color: #f77; } .WARN { color: #da3; } .PASS { color: #6c6; } .SKIP { color: #999; }
}
code, pre { font: 13px/1.4 ui-monospace, monospace; } pre { margin: .2rem 0; white-space: pre-wrap; }
details { margin: .3rem 0; } summary { cursor: pointer; }
"""


def document(title: str, body: str, style: str = "", script: str = "") -> str:
    """Return a self-contained page, which loads nothing. body: HTML; style: more rules; script: of the page's own."""
    name = html.escape(title)
    runs = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{name}</title><style>{_STYLE}{style}</style>'
        f"</head><body><h1>{name}</h1>{body}{runs}</body></html>\n"
    )
