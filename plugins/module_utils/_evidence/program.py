# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program of the measuring tools as an unprivileged user, in its own folder with the files it is given."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, Any

from .._slot.host.files import regular
from .._slot.words.redact import clean

LOOK_S = 2.0
_TAIL = 4000
_SPARE = 200
_ALL = 2**20  # of the output of a program that failed: its cause may be far from the end


class OverLimit(Exception):
    """The program was ended because it exceeded its time limit."""


@dataclass(frozen=True)
class Program:
    """A program, its folder and its rights.

    :param name: its name in errors.
    :param folder: belongs to the user and is removed in the end.
    :param fault: what is raised if the program fails.
    :param owner: the user that runs it, as arguments of `subprocess`; empty if this process is not root.
    :param secrets: what the program is given and what is hidden in everything read of its output.
    """

    name: str
    folder: str
    fault: type[Exception]
    owner: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def hand_over(self, name: str, text: str) -> str:
        """Write a file that only the program's user can read, and return its path."""
        path = self.path(name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
            if self.owner:
                os.fchown(stream.fileno(), self.owner["user"], self.owner["group"])
        return path

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        limit_s: float,
        hear: Callable[[str], None],
        watch: Callable[[], None],
        cause: Callable[[str], str] = lambda output: "",
    ) -> None:
        """Run the program to its end.

        :param hear: is called repeatedly with the end of the output.
        :param watch: is called as often; an exception from it ends the program.
        :param cause: reads from the output why the program failed; the fault says this before the last lines.
        :raises OverLimit: after `limit_s` seconds.
        """
        # The program fetches nothing: models and data are here.
        complete = {
            **environment,
            "PATH": "/usr/bin:/bin",
            "HOME": self.folder,
            "TMPDIR": self.folder,
            "HF_HOME": self.path("hf"),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Otherwise an error on one stream appears before earlier output on the other.
            "PYTHONUNBUFFERED": "1",
        }
        # The file has no name, so the program's user can't replace it.
        with tempfile.TemporaryFile() as log:
            try:
                process = subprocess.Popen(
                    list(argv),
                    cwd=self.folder,
                    env=complete,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    **self.owner,
                )
            except OSError as error:
                raise self.fault(f"{self.name} can't be run: {error}") from error
            ends = time.monotonic() + limit_s
            try:
                while True:
                    try:
                        process.wait(timeout=LOOK_S)
                        break
                    except subprocess.TimeoutExpired:
                        if time.monotonic() > ends:
                            raise OverLimit from None
                    watch()
                    hear(self._output(log, _TAIL))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode != 0:
                output = self._output(log, _ALL)
                lines = [line.strip() for line in output[-_TAIL:].splitlines() if line.strip()]
                words = "; ".join(part for part in (cause(output), " / ".join(lines[-3:])[-400:]) if part)
                raise self.fault(f"{self.name} ended with {process.returncode}: {words}")

    def _output(self, log: IO[bytes], most: int) -> str:
        """Return the end of the output, without secrets."""
        # Read this much more, so that no rest of a secret is left where the output is cut.
        spare = _SPARE + 4 * max(map(len, self.secrets), default=0)
        # pread leaves the file's offset alone, at which the program writes.
        start = max(0, os.fstat(log.fileno()).st_size - most - spare)
        found = os.pread(log.fileno(), most + spare, start)
        return clean(found.decode(errors="replace"), self.secrets)[spare if start else 0 :]

    def report(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file that the program wrote."""
        try:
            # The file's writer has fewer rights than its reader.
            with (
                regular(PurePosixPath(self.path(name)), os.O_RDONLY | os.O_NOFOLLOW) as handle,
                open(handle, encoding="utf-8", closefd=False) as stream,
            ):
                data = json.load(stream)
        except (OSError, ValueError, RecursionError) as error:
            raise self.fault(f"{self.name} left no report that can be read: {error}") from error
        if not isinstance(data, dict):
            raise self.fault(f"the report of {self.name} is no JSON object")
        return data


@contextmanager
def prepared(name: str, user: str, fault: type[Exception], *secrets: str) -> Iterator[Program]:
    """Make the folder of a program, and remove it in the end.

    :param user: the user that the program runs as, if this process is root and the name is not empty.
    :param secrets: see Program.
    """
    with tempfile.TemporaryDirectory(prefix=f"b70-{name}-") as outer:
        owner = _rights(user, fault)
        # The program's user owns the folder but not its parent, so it can't replace the folder.
        os.chmod(outer, 0o711)
        folder = os.path.join(outer, "work")
        os.mkdir(folder, 0o700)
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        yield Program(name, folder, fault, owner, secrets)


def _rights(user: str, fault: type[Exception]) -> dict[str, Any]:
    if not user or os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise fault(f"the user {user}, as whom it would run, is not known on this host") from error
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def changes(read: Callable[[str], str], say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that reads the end of an output, and calls `say` with what it reads whenever that is new."""
    said = ""

    def hear(log: str) -> None:
        nonlocal said
        now = read(log)
        if now and now != said:
            said = now
            say(now)

    return hear
