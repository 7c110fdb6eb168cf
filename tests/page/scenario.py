# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor with a made-up engine and made-up visitors, whose slot's state is told on standard input.

Prints its port. Each line of JSON on standard input changes the state file: a table of its fields, and `liveness` is
the file of the watchdog. The word `kill` ends the engine. The arguments are a file of keys, which may be empty, and the
name of a second slot; then `second` in a line has the fields of its state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE / "tests"), str(ROOT / "tests")]

import uvloop  # noqa: E402
from kit import Bench, Call, bench, changed_state  # noqa: E402

from frontdoor.http.client import ClientConnection  # noqa: E402
from frontdoor.slot.reports import machine  # noqa: E402

PROFILE = {
    "name": "gemma4-12b-it-int4-autoround-c8",
    "title": "Gemma 4 12B IT, INT4 AutoRound",
    "hf_id": "Intel/gemma-4-12B-it-int4-AutoRound",
    "modalities": ["text", "image"],
    "status": "candidate",
    "served_model_name": "gemma4-12b-it-int4-autoround",
    "max_model_len": 32768,
    "fingerprint": "sha256:5e0c7d1a9b3f4e62a8d4c1b7f09e3a5d6c2b8f7e1d0a4c3b9e8f7a6d5c4b3a21",
    "examined": "sha256:0d9f6c1b7a2e3d4c5b6a79880f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
}


SECOND = {
    "name": "qwen3-4b-instruct-2507-fp8",
    "title": "Qwen3 4B Instruct 2507, FP8",
    "hf_id": "Qwen/Qwen3-4B-Instruct-2507-FP8",
    "modalities": ["text"],
    "status": "candidate",
    "served_model_name": "qwen3-4b-instruct",
    "max_model_len": 16384,
    "fingerprint": "sha256:77aa7d1a9b3f4e62a8d4c1b7f09e3a5d6c2b8f7e1d0a4c3b9e8f7a6d5c4b3a21",
    "examined": "sha256:0d9f6c1b7a2e3d4c5b6a79880f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
}


