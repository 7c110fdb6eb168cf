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
from bodies import GENERATING
from trial import Broken, Trial, ended_well, flat, kind_of, trial
from trial_config import TrialConfig
from witness import OTHERS, Sent, Witness

# isort: split
from kit import LIMIT_S, Call, Client, moody
from mutation import SEEDS, framed, mutate, with_field


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
    limits = {"max_active_generations": 64, "queue_timeout_s": 5, "backend_timeout_s": 30}
    async with trial(limits, TrialConfig(seed)) as run:
        witness = Witness(run, stream)
        endings: dict[str, int] = {}
        stop = asyncio.Event()

        async def visitor(number: int) -> None:
            rng = random.Random(seed * 1000 + number)
            client = await run.client()
            while not stop.is_set():
                sent = witness.ask(client, rng)
                try:
                    answer = await asyncio.wait_for(client.answer(), LIMIT_S)
                except (asyncio.IncompleteReadError, ConnectionError) as exc:
                    raise Broken(f"a client's connection broke: {exc!r}") from exc
                ended_well(answer)
                witness.answered(sent, answer.status)
                witness.check()
                kind = kind_of(answer)
                endings[kind] = endings.get(kind, 0) + 1
                if answer.header("Connection") == "close" or (answer.status == 200 and kind != "whole"):
                    client.leave()
                    client = await run.client()
            client.leave()

        visitors = [asyncio.create_task(visitor(number)) for number in range(24)]
        rng = random.Random(seed)
        for number in range(count):
            await asyncio.sleep(rng.uniform(0.01, 0.08))
            await run.engine.kill()
            await asyncio.sleep(rng.uniform(0, 0.02))
            await run.engine.start()
            await run.note_warm((number + 1) / count)
            if number % 10 == 9:
                await run.turn_rules(limits=limits)
            failed = [task for task in visitors if task.done()]
            for task in failed:
                task.result()
        stop.set()
        await asyncio.gather(*visitors)
        await run.settled()
        witness.check()
        print(f"{count} kills, endings: {endings}; {witness.judged} bodies as they should be")
        await flat(run)


async def soak(count: int, seed: int) -> None:
    """Streams through restarts of the engine, reloads of the state, and clients that leave."""
    limits = {"max_active_generations": 12, "queue_timeout_s": 0.5, "backend_timeout_s": 30}
    async with trial(limits, TrialConfig(seed)) as run:
        witness = Witness(run, stream)
        done = 0
        rng = random.Random(seed)
        seen: dict[str, int] = {}

        async def visitor(number: int) -> None:
            nonlocal done
            rng = random.Random(seed * 1000 + number)
            client = await run.client()
            while done < count:
                sent = witness.ask(client, rng, size=rng.choice((0, 0, 200, 20_000)))
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.uniform(0, 0.05))
                    client.leave()
                    client = await run.client()
                    continue
                answer = await asyncio.wait_for(client.answer(), LIMIT_S)
                ended_well(answer)
                witness.answered(sent, answer.status)
                witness.check()
                done += answer.status == 200
                await run.note_warm(done / count)
                seen[kind_of(answer)] = seen.get(kind_of(answer), 0) + 1
                if answer.header("Connection") == "close" or (answer.status == 200 and b"[DONE]" not in answer.body):
                    client.leave()
                    client = await run.client()
                if answer.status == 503:
                    await asyncio.sleep(0.01)
            client.leave()

        async def meddle() -> None:
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
                    limits["max_active_generations"] = rng.randrange(4, 16)
                    limits["queue_timeout_s"] = rng.choice((0, 0.1, 0.5))
                    run.write_state(limits=limits)
                else:
                    await run.turn_rules(limits=limits)

        await asyncio.gather(meddle(), *(visitor(number) for number in range(24)))
        run.write_state()
        await run.settled()
        witness.check()
        print(f"{done} streams, answers: {seen}; {witness.judged} bodies as they should be")
        await flat(run)


