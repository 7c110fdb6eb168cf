# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads dynamic ELF files without tools: what a library needs and what it provides. Pure functions of bytes.

Supports only 64-bit little-endian files, which the hosts use. Lookups go through the GNU hash table, so that a library
with a hundred thousand symbols costs nothing to open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RPATH, _DT_RUNPATH = 1, 4, 5, 6, 15, 29
_DT_GNU_HASH, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFEF5,
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_SYMBOL = struct.Struct("<IBBHQQ")
_GLOBAL, _WEAK = 1, 2


class NotElf(ValueError):
    """The bytes are not a dynamic ELF file of this kind."""


@dataclass(frozen=True)
class Symbol:
    name: str
    defined: bool
    weak: bool


class Elf:
    """A shared library or extension. Raises NotElf for anything else, truncated files included."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        if bytes(self._data[:6]) != b"\x7fELF\x02\x01":
            raise NotElf("not a 64-bit little-endian ELF file")
        try:
            offset, size, count = self._unpack("<Q", 32)[0], *self._unpack("<HH", 54)
            headers = [self._unpack("<IIQQQQQ", offset + number * size) for number in range(count)]
            self._segments = [(head[3], head[2], head[5]) for head in headers if head[0] == _PT_LOAD]
            dynamic = next((head for head in headers if head[0] == _PT_DYNAMIC), None)
            if dynamic is None:
                raise NotElf("not a dynamic file")
            self._tags: dict[int, list[int]] = {}
            for place in range(dynamic[2], dynamic[2] + dynamic[5], 16):
                tag, value = self._unpack("<QQ", place)
                if tag == 0:
                    break
                self._tags.setdefault(tag, []).append(value)
            self._strings = self._place(self._tags[_DT_STRTAB][0])
            self._symbols = self._place(self._tags[_DT_SYMTAB][0])
        except (struct.error, KeyError) as error:
            raise NotElf(f"cut off or damaged ({error})") from error

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._data, offset)

    def _place(self, address: int) -> int:
        """Return the offset in the file of an address in memory."""
        for start, offset, size in self._segments:
            if start <= address < start + size:
                return int(address - start + offset)
        raise NotElf(f"the address {address:#x} is in no segment")

    def _string(self, index: int) -> str:
        start = self._strings + index
        end = start
        while end < len(self._data) and self._data[end]:
            end += 1
        return bytes(self._data[start:end]).decode("utf-8", "replace")

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The libraries it names, in order."""
        return tuple(self._string(index) for index in self._tags.get(_DT_NEEDED, []))

    @cached_property
    def search_path(self) -> tuple[str, ...]:
        """Its own RPATH or RUNPATH, with `$ORIGIN` unchanged."""
        found = self._tags.get(_DT_RUNPATH) or self._tags.get(_DT_RPATH) or []
        return tuple(part for index in found for part in self._string(index).split(":") if part)

    def _symbol(self, index: int) -> Symbol:
        name, info, _other, section, _value, _size = _SYMBOL.unpack_from(
            self._data, self._symbols + index * _SYMBOL.size
        )
        return Symbol(self._string(name), section != 0, info >> 4 == _WEAK)

    def undefined(self) -> Iterator[Symbol]:
        """Yield the symbols that other libraries must define for this one.

        In the GNU layout these symbols come first, before the hashed ones.
        """
        if _DT_GNU_HASH in self._tags:
            _buckets, end = self._unpack("<II", self._place(self._tags[_DT_GNU_HASH][0]))
        elif _DT_HASH in self._tags:
            _buckets, end = self._unpack("<II", self._place(self._tags[_DT_HASH][0]))
        else:
            return
        for index in range(1, end):
            symbol = self._symbol(index)
            if symbol.name and not symbol.defined:
                yield symbol

    def defines(self, name: str) -> bool:
        """Tell whether the file exports `name`."""
        if _DT_GNU_HASH not in self._tags:
            return name in self._defined
        table = self._place(self._tags[_DT_GNU_HASH][0])
        buckets, first, words, shift = self._unpack("<IIII", table)
        key = gnu_hash(name)
        bloom = self._unpack("<Q", table + 16 + 8 * ((key // 64) % words))[0]
        if not (bloom >> (key % 64) & 1 and bloom >> ((key >> shift) % 64) & 1):
            return False
        heads = table + 16 + 8 * words
        index = self._unpack("<I", heads + 4 * (key % buckets))[0] if buckets else 0
        chain = heads + 4 * buckets
        while index >= first:
            link = self._unpack("<I", chain + 4 * (index - first))[0]
            if (link ^ key) >> 1 == 0:
                symbol = self._symbol(index)
                if symbol.defined and symbol.name == name:
                    return True
            if link & 1:
                return False
            index += 1
        return False

    @cached_property
    def _defined(self) -> frozenset[str]:
        if _DT_HASH not in self._tags:
            return frozenset()
        _buckets, count = self._unpack("<II", self._place(self._tags[_DT_HASH][0]))
        symbols = (self._symbol(index) for index in range(1, count))
        return frozenset(symbol.name for symbol in symbols if symbol.defined)

    @cached_property
    def versions_needed(self) -> dict[str, tuple[str, ...]]:
        """Library -> the symbol versions it must have, such as `libstdc++.so.6` -> `GLIBCXX_3.4.32`."""
        wanted: dict[str, tuple[str, ...]] = {}
        if _DT_VERNEED not in self._tags:
            return wanted
        place = self._place(self._tags[_DT_VERNEED][0])
        for _number in range(self._tags.get(_DT_VERNEEDNUM, [0])[0]):
            _version, count, file, first, following = self._unpack("<HHIII", place)
            names, entry = [], place + first
            for _entry in range(count):
                _hash, flags, _other, name, step = self._unpack("<IHHII", entry)
                if not flags & _WEAK:
                    names.append(self._string(name))
                entry += step
            wanted[self._string(file)] = tuple(names)
            place += following
        return wanted

    @cached_property
    def versions_defined(self) -> frozenset[str]:
        """The symbol versions it has."""
        found = []
        if _DT_VERDEF in self._tags:
            place = self._place(self._tags[_DT_VERDEF][0])
            for _number in range(self._tags.get(_DT_VERDEFNUM, [0])[0]):
                first, following = self._unpack("<II", place + 12)
                found.append(self._string(self._unpack("<I", place + first)[0]))
                place += following
        return frozenset(found)


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def readable(symbol: str) -> str:
    """Return the readable name of a C++ symbol, `torch::Library::_def` for `_ZN5torch7Library4_defE...`.

    Decodes only the plain parts of nested names, which the names of an interface consist of. Others stay unchanged.
    """
    if not symbol.startswith("_ZN"):
        return symbol
    rest, parts = symbol[3:].lstrip("KVrRO"), []
    while rest[:1].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        length = int(rest[:digits])
        parts.append(rest[digits : digits + length])
        rest = rest[digits + length :]
    if parts and rest[:2] in ("C1", "C2"):
        parts.append(parts[-1])
    return "::".join(parts) if parts else symbol
