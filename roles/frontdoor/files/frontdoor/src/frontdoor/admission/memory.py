# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget for bytes of request bodies, in all and for each client. Pure code."""

from __future__ import annotations

from frontdoor.config import Limits


class MemoryBudget:
    """Counts bodies that are coming in and bodies that the engine does not have yet."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        #: bytes held now
        self.held = 0
        self._of_client: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of clients that bytes are held for."""
        return len(self._of_client)

    def add(self, client_key: str, size: int) -> None:
        """Count bytes of a client; fewer than 0 take them back."""
        self.held += size
        held = self._of_client.pop(client_key, 0) + size
        if held:
            self._of_client[client_key] = held

    def excess(self, client_key: str) -> str:
        """Return why a body of this client may not grow; empty if it may."""
        limits = self.limits
        if self.held > limits.max_buffered_bytes:
            return "too many large requests are being received"
        if self._of_client.get(client_key, 0) > max(limits.max_buffered_bytes_per_client, limits.max_body_bytes):
            return "too many large requests of yours are being received"
        return ""
