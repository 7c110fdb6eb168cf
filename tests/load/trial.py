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
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from trial_config import ADMIN_KEY, KEYS, Rules, TrialConfig

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor"
MEASURED = Path(__file__).with_name("measured.py")
sys.path[:0] = [str(PACKAGE / "tests"), str(ROOT / "tests")]

from compiled import source  # noqa: E402

SOURCE = source()
sys.path[:0] = [str(SOURCE)]

from kit import LIMIT_S, Answer, Client, Engine, changed_state, free_port, start_unit  # noqa: E402


class Broken(AssertionError):
    """The frontdoor did what it must not do."""


class Trial:
    """A running frontdoor, its engine, and what was measured."""

    def __init__(
        self,
        folder: Path,
        port: int,
        engine: Engine,
        process: asyncio.subprocess.Process,
        trimmed: int,
        config: TrialConfig,
    ) -> None:
        """`trimmed` is the descriptor where a byte comes when the frontdoor has given back what it does not use."""
        self.config = config
        self._trust = config.trust(folder)
        # how often the rules were changed
        self._turn = 0
        #: the last turn that the frontdoor is known to have applied: nothing that is sent now meets older rules
        self.applied = 0
        self.folder = folder
        self.port = port
        self.engine = engine
        self.process = process
        self.sequence = 0
        self._trimmed = trimmed
        self.idle = (0, 0.0)
        #: after a part of the trial
        self.warm: tuple[int, float] | None = None

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20, ssl=self._trust))

    async def stranger(self) -> Client:
        """A client that does not know of TLS."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20))

    def key(self, rng: random.Random) -> str:
        """A line with one of the keys; where none is asked for, most often no line."""
        if not self.config.keys and rng.random() < 0.9:
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
        await self._until(lambda door: door["state_sequence"] >= sequence, f"state {sequence} is not applied")
        self.applied = max(self.applied, turn)

    def rules_since(self, turn: int) -> list[Rules]:
        """The rules of a turn and all later ones, the newest first."""
        return [self.config.rules(number) for number in range(self._turn, turn - 1, -1)]

    def write_state(self, **changes: Any) -> None:
        """Replace the state file as the switch does."""
        self.sequence += 1
        rules = self.config.rules(self._turn).state()
        state = changed_state(self.engine.url, {**rules, "sequence": self.sequence, **changes})
        new = self.folder / "state.new"
        new.write_text(json.dumps(state))
        new.rename(self.folder / "state.json")

    async def status(self) -> dict[str, Any]:
        client = await self.client()
        answer = await client.ask("GET", "/status")
        client.leave()
        found: dict[str, Any] = answer.json
        return found

    async def size(self) -> tuple[int, float]:
        """Open descriptors and resident memory in MB, without what is kept for later use."""
        pid = self.process.pid
        self.process.send_signal(signal.SIGUSR1)
        if not await asyncio.to_thread(os.read, self._trimmed, 1):
            raise Broken("the frontdoor ended")
        text = Path(f"/proc/{pid}/status").read_text()
        return len(os.listdir(f"/proc/{pid}/fd")), int(text.split("VmRSS:")[1].split()[0]) / 1024

    async def note_warm(self, done: float) -> None:
        """Note once how large the frontdoor is, when a fifth of the trial is done."""
        if self.warm is None and done >= 0.2:
            # nobody else does meanwhile
            self.warm = (0, 0.0)
            self.warm = await self.size()

    async def _until(self, met: Callable[[dict[str, Any]], object], otherwise: str) -> dict[str, Any]:
        """The status as soon as its part on the frontdoor is as it must become; raise Broken when it never is."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(LIMIT_S):
                while not (status and met(status["frontdoor"])):
                    if self.process.returncode is not None:
                        raise Broken(f"{otherwise}: the frontdoor ended with {self.process.returncode}")
                    await asyncio.sleep(0.02)
                    # it may not listen yet, and who is kept from running for long is sent away
                    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                        status = await self.status()
        except TimeoutError as exc:
            raise Broken(f"{otherwise}: {status.get('frontdoor')}") from exc
        return status

    async def started(self) -> None:
        """Wait until the frontdoor answers."""
        await self._until(lambda _door: True, "it does not answer")

    async def settled(self) -> dict[str, Any]:
        """Wait until nothing is under way; raise Broken when something stays."""
        held = ("active_generations", "queued_generations", "active_requests", "buffered_bytes")
        return await self._until(
            lambda door: not any(door[name] for name in held) and door["client_connections"] <= 1,
            "something is still held",
        )


