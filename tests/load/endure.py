#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try to break the frontdoor: mutated requests, engines that die, clients that leave.

Each trial runs a frontdoor as a process of its own, with an engine and clients here. It ends with an error unless
every client got a valid ending, nothing is held afterwards, and descriptors and memory are where they were.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE / "tests")]

from kit import Answer, Call, Client, Engine, serving_state, start_unit  # noqa: E402
from mutation import mutate  # noqa: E402

CHAT = "/v1/chat/completions"
DOOR_PORT, ENGINE_PORT = 18296, 18297


class Broken(AssertionError):
    """The frontdoor did what it must not do."""


class Trial:
    """A running frontdoor, its engine, and what was measured."""

    def __init__(self, folder: Path, engine: Engine, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.engine = engine
        self.process = process
        self.sequence = 0
        self.idle = (0, 0.0)

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", DOOR_PORT, limit=2**20))

    def write_state(self, **changes: Any) -> None:
        """Replace the state file as the switch does."""
        self.sequence += 1
        state = {**serving_state(self.engine.url), "sequence": self.sequence, **changes}
        new = self.folder / "state.new"
        new.write_text(json.dumps(state))
        new.rename(self.folder / "state.json")

    async def status(self) -> dict[str, Any]:
        client = await self.client()
        answer = await client.ask("GET", "/status")
        client.leave()
        found: dict[str, Any] = answer.json
        return found

    def size(self) -> tuple[int, float]:
        """Open descriptors and resident memory in MB."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/status").read_text()
        return len(os.listdir(f"/proc/{pid}/fd")), int(text.split("VmRSS:")[1].split()[0]) / 1024

    async def settled(self) -> dict[str, Any]:
        """Wait until nothing is under way; raise Broken when something stays."""
        for _ in range(200):
            status = await self.status()
            door = status["frontdoor"]
            left = [door[n] for n in ("active_generations", "queued_generations", "active_requests", "buffered_bytes")]
            if not any(left) and door["client_connections"] <= 1:
                return status
            await asyncio.sleep(0.05)
        raise Broken(f"something is still held: {door}")


@contextlib.asynccontextmanager
async def trial(limits: dict[str, Any]) -> AsyncIterator[Trial]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = Engine()
        engine.port = ENGINE_PORT
        await engine.start()
        start_unit(folder)
        config = folder / "frontdoor.toml"
        config.write_text(
            f'[listen]\nhost = "127.0.0.1"\nport = {DOOR_PORT}\n'
            f'[slot]\nstate_file = "{folder}/state.json"\nunits_dir = "{folder}"\n'
            f'[backend]\nurl = "{engine.url}"\n'
            "[limits]\nheader_timeout_s = 0.5\nbody_idle_timeout_s = 0.5\nkeepalive_timeout_s = 5\n"
            "max_body_bytes = 100000\n"
        )
        log = open(folder / "events.jsonl", "wb")  # noqa: SIM115
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", "-m", "frontdoor", "--config", str(config)),
            env={**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONMALLOC": "malloc"},
            stdout=log,
            stderr=asyncio.subprocess.PIPE,
        )
        run = Trial(folder, engine, process)
        run.write_state(limits=limits)
        try:
            for _ in range(500):
                with contextlib.suppress(OSError):
                    await run.status()
                    break
                await asyncio.sleep(0.02)
            run.idle = run.size()
            yield run
            await run.settled()
        finally:
            await engine.kill()
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), 30)
            log.close()
        if process.returncode != 0 or errors:
            raise Broken(f"the frontdoor ended with {process.returncode}: {errors.decode()[-2000:]}")


async def flat(run: Trial, warm: tuple[int, float]) -> None:
    """Complain when descriptors stay open, or memory grew since the frontdoor was warm."""
    for _ in range(100):
        # idle connections to the engine are kept for some seconds
        if run.size()[0] <= run.idle[0] + 2:
            break
        await asyncio.sleep(0.1)
    descriptors, memory = run.size()
    print(f"  descriptors {run.idle[0]} -> {descriptors}, memory {warm[1]:.1f} -> {memory:.1f} MB")
    if descriptors > run.idle[0] + 2:
        raise Broken(f"descriptors grew from {run.idle[0]} to {descriptors}")
    if memory > warm[1] * 1.15 + 4:
        raise Broken(f"memory grew from {warm[1]:.1f} to {memory:.1f} MB")


def ended_well(answer: Answer) -> None:
    """An answer is complete, or a stream that says what went wrong, or one clean error."""
    if answer.status == 200 and answer.chunks is not None:
        body = answer.body
        if not body.endswith(b"\n\n") or (b"[DONE]" not in body and b'"code":"engine_' not in body):
            raise Broken(f"a stream ended without a word: {body[-200:]!r}")
    elif answer.status != 200 and not answer.json["error"]["message"]:
        raise Broken(f"an error without a message: {answer.body!r}")


def kind_of(answer: Answer) -> str:
    """How an answer ended, for the report."""
    if answer.status != 200:
        return f"{answer.status} {answer.json['error']['code']}"
    return "whole" if b"[DONE]" in answer.body else "ended with an error event"


async def stream(call: Call) -> None:
    """A short stream as vLLM sends it."""
    await call.begin_events()
    for number in range(20):
        await call.event(json.dumps({"choices": [{"delta": {"content": f"token {number} "}}]}))
        await asyncio.sleep(0.002)
    await call.event("[DONE]")
    await call.send(b"0\r\n\r\n")


async def kills(count: int) -> None:
    """Kill the engine in the middle of streams; every client must get a valid ending."""
    async with trial({"max_active_generations": 64, "queue_timeout_s": 5, "backend_timeout_s": 30}) as run:
        run.engine.script = stream
        endings: dict[str, int] = {}
        stop = asyncio.Event()

        async def visitor() -> None:
            client = await run.client()
            while not stop.is_set():
                client.request("POST", CHAT, b"{}")
                try:
                    answer = await asyncio.wait_for(client.answer(), 20)
                except (asyncio.IncompleteReadError, ConnectionError) as exc:
                    raise Broken(f"a client's connection broke: {exc!r}") from exc
                ended_well(answer)
                kind = kind_of(answer)
                endings[kind] = endings.get(kind, 0) + 1
                if answer.header("Connection") == "close" or (answer.status == 200 and kind != "whole"):
                    client.leave()
                    client = await run.client()
            client.leave()

        visitors = [asyncio.create_task(visitor()) for _ in range(24)]
        rng = random.Random(1)
        for number in range(count):
            await asyncio.sleep(rng.uniform(0.01, 0.08))
            await run.engine.kill()
            await asyncio.sleep(rng.uniform(0, 0.02))
            await run.engine.start()
            if number == 10:
                before = run.size()
            failed = [task for task in visitors if task.done()]
            for task in failed:
                task.result()
        stop.set()
        await asyncio.gather(*visitors)
        await run.settled()
        print(f"{count} kills, endings: {endings}")
        await flat(run, before)


async def soak(count: int) -> None:
    """Streams through restarts of the engine, reloads of the state, and clients that leave."""
    async with trial({"max_active_generations": 12, "queue_timeout_s": 0.5, "backend_timeout_s": 30}) as run:
        run.engine.script = stream
        done = 0
        rng = random.Random(2)
        seen: dict[str, int] = {}
        before: tuple[int, float] | None = None

        async def visitor() -> None:
            nonlocal done
            client = await run.client()
            while done < count:
                body = b'{"x":"' + b"y" * rng.randrange(20_000) + b'"}'
                client.request("POST", rng.choice((CHAT, "/v1/completions")), body)
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.uniform(0, 0.05))
                    client.leave()
                    client = await run.client()
                    continue
                answer = await asyncio.wait_for(client.answer(), 20)
                ended_well(answer)
                done += answer.status == 200
                seen[kind_of(answer)] = seen.get(kind_of(answer), 0) + 1
                if answer.header("Connection") == "close" or (answer.status == 200 and b"[DONE]" not in answer.body):
                    client.leave()
                    client = await run.client()
                if answer.status == 503:
                    await asyncio.sleep(0.01)
            client.leave()

        async def meddle() -> None:
            nonlocal before
            while done < count:
                await asyncio.sleep(0.5)
                what = rng.randrange(4)
                if what == 0:
                    await run.engine.kill()
                    await run.engine.start()
                elif what == 1:
                    run.process.send_signal(signal.SIGHUP)
                elif what == 2:
                    run.write_state(phase="switching", open=False, switch={"from": "a", "to": "b"})
                    await asyncio.sleep(0.1)
                    run.write_state(limits={"max_active_generations": rng.randrange(4, 16), "queue_timeout_s": 0.5})
                else:
                    run.write_state(request={"chat_template_kwargs": {"n": rng.randrange(9)}})
                if before is None and done > count / 5:
                    before = run.size()

        await asyncio.gather(meddle(), *(visitor() for _ in range(24)))
        run.write_state()
        status = await run.settled()
        print(f"{done} streams, answers: {seen}, outcomes: {status['frontdoor']['outcomes']}")
        assert before is not None
        await flat(run, before)


async def fuzz(count: int) -> None:
    """Mutated requests, each followed by a proper one on the same connection: answered rightly or not at all."""
    marks = 0
    async with trial({"max_active_generations": 16, "queue_timeout_s": 1, "backend_timeout_s": 30}) as run:

        async def echo(call: Call) -> None:
            await call.json({"line": call.request.line})

        run.engine.script = echo
        sent = 0
        seen: dict[str, int] = {}
        before: tuple[int, float] | None = None

        async def visitor(seed: int) -> None:
            nonlocal sent, before, marks
            rng = random.Random(seed)
            client = await run.client()
            while sent < count:
                sent += 1
                if before is None and sent > count / 5:
                    before = run.size()
                data = mutate(rng)
                mark = f"/v1/models/mark-{seed}-{sent}"
                client.send(data)
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
                client.send(f"GET {mark} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                try:
                    async with asyncio.timeout(3):
                        raw = await client.reader.read()
                except ConnectionError:
                    raw = b""
                except TimeoutError as exc:
                    raise Broken(f"neither answered nor closed: {data!r}") from exc
                client.leave()
                check(data, raw, mark, seen)
                marks += f'"line": "GET {mark} '.encode() in raw
                client = await run.client()
            client.leave()

        await asyncio.gather(*(visitor(seed) for seed in range(16)))
        for request in run.engine.requests:
            sane(request.line)
        await run.settled()
        print(
            f"{sent} requests, first answers: {dict(sorted(seen.items()))}; "
            f"{marks} proper ones after them were answered"
        )
        assert before is not None
        await flat(run, before)


def check(data: bytes, raw: bytes, mark: str, seen: dict[str, int]) -> None:
    """What came back is a row of HTTP answers; the answer to the proper request, if any, is the last one."""
    first = raw.split(b"\r\n", 1)[0].decode("latin-1") if raw else "closed"
    kind = first[9:12] if first.startswith("HTTP/1.1 ") else first
    seen[kind] = seen.get(kind, 0) + 1
    if kind not in ("closed", "100") and not kind.isdigit():
        raise Broken(f"{data!r} was answered with {raw[:300]!r}")
    if kind == "500":
        raise Broken(f"{data!r} broke something: {raw[:300]!r}")
    at = raw.find(mark.encode())
    if at >= 0 and b"HTTP/1.1 " in raw[at:]:
        raise Broken(f"after {data!r} something came behind the last answer: {raw[at:]!r}")


def sane(line: str) -> None:
    """The engine only ever sees requests in their canonical form."""
    method, path, version = line.split(" ")
    if version != "HTTP/1.1" or not path.startswith("/") or not method.isupper():
        raise Broken(f"the engine was sent {line!r}")


TRIALS: dict[str, tuple[Callable[[int], Coroutine[Any, Any, None]], int]] = {
    "kills": (kills, 200),
    "soak": (soak, 10_000),
    "fuzz": (fuzz, 200_000),
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trial", choices=[*TRIALS, "all"])
    parser.add_argument("--count", type=int, help="how many kills, streams or requests")
    options = parser.parse_args(argv)
    for name in TRIALS if options.trial == "all" else [options.trial]:
        work, usual = TRIALS[name]
        started = time.monotonic()
        print(f"{name}:", flush=True)
        try:
            uvloop.run(work(options.count or usual))
        except Broken as exc:
            print(f"  BROKEN: {exc}")
            return 1
        print(f"  held, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
