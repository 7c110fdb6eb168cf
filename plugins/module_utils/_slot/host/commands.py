# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that answer within a limit. What is raised if they do not is the caller's own fault."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..words.types import HostFault

_SHOWN = 100  # characters of a command in an error
_LAST_S = 5.0  # for the output of what was killed


def _words(argv: Sequence[str]) -> str:
    # The options of systemd-run fill the line, and what it runs is what failed.
    words = " ".join(argv[argv.index("--") + 1 :] if "systemd-run" in argv[0] and "--" in argv else argv)
    return f"`{words}`" if len(words) <= _SHOWN else f"`{words[:_SHOWN]}…`"


def done(
    argv: Sequence[str], limit_s: float, fault: type[Exception] = HostFault, *, needs: str = "", **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, whatever its exit status, and return its output in bytes.

    :param needs: ends the error about a program that is not installed.
    :param more: arguments of `subprocess.run`.
    """
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            # A key that ends a command reaches all of its terminal's foreground: ours heeds it, these would die of it.
            start_new_session=True,
            **more,
        )
    except FileNotFoundError as error:
        raise fault(f"{argv[0]} is not installed{needs}") from error
    except OSError as error:
        raise fault(f"{argv[0]} can't be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise fault(f"{_words(argv)} gave no answer within {limit_s:g} s") from error


def ran(
    argv: Sequence[str], limit_s: float, fault: type[Exception] = HostFault, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as `done` does, and return its output as text.

    Python's reading of text would turn carriage returns into line ends.
    """
    found = done(argv, limit_s, fault, **more)
    out, err = (stream.decode("utf-8", "replace") for stream in (found.stdout, found.stderr))
    return subprocess.CompletedProcess(found.args, found.returncode, out, err)


def said(argv: Sequence[str], limit_s: float, fault: type[Exception] = HostFault, **more: Any) -> str:
    """Run a command as `ran` does, and return what it prints; raise the fault with its words if it fails."""
    found = ran(argv, limit_s, fault, **more)
    if found.returncode != 0:
        words = (found.stderr.strip() or found.stdout.strip())[-2000:]
        raise fault(f"{_words(argv)} ended with {found.returncode}: {words}")
    return found.stdout


def whole(
    argv: Sequence[str], limit_s: float, given: str = "", began: Callable[[int], object] = lambda pid: None, **more: Any
) -> tuple[int | None, bytes, bytes]:
    """Run a command with all that it starts, of which nothing outlives this. Return its exit status and output.

    The status is None if it takes longer than `limit_s`. Raise OSError if it can't be run.

    :param given: its standard input.
    :param began: hears its process id.
    :param more: arguments of `subprocess.Popen`.
    """
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(list(argv), start_new_session=True, **pipes, **more) as process:
        try:
            began(process.pid)
            out, err = process.communicate(given.encode(), timeout=limit_s)
            return process.returncode, out, err
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            # What left the session may hold the pipes open for ever.
            with suppress(subprocess.TimeoutExpired):
                return (None, *process.communicate(timeout=_LAST_S))
            return None, late.stdout or b"", late.stderr or b""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
