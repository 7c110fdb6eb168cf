# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a load generator as an unprivileged user, and return its requests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .._evidence import program
from . import generators
from .generators import GeneratorError, GeneratorLoad
from .metrics import RequestRecord

# For a generator to load its libraries and the tokenizer, make the prompts and write its report.
_AROUND_S = 300.0
_REPORT = "report.json"
# The most by which a clock that is only slowed or hastened (at most 500 ppm) differs from the monotonic one.
_STEP_S, _SLEW = 0.1, 0.001


@dataclass(frozen=True)
class Tool:
    """A generator on this host.

    :param kind: ``guidellm`` or ``vllm``.
    :param program: the Python of guidellm's environment, or the program ``vllm`` of a stack.
    :param user: the user that runs it, if this process is root.
    :param environment: what the program needs besides the common variables.
    """

    kind: str
    program: str
    user: str = ""
    environment: Mapping[str, str] | None = None


def measure(
    tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]
) -> list[RequestRecord]:
    """Return the requests of the load.

    :param say: is called with the progress.
    :param watch: is called repeatedly; an exception from it ends the generator.
    :raises GeneratorError: if the generator failed as a whole. A failed request is a record with its error.
    """
    if not os.path.exists(tool.program):
        raise GeneratorError(f"{tool.program} is not there: run benchmark.yml with the tag install")
    environment = dict(tool.environment or {})
    with program.prepared(tool.kind, tool.user, GeneratorError, load.api_key) as running:
        report = running.path(_REPORT)
        if tool.kind == "guidellm":
            config = running.hand_over("config.json", json.dumps(generators.guidellm_config(load, report)))
            argv = generators.guidellm_argv(tool.program, config)
        else:
            argv = generators.vllm_argv(tool.program, load, report)
            environment |= {"OPENAI_API_KEY": load.api_key} if load.api_key else {}
        heard = program.changes(generators.progress_of, say)
        begun, clock = time.monotonic(), time.time() - time.monotonic()
        try:
            running.run(argv, environment, load.limit_s + _AROUND_S, heard, watch)
        except program.OverLimit:
            return generators.cut_off(load)
        stepped = time.time() - time.monotonic() - clock
        if abs(stepped) > _STEP_S + _SLEW * (time.monotonic() - begun):
            raise GeneratorError(
                f"the host's clock was set by {stepped:.1f} s meanwhile, and the times are measured by it"
            )
        read = generators.guidellm_records if tool.kind == "guidellm" else generators.vllm_records
        return read(running.report(_REPORT), load)
