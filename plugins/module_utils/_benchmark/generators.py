# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load generators: their command lines, and their reports as records of requests. Pure.

Both ask ``/v1/completions`` for exactly the wanted tokens at temperature 0, and stream. The seed determines the
prompts, so the same seed asks the same again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .metrics import RequestRecord
from .shapes import RequestShape

GENERATORS = ("guidellm", "vllm")
_DONE = re.compile(r"\| successful=(\d+) errored=(\d+)")


class GeneratorError(Exception):
    """The generator gave no usable report; the text says why."""


@dataclass(frozen=True)
class GeneratorLoad:
    """The task of a generator.

    :param target: the URL without a path, such as ``http://127.0.0.1:8000``.
    :param model: the name under which the model is served.
    :param tokenizer: the folder of the model, whose tokenizer counts the tokens of the prompts.
    :param streams: the number of requests at once.
    :param limit_s: seconds after which it is broken off.
    """

    target: str
    model: str
    tokenizer: str
    shape: RequestShape
    streams: int
    seed: int
    limit_s: float
    api_key: str = ""

    @property
    def requests(self) -> int:
        return self.streams * self.shape.rounds


def guidellm_config(load: GeneratorLoad, report: str) -> dict[str, Any]:
    """Return guidellm's configuration. It is a file that contains the key, so that no argument list does."""
    spec: dict[str, Any] = {
        "backend": {
            "kind": "openai_http",
            "target": load.target,
            "model": load.model,
            "request_format": "/v1/completions",
            "http2": False,
            "validate_backend": False,
            "timeout": load.limit_s,
            "extras": {"body": {"temperature": 0}},
            **({"api_key": load.api_key} if load.api_key else {}),
        },
        "profile": {"kind": "concurrent", "streams": [load.streams]},
        "constraints": [
            {"kind": "max_requests", "count": load.requests},
            {"kind": "max_duration", "seconds": load.limit_s},
        ],
        "tokenizer": {"kind": "huggingface_auto", "model": load.tokenizer},
        "data": [
            {
                "kind": "synthetic_text",
                "prompt_tokens": load.shape.prompt_tokens,
                "output_tokens": load.shape.output_tokens,
            }
        ],
        "seed": {"kind": "static", "value": load.seed},
        # Texts of prompts and answers are not needed, and there may be many.
        "metrics": {"kind": "generative", "sample_size": 0},
        "outputs": [{"kind": "json", "path": report}],
    }
    return {"spec": spec}


def guidellm_argv(python: str, config: str) -> list[str]:
    return [python, "-m", "guidellm", "run", "--config", config, "--disable-console"]


def guidellm_records(report: Mapping[str, Any], load: GeneratorLoad) -> list[RequestRecord]:
    """Return the requests of the load's streams; raise GeneratorError if the report has another form."""
    found: dict[int, list[RequestRecord]] = {}
    try:
        for benchmark in report["benchmarks"]:
            groups = benchmark["requests"]
            streams = int(benchmark["config"]["strategy"]["streams"])
            records = [_of_guidellm(item, load, "") for item in groups["successful"]]
            records += [_of_guidellm(item, load, _reason(item)) for item in groups["errored"]]
            # Requests that never started were not asked for; the others were cut off by the limit.
            cut = [item for item in groups["incomplete"] if item["info"]["timings"]["request_start"] is not None]
            records += [_of_guidellm(item, load, _broken_off(load)) for item in cut]
            found[streams] = records
    except (KeyError, TypeError, ValueError) as error:
        raise GeneratorError(f"guidellm's report has no readable {error}: is it another version?") from error
    if load.streams not in found:
        raise GeneratorError(f"guidellm's report has nothing of {load.streams} streams: is it another version?")
    return found[load.streams]


def cut_off(load: GeneratorLoad) -> list[RequestRecord]:
    """Return the requests of a generator that hit its limit and left no report, so nobody knows which were answered."""
    wanted = load.shape.output_tokens, load.shape.prompt_tokens
    return [RequestRecord(0.0, None, None, load.limit_s, 0, 0, *wanted, _broken_off(load))] * load.requests