def made_up(rng: random.Random, run: Trial, witness: Witness) -> tuple[bytes, Sent | None]:
    """A request: a proper one that is remembered, one that was changed, or one of those that are known to be odd."""
    what = rng.random()
    if what < 0.4:
        sent = witness.sent(rng, paths=(*GENERATING, *GENERATING, *OTHERS))
        return framed(rng, sent.path, sent.body, sent.fields), sent
    if what < 0.65:
        sent = witness.sent(rng, paths=(*GENERATING, *OTHERS))
        # nobody can say any more what is meant by it
        witness.forget(sent)
        return mutate(rng, framed(rng, sent.path, sent.body, sent.fields[1:])), None
    return mutate(rng, keyed(rng, run)), None


def keyed(rng: random.Random, run: Trial) -> bytes | None:
    """One of the seeds with a key; None for one as it is."""
    return with_field(rng.choice(SEEDS), run.key(rng)) if rng.random() < 0.6 else None


async def fuzz(count: int, seed: int) -> None:
    """Mutated requests, each followed by a proper one on the same connection: answered rightly or not at all."""
    marks = 0
    limits = {"max_active_generations": 16, "queue_timeout_s": 1, "backend_timeout_s": 30}
    config = TrialConfig(seed)
    # Much of what is sent is not complete, and is waited for. The half of it is as long as the frontdoor may be kept
    # from running before it notices, and gives everybody more time.
    patience_s = 2
    async with trial(limits, config, patience_s) as run:

        async def echo(call: Call) -> None:
            await call.json({"line": call.request.line})

        witness = Witness(run, echo)
        sent = 0
        seen: dict[str, int] = {}

        async def hear(client: Client, data: bytes) -> bytes:
            try:
                async with asyncio.timeout(LIMIT_S):
                    return await client.reader.read()
            except ConnectionError:
                return b""
            except TimeoutError as exc:
                raise Broken(f"neither answered nor closed: {data!r}") from exc
            finally:
                client.leave()

        async def ask(data: bytes, last: bytes, *, at_once: bool) -> tuple[bytes, bool]:
            """What comes back, and whether the frontdoor had no reason to give up on a client that was slow."""
            began = time.monotonic()
            raw, took = b"", 0.0
            with witness.unmarked(), contextlib.suppress(OSError):
                client = await run.client()
                client.send(data)
                if not at_once:
                    await asyncio.sleep(0)
                client.send(last)
                took = time.monotonic() - began
                raw = await hear(client, data)
            # how long a handshake takes is not only the client's matter
            unheard = run.config.tls and not raw and time.monotonic() - began >= patience_s
            return raw, took < patience_s / 2 and not unheard

        async def visitor(number: int) -> None:
            nonlocal sent, marks
            rng = random.Random(seed * 1000 + number)
            while sent < count:
                sent += 1
                await run.note_warm(sent / count)
                if sent % 2500 == 0:
                    await run.turn_rules(limits=limits)
                data, known = made_up(rng, run, witness)
                if run.config.tls and rng.random() < 0.02:
                    client = await run.stranger()
                    client.send(data)
                    if b"HTTP/" in await hear(client, data):
                        raise Broken(f"in clear text {data!r} was answered")
                    continue
                mark = f"/version?mark-{number}-{sent}"
                last = f"GET {mark} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
                last = with_field(last, run.key(rng))
                at_once = rng.random() >= 0.3
                in_time, until = False, time.monotonic() + LIMIT_S
                while not in_time:
                    raw, in_time = await ask(data, last, at_once=at_once)
                    status = check(data, raw, mark, seen)
                    if known is None:
                        break
                    if time.monotonic() > until:
                        raise Broken(f"however often it is sent, {data!r} is late")
                if known is not None:
                    # behind a body in chunks, and one that was not awaited, nothing more is served
                    goes_on = known.may and b"\r\nTransfer-Encoding: chunked\r\n" not in data
                    if goes_on and f'"line": "GET {mark} '.encode() not in raw:
                        raise Broken(f"after {data!r} the proper request was not answered: {raw[-600:]!r}")
                    witness.answered(known, status)
                witness.check()
                marks += f'"line": "GET {mark} '.encode() in raw

        await asyncio.gather(*(visitor(number) for number in range(16)))
        await run.settled()
        witness.check()
        print(
            f"{sent} requests, first answers: {dict(sorted(seen.items()))}; "
            f"{marks} proper ones after them were answered; {witness.judged} bodies as they should be"
        )
        await flat(run)


