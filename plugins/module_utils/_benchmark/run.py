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
from typing import Any

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


def measure(tool: Tool, load: Load, say: Callable[[str], None] = lambda text: None) -> dict[int, list[RequestRecord]]:
    """Return the requests for each number of streams of the load. `say` hears how far it is.

    :raises GeneratorError: where the generator failed as a whole. A failed request is a record with its error.
    """
    if not os.path.exists(tool.program):
        raise GeneratorError(f"{tool.program} is not there: run benchmark.yml with the tag install")
    with tempfile.TemporaryDirectory(prefix="b70-benchmark-") as folder:
        owner = _rights(tool.user)
        if owner:
            os.chown(folder, owner["user"], owner["group"])
        if tool.kind == "guidellm":
            report, config = os.path.join(folder, "report.json"), os.path.join(folder, "config.json")
            _hand_over(config, json.dumps(generators.guidellm_config(load, report)), owner)
            limit_s = load.limit_s * len(load.streams) + _AROUND_S
            _run(tool, generators.guidellm_argv(tool.program, config), folder, owner, limit_s, load, say)
            return generators.guidellm_records(_report(report), load)
        found = {}
        for streams in load.streams:
            name = f"{streams}.json"
            argv = generators.vllm_argv(tool.program, load, streams, folder, name)
            _run(tool, argv, folder, owner, load.limit_s + _AROUND_S, load, say)
            found[streams] = generators.vllm_records(_report(os.path.join(folder, name)), load)
        return found


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
        os.chown(path, owner["user"], owner["group"])


def _run(
    tool: Tool,
    argv: Sequence[str],
    folder: str,
    owner: Mapping[str, Any],
    limit_s: float,
    load: Load,
    say: Callable[[str], None],
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
    log = os.path.join(folder, "log")
    with open(log, "wb") as output:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **owner,
        )
    ends = time.monotonic() + limit_s
    said = ""
    try:
        while True:
            try:
                process.wait(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends:
                    raise GeneratorError(f"{tool.kind} did not end within {limit_s:g} s (benchmark_limit)") from None
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


def _tail(path: str) -> str:
    with open(path, "rb") as stream:
        stream.seek(max(0, os.path.getsize(path) - _TAIL))
        return stream.read().decode(errors="replace")


def _report(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError) as error:
        raise GeneratorError(f"the generator left no report that can be read: {error}") from error
    if not isinstance(data, dict):
        raise GeneratorError("the generator's report is no JSON object")
    return data
