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
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from trial import Broken, ended_well, flat, kind_of, trial

# isort: split
from kit import Call, moody
from mutation import mutate

CHAT = "/v1/chat/completions"


async def stream(call: Call) -> None:
    """A short stream as vLLM sends it."""
    await call.begin_events()
    for number in range(20):
        await call.event(json.dumps({"choices": [{"delta": {"content": f"token {number} "}}]}))
        await asyncio.sleep(0.002)
    await call.event("[DONE]")
    await call.send(b"0\r\n\r\n")


async def kills(count: int, seed: int) -> None:
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
        rng = random.Random(seed)
        for number in range(count):
            await asyncio.sleep(rng.uniform(0.01, 0.08))
            await run.engine.kill()
            await asyncio.sleep(rng.uniform(0, 0.02))
            await run.engine.start()
            if number == count // 5:
                before = run.size()
            failed = [task for task in visitors if task.done()]
            for task in failed:
                task.result()
        stop.set()
        await asyncio.gather(*visitors)
        await run.settled()
        print(f"{count} kills, endings: {endings}")
        await flat(run, before)


async def soak(count: int, seed: int) -> None:
    """Streams through restarts of the engine, reloads of the state, and clients that leave."""
    async with trial({"max_active_generations": 12, "queue_timeout_s": 0.5, "backend_timeout_s": 30}) as run:
        run.engine.script = stream
        done = 0
        rng = random.Random(seed)
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


async def fuzz(count: int, seed: int) -> None:
    """Mutated requests, each followed by a proper one on the same connection: answered rightly or not at all."""
    marks = 0
    async with trial({"max_active_generations": 16, "queue_timeout_s": 1, "backend_timeout_s": 30}) as run:

        async def echo(call: Call) -> None:
            await call.json({"line": call.request.line})

        run.engine.script = echo
        sent = 0
        seen: dict[str, int] = {}
        before: tuple[int, float] | None = None

        async def visitor(number: int) -> None:
            nonlocal sent, before, marks
            rng = random.Random(seed * 1000 + number)
            client = await run.client()
            while sent < count:
                sent += 1
                if before is None and sent > count / 5:
                    before = run.size()
                data = mutate(rng)
                mark = f"/v1/models/mark-{number}-{sent}"
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

        await asyncio.gather(*(visitor(number) for number in range(16)))
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


async def endings(count: int, seed: int) -> None:
    """Requests that end in every way: answered, refused, cut, silent, left while they wait, load, stream or upload."""
    limits = {"max_active_generations": 8, "queue_timeout_s": 0.05, "backend_timeout_s": 0.5}
    async with trial(limits) as run:
        rng = random.Random(seed)
        run.engine.script = lambda call: moody(call, rng)
        sent = 0
        before: tuple[int, float] | None = None

        async def visitor() -> None:
            nonlocal sent
            client = await run.client()
            while sent < count:
                sent += 1
                size = rng.choice((2, 2, 2, 2, 2, 30_000, 30_000, 200_000))
                client.request("POST", CHAT, b" " * size)
                answer = None
                with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                    async with asyncio.timeout(rng.choice((0.0, 0.003, 0.05, 1.0, 1.0))):
                        answer = await client.answer()
                if answer is None or answer.header("Connection") == "close" or b'"code":"engine_' in answer.body:
                    client.leave()
                    client = await run.client()
            client.leave()

        async def meddle() -> None:
            nonlocal before
            while sent < count:
                await asyncio.sleep(0.25)
                run.write_state(phase="switching", open=False, switch={"from": "a", "to": "b"})
                await asyncio.sleep(0.02)
                run.write_state(limits={**limits, "max_active_generations": rng.randrange(4, 12)})
                if before is None and sent > count / 5:
                    before = run.size()

        await asyncio.gather(meddle(), *(visitor() for _ in range(48)))
        status = await run.settled()
        door = status["frontdoor"]
        print(f"{sent} requests, outcomes: {door['outcomes']}, refused: {door['refused_requests']}")
        if run.engine.most_active > 12:
            raise Broken(f"the engine had {run.engine.most_active} requests at once, the limit was 11 at most")
        assert before is not None
        await flat(run, before)


TRIALS: dict[str, tuple[Callable[[int, int], Coroutine[Any, Any, None]], int]] = {
    "endings": (endings, 100_000),
    "kills": (kills, 200),
    "soak": (soak, 10_000),
    "fuzz": (fuzz, 200_000),
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0 when everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trial", choices=[*TRIALS, "all"])
    parser.add_argument("--count", type=int, help="how many kills, streams or requests")
    parser.add_argument("--seed", type=int, default=1, help="another one makes another trial (default: 1)")
    options = parser.parse_args(argv)
    for name in TRIALS if options.trial == "all" else [options.trial]:
        work, usual = TRIALS[name]
        started = time.monotonic()
        print(f"{name}:", flush=True)
        try:
            uvloop.run(work(options.count or usual, options.seed))
        except Broken as exc:
            print(f"  BROKEN: {exc}")
            return 1
        print(f"  held, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