@contextlib.asynccontextmanager
async def trial(limits: dict[str, Any], config: TrialConfig, patience_s: float = LIMIT_S) -> AsyncIterator[Trial]:
    """Begin a trial; `patience_s` is for how long the frontdoor waits for what a client does not send."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = Engine()
        await engine.start()
        start_unit(folder)
        port = free_port()
        file = folder / "frontdoor.toml"
        file.write_text(
            f'[listen]\nhost = "127.0.0.1"\nport = {port}\n'
            f'[slot]\nstate_file = "{folder}/state.json"\nunits_dir = "{folder}"\n'
            f'profiles_dir = "{folder}/profiles"\n'
            f'[backend]\nurl = "{engine.url}"\n'
            f"[limits]\nheader_timeout_s = {patience_s}\n"
            f"body_idle_timeout_s = {patience_s}\nkeepalive_timeout_s = {patience_s}\n"
            "max_body_bytes = 100000\n"
            "[admission]\nmax_queued = 32\nqueue_keepalive_s = 0.05\n" + config.sections(folder)
        )
        log = open(folder / "events.jsonl", "wb")  # noqa: SIM115
        trimmed, told = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", str(MEASURED), str(told), "--config", str(file)),
            pass_fds=(told,),
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONMALLOC": "malloc"},
            stdout=log,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(told)
        run = Trial(folder, port, engine, process, trimmed, config)
        run.write_state(limits=limits)
        try:
            await run.started()
            run.idle = await run.size()
            yield run
            await run.settled()
        finally:
            await engine.kill()
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
            log.close()
            os.close(trimmed)
        if process.returncode != 0 or errors:
            raise Broken(f"the frontdoor ended with {process.returncode}: {errors.decode()[-2000:]}")


async def flat(run: Trial) -> None:
    """Complain when descriptors stay open, or memory grew since the frontdoor was warm."""
    assert run.warm is not None
    before = run.warm[1]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_S):
            # idle connections to the engine are kept for some seconds
            while (await run.size())[0] > run.idle[0] + 2:
                await asyncio.sleep(0.1)
    descriptors, memory = await run.size()
    print(f"  descriptors {run.idle[0]} -> {descriptors}, memory {before:.1f} -> {memory:.1f} MB")
    if descriptors > run.idle[0] + 2:
        raise Broken(f"descriptors grew from {run.idle[0]} to {descriptors}")
    if memory > before * 1.15 + 4:
        raise Broken(f"memory grew from {before:.1f} to {memory:.1f} MB")


def ended_well(answer: Answer) -> None:
    """An answer is complete, or a stream that says what went wrong, or one clean error."""
    if answer.status == 503 and int(answer.header("Retry-After") or 0) < 1:
        raise Broken("a client is told to come back, and not when")
    if answer.status == 200 and answer.chunks is not None:
        body = answer.body
        if not body.endswith(b"\n\n") or (b"[DONE]" not in body and b'"error":{' not in body):
            raise Broken(f"a stream ended without a word: {body[-200:]!r}")
    elif answer.status != 200 and not answer.json["error"]["message"]:
        raise Broken(f"an error without a message: {answer.body!r}")


def kind_of(answer: Answer) -> str:
    """How an answer ended, for the report."""
    if answer.status != 200:
        return f"{answer.status} {answer.json['error']['code']}"
    waited = ", after words of waiting" if answer.body.startswith((b": waiting", b"event: ping")) else ""
    return ("whole" if b"[DONE]" in answer.body else "ended with an error event") + waited
