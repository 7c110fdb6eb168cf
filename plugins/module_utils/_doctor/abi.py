# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether a stack's native extensions match its torch. Pure: the caller passes a function that opens files.

Two questions for every extension that uses torch: is every library that it names there, in a version that has what it
wants, and does some library that is loaded with it define every name of torch's interface that it uses?
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .elf import Elf, readable

# Opens a library. Returns None if it does not exist or is not an ELF file.
Open = Callable[[str], "Elf | None"]

# Names of torch's interface: C++ in c10, at and torch, and the C interface for extensions that outlive a version.
_INTERFACE = re.compile(r"^_ZNK?[VrRO]*(?:3c10|2at|5torch)|^_ZT[VIS]N(?:3c10|2at|5torch)|^aoti_torch_|^torch_[a-z]")
_TORCH_LIBRARY = re.compile(r"^lib(?:torch\w*|c10\w*)\.so")
_SHOWN = 3


@dataclass(frozen=True)
class Misfit:
    """An extension that cannot be loaded: its path below site-packages, what it lacks, and from which library."""

    extension: str
    problem: str
    library: str


def uses_torch(extension: Elf) -> bool:
    return any(_TORCH_LIBRARY.match(name) for name in extension.needed) or any(
        _INTERFACE.match(symbol.name) for symbol in extension.undefined()
    )


def misfits(
    extensions: Iterable[tuple[str, str, Elf]],
    open_library: Open,
    torch_lib: str,
    torch_libraries: Sequence[str],
    search: Sequence[str],
) -> Iterator[Misfit]:
    """Yield the mismatches of the extensions (readable name, path, file) of one environment.

    `torch_lib` is torch's own folder of libraries (in memory as soon as torch is imported), `torch_libraries` its
    files, and `search` the folders that the loader looks in.
    """
    loaded = [elf for path in torch_libraries if (elf := open_library(path)) is not None]
    for name, path, extension in extensions:
        mates, missing = _closure(extension, os.path.dirname(path), open_library, (torch_lib, *search))
        if missing:
            problem = f"needs {', '.join(missing)}: not found in any folder that is searched"
            yield Misfit(name, problem, missing[0])
        for library, versions in extension.versions_needed.items():
            mate = mates.get(library)
            if mate is not None and (lacking := [text for text in versions if text not in mate.versions_defined]):
                yield Misfit(name, f"needs {', '.join(lacking)}, which this host's {library} does not have", library)
        unresolved = [
            symbol.name
            for symbol in extension.undefined()
            if not symbol.weak
            and _INTERFACE.match(symbol.name)
            and not any(elf.defines(symbol.name) for elf in (*loaded, *mates.values()))
        ]
        if unresolved:
            shown = ", ".join(f"{readable(symbol)} ({symbol})" for symbol in unresolved[:_SHOWN])
            more = f" and {len(unresolved) - _SHOWN} more" if len(unresolved) > _SHOWN else ""
            yield Misfit(name, f"undefined symbol: {shown}{more}", home_of(unresolved[0], extension.needed))


def home_of(symbol: str, needed: Sequence[str]) -> str:
    """Return the name of the library of torch that should define a symbol."""
    if match := re.match(r"^_ZNK?[VrRO]*3c10(3xpu|4cuda)?", symbol):
        return f"libc10_{match[1][1:]}.so" if match[1] else "libc10.so"
    return next((name for name in needed if re.match(r"libtorch_(?:cpu|xpu|cuda|python)\.so", name)), "libtorch_cpu.so")


def _closure(
    extension: Elf, folder: str, open_library: Open, search: Sequence[str]
) -> tuple[dict[str, Elf], list[str]]:
    """Return the libraries that an extension loads, by name, and those that it names itself and that are missing."""
    found: dict[str, Elf] = {}
    missing = []
    queue = [(name, extension, folder, True) for name in extension.needed]
    while queue:
        name, by, where, direct = queue.pop(0)
        if name in found or name.startswith("ld-linux"):
            continue
        own = [part.replace("$ORIGIN", where).replace("${ORIGIN}", where) for part in by.search_path]
        for place in (*own, *search):
            library = open_library(os.path.join(place, name))
            if library is not None:
                found[name] = library
                queue += [(child, library, place, False) for child in library.needed]
                break
        else:
            if direct:
                missing.append(name)
    return found, missing