def _broken_off(load: GeneratorLoad) -> str:
    return f"broken off after {load.limit_s:g} s"


def _of_guidellm(item: Mapping[str, Any], load: GeneratorLoad, error: str) -> RequestRecord:
    timings = item["info"]["timings"]
    started = timings["request_start"] or timings["resolve_start"] or 0.0
    return RequestRecord(
        started_s=started,
        first_text_s=timings["first_token_iteration"],
        last_text_s=timings["last_token_iteration"],
        ended_s=timings["request_end"] or timings["resolve_end"] or started,
        prompt_tokens=int(item["input_metrics"]["total_tokens"] or 0),
        completion_tokens=int(item["output_metrics"]["total_tokens"] or 0),
        wanted_tokens=load.shape.output_tokens,
        wanted_prompt=load.shape.prompt_tokens,
        error=error,
    )


def _reason(item: Mapping[str, Any]) -> str:
    """Return an error in a few words, so that equal errors count together."""
    lines = str(item["info"].get("error") or "").strip().splitlines()
    return lines[0][:120] if lines else "failed without a reason"


def vllm_argv(program: str, load: GeneratorLoad, report: str) -> list[str]:
    """Return the command of ``vllm bench serve`` of the installed stack."""
    folder, _slash, name = report.rpartition("/")
    return [
        program,
        "bench",
        "serve",
        "--backend=openai",
        f"--base-url={load.target}",
        "--endpoint=/v1/completions",
        f"--model={load.model}",
        f"--tokenizer={load.tokenizer}",
        "--dataset-name=random",
        f"--random-input-len={load.shape.prompt_tokens}",
        f"--random-output-len={load.shape.output_tokens}",
        f"--num-prompts={load.requests}",
        f"--max-concurrency={load.streams}",
        f"--seed={load.seed}",
        "--ignore-eos",
        "--temperature=0",
        "--ready-check-timeout-sec=0",
        "--disable-tqdm",
        "--save-result",
        "--save-detailed",
        f"--result-dir={folder}",
        f"--result-filename={name}",
    ]


def vllm_records(report: Mapping[str, Any], load: GeneratorLoad) -> list[RequestRecord]:
    """Return the requests of one run; raise GeneratorError if the report has another form."""
    try:
        columns = zip(
            report["start_times"],
            report["ttfts"],
            report["itls"],
            report["input_lens"],
            report["output_lens"],
            report["errors"],
            strict=True,
        )
        return [_of_vllm(columns_of_one, load) for columns_of_one in columns]
    except (KeyError, TypeError, ValueError) as error:
        raise GeneratorError(
            f"the report of `vllm bench serve` has no readable {error}: this release does not tell about its requests; "
            "use guidellm (benchmark_generator)"
        ) from error


def _of_vllm(columns: Sequence[Any], load: GeneratorLoad) -> RequestRecord:
    started, ttft, gaps, prompt, completion, error = columns
    lines = str(error or "").strip().splitlines()
    answered = not lines and completion > 0
    ended = started + ttft + sum(gaps)
    return RequestRecord(
        started_s=started,
        first_text_s=started + ttft if answered else None,
        last_text_s=ended if answered else None,
        ended_s=ended,
        prompt_tokens=int(prompt),
        completion_tokens=int(completion),
        wanted_tokens=load.shape.output_tokens,
        wanted_prompt=load.shape.prompt_tokens,
        error=lines[-1][:120] if lines else "" if completion > 0 else "no answer",
    )


def progress_of(log: str) -> str:
    """Return what the generator last said of its requests; empty if it said nothing."""
    found = _DONE.findall(log)
    if not found:
        return ""
    done, failed = map(int, found[-1])
    return f"{done} answered" + (f", {failed} failed" if failed else "")
