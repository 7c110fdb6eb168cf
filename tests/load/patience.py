# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of the official library, with its own patience, at a few slots: how many are served, and when.

python tests/load/patience.py --seconds 3
python tests/load/patience.py --seconds 3 --queue 120
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import openai

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "roles/frontdoor/files/frontdoor/tests"
sys.path[:0] = [str(TESTS.parent / "src"), str(TESTS), str(ROOT / "tests")]

from kit import Bench, Call, bench  # noqa: E402

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny-a",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "OK"}, "finish_reason": "stop"}],
}


async def asked(run: Bench) -> str:
    """One client asks once, as often as its library does that by itself; what came of it."""
    url = f"http://127.0.0.1:{run.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        try:
            await client.chat.completions.create(model="tiny-a", messages=[{"role": "user", "content": "?"}])
        except openai.APIStatusError as refused:
            return str(refused.code)
        return "served"


async def party(clients: int, slots: int, seconds: float, queue_s: float) -> None:
    """Let all come at once, after some generations that tell how long such take."""
    limits = {"max_active_generations": slots, "queue_timeout_s": queue_s, "backend_timeout_s": 600}
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        async with bench(Path(folder), state={"limits": limits}) as run:
            run.spread = random.random

            async def generate(call: Call) -> None:
                await asyncio.sleep(seconds * rng.uniform(0.8, 1.2))
                await call.json(ANSWER)

            run.engine.script = generate
            await asyncio.gather(*(asked(run) for _ in range(slots)))
            begun = time.monotonic()
            results = Counter(await asyncio.gather(*(asked(run) for _ in range(clients))))
            took = time.monotonic() - begun
            how = f"a queue of {queue_s:g} s" if queue_s else "no queue"
            print(
                f"openai {openai.__version__}, {clients} clients at {slots} slots of {seconds:g} s, {how}: "
                f"{dict(results)}, after {took:.0f} s"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a generation takes")
    parser.add_argument("--queue", type=float, default=0.0, help="the profile's queue_timeout_s")
    given = parser.parse_args()
    asyncio.run(party(given.clients, given.slots, given.seconds, given.queue))
