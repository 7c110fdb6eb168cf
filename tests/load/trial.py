# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor as a process of its own, with an engine here, and what must be true when a trial is over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from guise import ADMIN_KEY, KEYS, Guise, Rules

PACKAGE = Path(__file__).resolve().parents[2] / "roles" / "frontdoor" / "files" / "frontdoor"
sys.path[:0] = [str(PACKAGE / "src"), str(PACKAGE / "tests")]

from kit import LIMIT_S, Answer, Client, Engine, serving_state, start_unit  # noqa: E402


class Broken(AssertionError):
    """The frontdoor did what it must not do."""


class Trial:
    """A running frontdoor, its engine, and what was measured."""

    def __init__(
        self, folder: Path, port: int, engine: Engine, process: asyncio.subprocess.Process, guise: Guise
    ) -> None:
        self.guise = guise
        self._trust = guise.trust(folder)
        # how often the rules were changed
        self._turn = 0
        #: the last turn that the frontdoor is known to have applied: nothing that is sent now meets older rules
        self.applied = 0
        self.folder = folder
        self.port = port
        self.engine = engine
        self.process = process
        self.sequence = 0
        self.idle = (0, 0.0)

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20, ssl=self._trust))

    async def stranger(self) -> Client:
        """A client that does not know of TLS."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20))

    def key(self, rng: random.Random) -> str:
        """A line with one of the keys; where none is asked for, most often no line."""
        if not self.guise.keys and rng.random() < 0.9:
            return ""
        key = rng.choice([*KEYS.values()])
        return rng.choice((f"Authorization: Bearer {key}", f"x-api-key: {key}", f"authorization: bearer {key}"))

    def wrong_key(self, rng: random.Random) -> str:
        """A line that opens nothing but the administration, or no line."""
        key = rng.choice([*KEYS.values()])
        wrong = (f"Authorization: Bearer {key}x", f"Authorization: Basic {key}", f"Authorization: Bearer {ADMIN_KEY}")
        return rng.choice(("", *wrong, "Authorization: Bearer", f"x-api-key: {key[:-1]}"))

    async def turn_rules(self, **changes: Any) -> None:
        """Have the next rules of the trial apply; done when the frontdoor says that it applied them."""
        self._turn += 1
        turn = self._turn
        self.write_state(**changes)
        sequence = self.sequence
        try:
            async with asyncio.timeout(LIMIT_S):
                while (await self.status())["frontdoor"]["state_sequence"] < sequence:
                    await asyncio.sleep(0.02)
        except TimeoutError as exc:
            raise Broken(f"the frontdoor does not say that it applied state {sequence}") from exc
        self.applied = max(self.applied, turn)

    def rules_since(self, turn: int) -> list[Rules]:
        """The rules of a turn and all later ones, the newest first."""
        return [self.guise.rules(number) for number in range(self._turn, turn - 1, -1)]

    def write_state(self, **changes: Any) -> None:
        """Replace the state file as the switch does."""
        self.sequence += 1
        state = {
            **serving_state(self.engine.url),
            **self.guise.rules(self._turn).state(),
            "sequence": self.sequence,
            **changes,
        }
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
async def trial(limits: dict[str, Any], guise: Guise) -> AsyncIterator[Trial]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = Engine()
        await engine.start()
        start_unit(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = folder / "frontdoor.toml"
        config.write_text(
            f'[listen]\nhost = "127.0.0.1"\nport = {port}\n'
            f'[slot]\nstate_file = "{folder}/state.json"\nunits_dir = "{folder}"\n'
            f'[backend]\nurl = "{engine.url}"\n'
            # what counts for a handshake too is longer than a busy machine keeps one of us from running
            f"[limits]\nheader_timeout_s = {2 if guise.tls else 0.5}\n"
            "body_idle_timeout_s = 0.5\nkeepalive_timeout_s = 2\n"
            "max_body_bytes = 100000\n"
            "[admission]\nmax_queued = 32\n" + guise.sections(folder)
        )
        log = open(folder / "events.jsonl", "wb")  # noqa: SIM115
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", "-m", "frontdoor", "--config", str(config)),
            env={**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONMALLOC": "malloc"},
            stdout=log,
            stderr=asyncio.subprocess.PIPE,
        )
        run = Trial(folder, port, engine, process, guise)
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
    if answer.status == 503 and int(answer.header("Retry-After") or 0) < 1:
        raise Broken("a client is told to come back, and not when")
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
