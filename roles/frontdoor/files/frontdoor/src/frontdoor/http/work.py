# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client's connection knows of whatever makes the answer."""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """Whatever is making the answer."""

    def start(self) -> None:
        """Begin."""

    def client_gone(self, outcome: str = ...) -> None:
        """Nobody waits for the answer any more."""

    def pause(self) -> None:
        """The client is slower than the answer."""

    def resume(self) -> None:
        """The client caught up."""
