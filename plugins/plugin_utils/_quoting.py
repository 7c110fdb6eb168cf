# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quote text for systemd units. Pure."""

from __future__ import annotations

import re


def quote(word: str) -> str:
    """Return one argument as systemd must read it: specifiers and variables escaped, quoted if needed."""
    text = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    text = text.replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return text if re.fullmatch(r"[^\s'\";]+", text) else f'"{text}"'


def one_line(text: str) -> str:
    """Return text for a directive that takes it as it is (Description=, paths): one line, specifiers escaped."""
    return " ".join(text.replace("%", "%%").split())


def quote_path(path: str) -> str:
    """Return a path for a directive that takes several: specifiers escaped, quoted if needed."""
    return quote(path).replace("$$", "$")
