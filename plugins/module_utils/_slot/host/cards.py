# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards: their memory, as far as the kernel's xe driver tells it, and the driver's hold on them.

How much of a card is in use comes from the driver's memory query on the render node (uapi drm/xe_drm.h). It answers 0
to processes without CAP_PERFMON; a card whose driver runs is never that empty, so 0 is no answer. Whose it is comes
from /proc/PID/fdinfo (kernel documentation, "Xe DRM client usage stats"). Another driver, or an answer of another
shape, is memory that can't be read.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from array import array
from collections.abc import Iterable, Sequence

from ..words.types import CardMemory, SlotFault

_DRIVER = "xe"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DEVICE_QUERY = 0xC0286440  # DRM_IOWR(DRM_COMMAND_BASE + DRM_XE_DEVICE_QUERY, 40 bytes)
_MEM_REGIONS = 1
_VRAM = 1
_QUERY = struct.Struct("=QIIQ2Q")  # extensions, query, size, data, reserved
_HEAD = struct.Struct("=II")  # number of regions, padding
_REGION = struct.Struct("=HHIQQQQ6Q")  # class, instance, page size, total, used, visible, visible used, reserved
_RESIDENT = re.compile(r"^drm-resident-vram\d*:\s*(\d+)(?: (KiB|MiB))?\s*$", re.M)
_CLIENT = re.compile(r"^drm-client-id:\s*(\d+)\s*$", re.M)
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20}


def memory_of_regions(answer: bytes) -> tuple[int | None, int] | None:
    """Return the bytes in use and in all of the card's own memory, from the driver's answer; None when it has none.

    The bytes in use are None where the driver does not tell them.
    """
    if len(answer) < _HEAD.size:
        return None
    count, _padding = _HEAD.unpack_from(answer)
    if len(answer) < _HEAD.size + count * _REGION.size:
        return None
    regions = [_REGION.unpack_from(answer, _HEAD.size + number * _REGION.size) for number in range(count)]
    own = [(region[4], region[3]) for region in regions if region[0] == _VRAM]
    return (sum(used for used, _total in own) or None, sum(total for _used, total in own)) if own else None


def resident_bytes(texts: Iterable[str]) -> int:
    """Return the bytes of card memory that the open files of one process hold, from the texts of their fdinfo.

    Several files of one client have the same figure, so each client counts once.
    """
    clients: dict[str, int] = {}
    for number, text in enumerate(texts):
        client = _CLIENT.search(text)
        held = sum(int(found[1]) * _UNITS[found[2] or ""] for found in _RESIDENT.finditer(text))
        clients[client[1] if client else f"file {number}"] = held
    return sum(clients.values())


def card_memory(nodes: Sequence[str]) -> tuple[CardMemory, ...]:
    """Return what is in use of each card whose driver answers."""
    found = []
    for node in nodes:
        memory = memory_of_regions(_ask(node)) if _driver(node) == _DRIVER else None
        if memory is not None:
            found.append(CardMemory(node, *memory))
    return tuple(found)


def pci_address(node: str) -> str:
    """Return where the card of a render node is; empty where the kernel does not tell."""
    name = os.path.basename(os.path.realpath(f"/sys/class/drm/{os.path.basename(node)}/device"))
    return name if _ADDRESS.fullmatch(name) else ""


def write_driver(what: str, address: str) -> None:
    """Have the driver let go of a card ("unbind") or take it ("bind"); the kernel answers when that is done."""
    path = f"/sys/bus/pci/drivers/{_DRIVER}/{what}"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(handle, address.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise SlotFault(f"the kernel refused to {what} {address} ({path}): {error.strerror}") from error


def _driver(node: str) -> str:
    try:
        return os.path.basename(os.readlink(f"/sys/class/drm/{os.path.basename(node)}/device/driver"))
    except OSError:
        return ""


def _ask(node: str) -> bytes:
    """Return the driver's answer to its memory query, empty where it gives none."""
    try:
        handle = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        query = bytearray(_QUERY.pack(0, _MEM_REGIONS, 0, 0, 0, 0))
        fcntl.ioctl(handle, _DEVICE_QUERY, query)
        size = _QUERY.unpack(query)[2]
        answer = array("B", bytes(size))
        fcntl.ioctl(handle, _DEVICE_QUERY, bytearray(_QUERY.pack(0, _MEM_REGIONS, size, answer.buffer_info()[0], 0, 0)))
        return answer.tobytes()
    except OSError:
        return b""
    finally:
        os.close(handle)
