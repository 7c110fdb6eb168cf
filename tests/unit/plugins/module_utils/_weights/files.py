# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files of models in their real formats."""

from __future__ import annotations

import json
import struct
from typing import Any


def safetensors(data: bytes = b"w" * 48, *names: str) -> bytes:
    """A safetensors file of tensors of bytes: ``data`` in equal parts, one for each name."""
    tensors = names or ("a",)
    share = len(data) // len(tensors)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number, name in enumerate(tensors):
        header[name] = {"dtype": "U8", "shape": [share], "data_offsets": [number * share, (number + 1) * share]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[: share * len(tensors)]


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(keys: dict[str, str | int], data: bytes = b"w" * 64) -> bytes:
    """A GGUF file with these keys (texts, and numbers of 16 bits) and one tensor of bytes."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, len(keys))
    for key, value in keys.items():
        said = struct.pack("<I", 8) + _text(value) if isinstance(value, str) else struct.pack("<IH", 2, value)
        head += _text(key) + said
    head += _text("t") + struct.pack("<IQIQ", 1, len(data), 24, 0)
    return head + b"\0" * (-len(head) % 32) + data
