# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first error of the process that failed first, found by the structure of a log and not by its words. Pure.

An engine is a tree of processes. The one that fails says why; those above it then report that it did, so the end of
the log is the traceback of the one on top. What counts as an error: a traceback, an exception in a line of the level
ERROR, a message by which native code ends its process, and the end of a process by a signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from .kind import Kind

_TRACEBACK = re.compile(r"[ +|]*(?:.{1,60}: )?(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(r' *File "(?P<file>[^"]+)", line \d+, in .+')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Compiler|Lost)\b(?:\(.{0,80}?\))?(?::|$)")
_CHAINED = re.compile(
    r"During handling of the above exception, another|The above exception was the direct cause of the following"
)
_QUIET = ("DEBUG", "INFO", "WARNING", "WARN")
# Native code ends its process with one of these: the cards' runtime, the C and C++ libraries, the dynamic linker,
# ggml, SYCL, Vulkan, oneCCL, systemd before the program runs, and a parser of a command line.
_NATIVE = re.compile(
    r"Abort was called at \d+ line in file|Segmentation fault(?:$| \(| from GPU)|!+ Segfault encountered"
    r"|Fatal Python error: |\*\*\* SIG\w+|(?:Bus error|Illegal instruction|Aborted)(?:$| \()"
    r"|terminate called (?:after|without)|pure virtual method called|(?:free|malloc|realloc|munmap_chunk)\(\): "
    r"|double free or corruption|corrupted (?:size|double)|what\(\): "
    r"|\*\*\* (?:stack smashing|buffer overflow) detected"
    r"|\S+: error while loading shared libraries: |\S+: symbol lookup error: "
    r"|\S+\.[ch](?:pp|u|xx)?:\d+(?:: | \w+: )|\S*GGML_ASSERT\(|Exception caught at file:|SYCL error: |No kernel named "
    r"|(?:level_zero|opencl) backend failed with error: |(?:llama-server: )?vk::[\w:]+: Error|ze error at \w+|oneCCL: "
    r"|\S+:\d+:\d+: fatal error: |pre-allocated tensor \(|Failed at step \w+ spawning|Failed to locate executable "
    r"|[\w-]+(?: [\w-]+){0,2}: error: |[Ee]rror: "
)
# A process that ends by a signal: it says where, and its native code may have said why, in another stream.
_SIGNAL = re.compile(r"Fatal Python error: |!+ Segfault|Segmentation fault|Aborted|\*\*\* SIG")
_STACK = re.compile(r'\s*$|(?:Current t|T)hread 0x|\s+File "|\s+\.\.\.|Extension modules:|\[New LWP|#\d+ |\S+\.so\S*\(')
_DUMP, _CURRENT = 400, re.compile(r"Current thread \S+ .*\(most recent call first\):")
# A traceback after such a line ends a thread, or nothing at all.
_ASIDE = re.compile(r"Exception in thread |Exception ignored in")
# The end of a process, as the one above it or systemd reports it.
_DEATH = re.compile(
    r"Worker proc \S+ died unexpectedly|(?:\S+\.service: )?Main process exited, code=(?:killed|dumped)"
    r"|Process \d+ \(.{1,40}\) of user \d+ (?:dumped core|terminated abnormally)|.{0,80}killed by the OOM killer"
)
# Errors of a process because another one has failed, or because it was told to end.
_FOLLOWS = re.compile(
    r"pmi_resizable|kvs_|encountered a fatal error"
    r"|[Ss]ee (?:the )?root cause above|in a background process|EngineDeadError|EngineCore encountered an issue"
    r"|Failed core proc|Executor failed|CancelledError|KeyboardInterrupt|SystemExit|BrokenPipeError|EOFError"
    r"|ConnectionResetError|Connection (?:closed|reset) by peer|Broken pipe|[Cc]ancelled\b|terminate called recursively"
    r"|exiting due to model loading error|failed to start\.$|hit an exception"
)
_GAP = 150  # lines; errors that are further apart are of different failures
_MORE = 4  # lines that belong to an error


@dataclass
class _Error:
    """An error in a log. begun, last: the numbers of its first and its last line. lines: those that say what it is.
    where: the frame that raised it. led_to: the number of the exception that the process raised from it in the end.
    uncaught: Python printed it when the process ended. native: it is a message of native code. aside: the process went
    on after it."""

    process: str
    begun: int
    last: int
    lines: list[int]
    text: str
    where: str = ""
    led_to: int | None = None
    uncaught: bool = False
    native: bool = False
    aside: bool = False
    by_clients: bool = False


@dataclass(frozen=True)
class FirstError:
    """The first error of the process that failed first.

    process: its name where the log has one. logged: the lines of the log that say what it is. lines: the same to show,
    without prefixes, then where it was raised and what it led to.
    """

    process: str
    logged: tuple[str, ...]
    lines: tuple[str, ...]


def first_error(lines: Sequence[str], kind: Kind) -> FirstError | None:
    """Return the first error of the process that failed first; None where the log reports no error."""
    read = (error for error in _Reader(lines, kind).errors() if not error.aside)
    errors = _last_failure(sorted(read, key=lambda error: error.begun))
    real = [error for error in errors if not _FOLLOWS.search(error.text)]
    # The process that listens reports what its clients did wrong as well, and goes on.
    below = [error for error in real if not error.by_clients]
    listening = [error for error in real if error.by_clients and error.uncaught]
    for found in (below, listening, errors):
        if found:
            return _shown(_with_words(found), lines, kind)
    return None


def _with_words(errors: Sequence[_Error]) -> _Error:
    """Return the first error; if that only names a signal, what native code of the same process says about it."""
    first = errors[0]
    if first.native and _SIGNAL.match(first.text):
        others = takewhile(lambda error: error.native, errors)
        return next((error for error in others if not _SIGNAL.match(error.text)), first)
    return first


def _current_frame(error: _Error, lines: Sequence[str]) -> str:
    """Return where the thread was that a signal ended, as Python's faulthandler dumps it; empty without a dump."""
    if not error.text.startswith("Fatal Python error"):
        return ""
    dump = lines[error.begun : error.begun + _DUMP]
    after = (frame.strip() for line, frame in pairwise(dump) if _CURRENT.search(line))
    return next(after, "")


def _last_failure(errors: Sequence[_Error]) -> Sequence[_Error]:
    begin = len(errors) - 1
    while begin > 0 and errors[begin].begun - errors[begin - 1].last <= _GAP:
        begin -= 1
    return errors[max(begin, 0) :]


def _shown(error: _Error, lines: Sequence[str], kind: Kind) -> FirstError:
    texts = [kind.message_of(lines[number]) for number in error.lines]
    led_to = None if error.led_to is None else kind.message_of(lines[error.led_to])
    where = error.where or _current_frame(error, lines)
    if led_to is not None and ":" not in texts[0]:
        # An exception without a message, such as a bare TimeoutError.
        texts.insert(0, led_to)
    elif led_to is not None:
        texts.append(f"which led to {led_to}")
    if where:
        texts.insert(len(error.lines), f"raised in {where}")
    told = [*error.lines, *([error.led_to] if error.led_to is not None else [])]
    return FirstError(error.process, tuple(lines[number] for number in told), tuple(texts))


@dataclass
class _Open:
    """A traceback that is being read. aside: it ends no process. first: the exception from which it was raised.
    chained: another one was raised from it, whose traceback is still to come."""

    begun: int
    level: str
    where: str = ""
    error: _Error | None = None
    chained: bool = False
    first: _Error | None = None
    aside: bool = False


@dataclass
class _Reader:
    """Reads a log line by line; the lines of several processes may be mixed."""

    lines: Sequence[str]
    kind: Kind
    _open: dict[str, _Open] = field(default_factory=dict)
    _native: dict[str, _Error] = field(default_factory=dict)
    _before: dict[str, str] = field(default_factory=dict)  # the line before, of each process

    def errors(self) -> Iterator[_Error]:
        for number, line in enumerate(self.lines):
            process, level, text = self.kind.parts_of(line)
            error = self._traceback(number, process, level, text) or self._plain(number, line, process, level, text)
            self._before[process] = text
            if error is not None:
                error.by_clients = bool(process) and self.kind.by_clients(line)
                yield error

    def _traceback(self, number: int, process: str, level: str, text: str) -> _Error | None:
        """Return an error at the line with the exception of its traceback."""
        block = self._open.get(process)
        if _TRACEBACK.match(text):
            # One that follows from the one before belongs to it.
            chained = block is not None and block.chained
            aside = _ASIDE.match(self._before.get(process, "")) is not None
            first = block.first if chained and block is not None else None
            self._open[process] = _Open(number, level, first=first, aside=aside)
            return None
        if block is None:
            return None
        stripped = text.lstrip(" |+-")
        if block.error is None:
            if text[:1].isspace() or not stripped:
                if _FRAME.match(text):
                    block.where = stripped
                elif stripped.strip("^~ ") and block.where:
                    # The line of the program says what a bare assertion is about.
                    block.where = f"{block.where.partition(': ')[0]}: {stripped}"
                return None
            if block.level != level and level in _QUIET:
                return None
            error = _Error(process, block.begun, number, [number], text, block.where, uncaught=level == "")
            error.aside = block.aside
            block.error = error
            if block.first is not None:
                block.first.led_to, block.first.last = number, number
                return None
            block.first = error
            return error if level not in _QUIET else None
        if _CHAINED.search(text):
            block.chained = True
        elif text[:1].isspace() and stripped and level == block.level and len(block.error.lines) < _MORE:
            block.error.lines.append(number)
            block.error.last = number
        elif stripped and not block.chained:
            del self._open[process]
        return None

    def _plain(self, number: int, line: str, process: str, level: str, text: str) -> _Error | None:
        """Return an error that begins with this line and is no traceback."""
        if process in self._open:
            return None
        before = self._native.get(process)
        message = text.lstrip(" |")
        if before is not None and number - before.last == 1 and len(before.lines) < _MORE and level == "":
            # The next lines name the file, the exception or the frames.
            before.lines.append(number)
            before.last = number
            return None
        if before is not None and level == "" and _STACK.match(text):
            before.last = number
            return None
        self._native.pop(process, None)
        if level in _QUIET and not _DEATH.match(message):
            return None
        # The head of its traceback may be missing: no more of the log is read, or it is of one line.
        raised = _EXCEPTION.match(message) if self.kind.raises else level == "ERROR"
        if not (raised or _NATIVE.match(message) or _DEATH.match(message)):
            return None
        error = _Error(process, number, number, [number], message)
        if _NATIVE.match(message):
            error.native = True
            self._native[process] = error
        return error
