# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vllm bench serve` of the simulated engine: real requests, and the columns of the real report. Standard library only.

Where a request fails, its column of errors says why, as in the real report.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LIMIT_S = 60.0


def ask(given: argparse.Namespace, prompt: str) -> dict[str, Any]:
    """Ask once, and note when the text came."""
    body = {"model": given.model, "prompt": prompt, "max_tokens": given.random_output_len, "stream": True}
    body |= {"ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(given.base_url + given.endpoint, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    started, moments, error = time.perf_counter(), [], ""
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            moments = [time.perf_counter() for line in answer if b'"text"' in line]
    except OSError as problem:
        error = str(problem)
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    first = moments[0] - started if moments else 0.0
    told = {"start_times": started, "ttfts": first, "itls": gaps, "errors": error}
    return {**told, "input_lens": len(prompt.split()), "output_lens": len(moments)}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    for word in ("base-url", "endpoint", "model", "result-dir", "result-filename"):
        parser.add_argument(f"--{word}", required=True)
    for word in ("random-input-len", "random-output-len", "num-prompts", "max-concurrency", "seed"):
        parser.add_argument(f"--{word}", type=int, required=True)
    given, _others = parser.parse_known_args(arguments)
    words = random.Random(given.seed)
    prompts = [
        " ".join(f"w{words.randrange(10**6)}" for _word in range(given.random_input_len))
        for _request in range(given.num_prompts)
    ]
    with ThreadPoolExecutor(given.max_concurrency) as pool:
        rows = list(pool.map(lambda prompt: ask(given, prompt), prompts))
    report = {key: [row[key] for row in rows] for key in rows[0]}
    Path(given.result_dir, given.result_filename).write_text(json.dumps(report))