def stamp(ago_s: float) -> str:
    """A time of day, some seconds ago."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_s))


def journal() -> str:
    """Three switches: one that was done, one that went back, one that was done."""
    wrong = "phase canary: a canary answer was wrong or missing"
    rows: list[dict[str, Any]] = []
    for number, (ago, source, target, outcome, seconds, why) in enumerate(
        (
            (90_000, None, "qwen36-35b-a3b-int4-autoround", "committed", 312.4, ""),
            (5_400, "qwen36-35b-a3b-int4-autoround", "gemma4-12b-it-int4-autoround-c16", "rolled_back", 201.7, wrong),
            (1_260, "qwen36-35b-a3b-int4-autoround", PROFILE["name"], "committed", 64.2, ""),
        )
    ):
        begin = {"event": "begin", "id": str(number), "at": stamp(ago), "kind": "switch", "from": source, "to": target}
        end = {"event": "end", "id": str(number), "outcome": outcome, "seconds": seconds, "profile": target}
        rows += [begin, {**end, "reason": why} if why else end]
    return "".join(json.dumps(row) + "\n" for row in rows)


def records() -> str:
    """A benchmark with figures, and the gate that was passed."""
    told = {"benchmark": "781 tok/s with 8 streams", "promotion": "13 of 14 items passed, 1 do not apply"}
    same = {"slot": "main", "profile": PROFILE["name"], "verdict": "passed"}
    same |= {key: PROFILE[key] for key in ("fingerprint", "examined")}
    rows = [
        {"id": f"20261123T041600Z-{kind}-x-5e1f0c", "number": number, "kind": kind, "began_at": stamp(900)}
        | same
        | {"ended_at": stamp(600), "summary": text}
        for number, (kind, text) in enumerate(told.items(), 1)
    ]
    return json.dumps({"schema": 1, "machine": machine(), "records": rows})


class Visitors:
    """An engine that streams, and clients that come and go."""

    def __init__(self, run: Bench) -> None:
        self._run = run
        self._random = random.Random(7)
        self._tokens = 0
        run.engine.script = self.answer

    async def answer(self, call: Call) -> None:
        """Generate at about 60 tokens/s."""
        if call.request.line.startswith("GET /metrics "):
            rows = f'vllm:generation_tokens_total{{engine="0"}} {self._tokens}\nvllm:kv_cache_usage_perc 0.31\n'
            await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(rows)}\r\n\r\n{rows}".encode())
            return
        await call.begin_events()
        await asyncio.sleep(self._random.uniform(0.08, 0.35))
        for _step in range(self._random.randrange(40, 160)):
            await call.event('{"choices":[{"delta":{"content":"so"}}]}')
            self._tokens += 1
            await asyncio.sleep(0.016)
        await call.send(b"0\r\n\r\n")

    async def visit(self, model: str = "gemma4-12b-it-int4-autoround") -> None:
        """Ask, think, ask again."""
        client = await self._run.client()
        paths = ["/v1/chat/completions"] * 6 + ["/v1/responses", "/v1/messages"]
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 2.5))
            # an answer may be cut, when the engine is killed
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await client.ask("POST", self._random.choice(paths), json.dumps({"model": model}).encode())


def past(run: Bench) -> None:
    """Five minutes that were watched before anybody looks."""
    activity, chance = run.app.ledger.activities[0], random.Random(3)
    pace = 420.0
    for second in range(300, 0, -1):
        pace = min(790.0, max(60.0, pace + chance.uniform(-45, 45)))
        refused = chance.choice([0] * 14 + [1, 2]) if pace > 600 else 0
        active = min(8, round(pace / 95))
        first = round(chance.uniform(90, 240)) if chance.random() < 0.5 else -1
        activity._samples.append(
            (round(time.time() - second), active, 0, active * 60, 1, refused, first, round(pace, 1))
        )


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="b70-scenario-") as folder:
        file = Path(folder) / "main.jsonl"
        file.write_text(journal())
        index = Path(folder) / "index.json"
        index.write_text(records())
        limits = {"max_active_generations": 8, "queue_timeout_s": 0, "backend_timeout_s": 600}
        unit = f"b70-slot-main-{PROFILE['name']}.service"
        (Path(folder) / f"invocation:{unit}").symlink_to("0" * 32)
        engine = {"unit": unit, "invocation_id": "0" * 32, "started_at": stamp(1250)}
        base = {
            "profile": PROFILE,
            "engine": engine,
            "limits": limits,
            "updated_at": stamp(1200),
            "verified_at": stamp(1200),
        }
        keys_file, second = [*sys.argv[1:], "", ""][:2]
        sections: dict[str, Any] = {"auth": {"keys_file": keys_file}} if keys_file else {}
        (Path(folder) / second).mkdir(exist_ok=True)
        place = Path(folder) / second / "second.json"
        if second:
            sections["slots"] = [{"name": second, "state_file": str(place), "units_dir": folder}]
            place.write_text("{}")
        backend = {"metrics_interval_s": 1.0}
        async with bench(
            Path(folder),
            state=base,
            slot={"journal_file": str(file), "records_file": str(index)},
            backend=backend,
            **sections,
        ) as run:

            def tell(file: Path, state: dict[str, Any]) -> None:
                """Change the files of a slot."""
                watchdog = file.with_name("liveness.json")
                if seen := state.pop("liveness", None):
                    watchdog.write_text(json.dumps(seen))
                else:
                    watchdog.unlink(missing_ok=True)
                for replica in state.get("replicas", ()):
                    replica["backend_url"] = replica["backend_url"] or run.engine.url
                file.with_suffix(".new").write_text(json.dumps(changed_state(run.engine.url, state)))
                file.with_suffix(".new").rename(file)
                run.app.poll_state()

            other_base = {**base, "slot": second, "profile": SECOND}
            if second:
                tell(place, dict(other_base))
            visitors = Visitors(run)
            past(run)
            tasks = [asyncio.create_task(visitors.visit()) for _visitor in range(11)]
            if second:
                tasks.append(asyncio.create_task(visitors.visit("qwen3-4b-instruct")))
            # the same door by an address that is not the visitor's own
            loop = asyncio.get_running_loop()
            other = await loop.create_server(lambda: ClientConnection(run.app.server), "127.0.0.2", run.port)
            print(run.port, flush=True)
            reader = asyncio.StreamReader()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            while line := await reader.readline():
                if line == b"kill\n":
                    await run.engine.kill()
                else:
                    told = json.loads(line)
                    if second:
                        tell(place, {**other_base, **told.pop("second", {})})
                    tell(Path(run.state_path), {**base, **told})
            other.close()
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    uvloop.run(main())