def check(data: bytes, raw: bytes, mark: str, seen: dict[str, int]) -> int:
    """What came back is a row of HTTP answers; the answer to the proper request, if any, is the last one.

    Returns the status of the first answer that is one, or 0.
    """
    first = raw.split(b"\r\n", 1)[0].decode("latin-1") if raw else "closed"
    kind = first[9:12] if first.startswith("HTTP/1.1 ") else first
    seen[kind] = seen.get(kind, 0) + 1
    if kind not in ("closed", "100") and not kind.isdigit():
        raise Broken(f"{data!r} was answered with {raw[:300]!r}")
    if b"HTTP/1.1 500" in raw and b"load_failed" not in raw:
        raise Broken(f"{data!r} broke something: {raw[:300]!r}")
    at = raw.find(mark.encode())
    if at >= 0 and b"HTTP/1.1 " in raw[at:]:
        raise Broken(f"after {data!r} something came behind the last answer: {raw[at:]!r}")
    if kind == "100":
        kind = raw.partition(b"\r\n\r\nHTTP/1.1 ")[2][:3].decode("latin-1")
    return int(kind) if kind.isdigit() else 0


async def endings(count: int, seed: int) -> None:
    """Requests that end in every way: answered, refused, cut, silent, left while they wait, load, stream or upload."""
    limits = {"max_active_generations": 8, "queue_timeout_s": 0.05, "backend_timeout_s": 0.5}
    async with trial(limits, TrialConfig(seed)) as run:
        moods = random.Random(seed)
        witness = Witness(run, lambda call: moody(call, moods))
        sent = 0

        async def visitor(number: int) -> None:
            nonlocal sent
            rng = random.Random(seed * 1000 + number)
            client = await run.client()
            while sent < count:
                sent += 1
                await run.note_warm(sent / count)
                asked = witness.ask(client, rng, size=rng.choice((0, 0, 0, 0, 0, 30_000, 30_000, 200_000)))
                answer = None
                with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                    async with asyncio.timeout(rng.choice((0.0, 0.003, 0.05, 1.0, 1.0))):
                        answer = await client.answer()
                if answer is not None:
                    witness.answered(asked, answer.status)
                else:
                    witness.forget(asked)
                witness.check()
                if answer is None or answer.header("Connection") == "close" or b'"code":"engine_' in answer.body:
                    client.leave()
                    client = await run.client()
            client.leave()

        async def meddle() -> None:
            rng = random.Random(seed)
            while sent < count:
                await asyncio.sleep(0.25)
                run.write_state(phase="switching", open=False, switch={"from": "a", "to": "b"})
                await asyncio.sleep(0.02)
                limits["max_active_generations"] = rng.randrange(4, 12)
                if rng.random() < 0.5:
                    await run.turn_rules(limits=limits)
                else:
                    run.write_state(limits=limits)

        await asyncio.gather(meddle(), *(visitor(number) for number in range(48)))
        status = await run.settled()
        witness.check()
        door = status["frontdoor"]
        print(
            f"{sent} requests, outcomes: {door['outcomes']}, refused: {door['refused_requests']}; "
            f"{witness.judged} bodies as they should be"
        )
        if run.engine.most_active > 12:
            raise Broken(f"the engine had {run.engine.most_active} requests at once, the limit was 11 at most")
        await flat(run)


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
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="another one makes another trial, with API keys and TLS or without (default: 1)",
    )
    options = parser.parse_args(argv)
    for name in TRIALS if options.trial == "all" else [options.trial]:
        work, usual = TRIALS[name]
        started = time.monotonic()
        print(f"{name}, {TrialConfig(options.seed)}:", flush=True)
        try:
            uvloop.run(work(options.count or usual, options.seed))
        except Broken as exc:
            print(f"  BROKEN: {exc}")
            return 1
        print(f"  held, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
