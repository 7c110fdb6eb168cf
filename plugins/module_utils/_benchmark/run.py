# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a load generator as a user without rights, and return its requests. Effects stand here and in job.py."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

from .._slot.host.files import regular
from . import generators
from .generators import GeneratorError, Load
from .metrics import RequestRecord

# A generator loads its libraries and the tokenizer, makes the prompts and writes its report.
_AROUND_S = 300.0
_LOOK_S = 2.0
_TAIL = 4000


@dataclass(frozen=True)
class Tool:
    """A generator on this host.

    :param kind: ``guidellm`` or ``vllm``.
    :param program: the Python of guidellm's environment, or the program ``vllm`` of a stack.
    :param user: runs it, where this process is root.
    :param environment: what the program needs beside the common variables.
    """

    kind: str
    program: str
    user: str = ""
    environment: Mapping[str, str] | None = None


class _OverLimit(Exception):
    """The generator was ended because of `benchmark_limit`."""


def measure(tool: Tool, load: Load, say: Callable[[str], None], watch: Callable[[], None]) -> list[RequestRecord]:
    """Return the requests of the load.

    :param say: hears how far it is.
    :param watch: is called again and again; what it raises ends the generator.
    :raises GeneratorError: where the generator failed as a whole. A failed request is a record with its error.
    """
    if not os.path.exists(tool.program):
        raise GeneratorError(f"{tool.program} is not there: run benchmark.yml with the tag install")
    with tempfile.TemporaryDirectory(prefix="b70-benchmark-") as outer:
        owner = _rights(tool.user)
        # The generator's user owns the folder and not its place, so it can't put another thing there.
        os.chmod(outer, 0o711)
        folder = os.path.join(outer, "work")
        os.mkdir(folder, 0o700)
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        report = os.path.join(folder, "report.json")
        if tool.kind == "guidellm":
            config = os.path.join(folder, "config.json")
            _hand_over(config, json.dumps(generators.guidellm_config(load, report)), owner)
            argv = generators.guidellm_argv(tool.program, config)
        else:
            argv = generators.vllm_argv(tool.program, load, report)
        try:
            _run(tool, argv, folder, owner, load, say, watch)
        except _OverLimit:
            return generators.cut_off(load)
        read = generators.guidellm_records if tool.kind == "guidellm" else generators.vllm_records
        return read(_report(report), load)


def _rights(user: str) -> dict[str, Any]:
    if not user or os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise GeneratorError(f"the user {user} of benchmark_user is not known on this host") from error
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _hand_over(path: str, text: str, owner: Mapping[str, Any]) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
        if owner:
            os.fchown(stream.fileno(), owner["user"], owner["group"])


def _run(
    tool: Tool,
    argv: Sequence[str],
    folder: str,
    owner: Mapping[str, Any],
    load: Load,
    say: Callable[[str], None],
    watch: Callable[[], None],
) -> None:
    # Nothing is fetched: tokenizer and data are here.
    environment = {
        **(tool.environment or {}),
        "PATH": "/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "HF_HOME": os.path.join(folder, "hf"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"OPENAI_API_KEY": load.api_key} if load.api_key and tool.kind == "vllm" else {}),
    }
    # A file without a name: the generator's user can put no other one in its place.
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **owner,
        )
        ends = time.monotonic() + load.limit_s + _AROUND_S
        said = ""
        try:
            while True:
                try:
                    process.wait(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > ends:
                        raise _OverLimit from None
                watch()
                now = generators.progress_of(_tail(log))
                if now and now != said:
                    said = now
                    say(now)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
            raise GeneratorError(f"{tool.kind} ended with {process.returncode}: {' / '.join(lines[-3:])[-400:]}")


def _tail(log: IO[bytes]) -> str:
    # Reads at a place, because the generator shares the place at which it writes.
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace")


def _report(path: str) -> dict[str, Any]:
    try:
        # Whoever wrote it has fewer rights than who reads it.
        with (
            regular(PurePosixPath(path), os.O_RDONLY | os.O_NOFOLLOW) as handle,
            open(handle, encoding="utf-8", closefd=False) as stream,
        ):
            data = json.load(stream)
    except (OSError, ValueError) as error:
        raise GeneratorError(f"the generator left no report that can be read: {error}") from error
    if not isinstance(data, dict):
        raise GeneratorError("the generator's report is no JSON object")
    return data
