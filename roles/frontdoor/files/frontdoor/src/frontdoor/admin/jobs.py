# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the administration waits for: the privileged helper, and those who wait for it. Every wait ends in an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson

from frontdoor.admin.models import Running

# what stands for an exit code where there is none: no helper, and no time to wait for it
NO_HELPER, STOPPING = 1, -1
_MAX_ANSWER = 4 * 1024 * 1024

Failed = Callable[[Exception], None]


async def question(path: str, line: bytes, limit_s: float) -> dict[str, Any]:
    """The helper's answer, or one in its place that says why there is none."""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(line)
                # it writes as it likes, and ends when it has said everything
                said = b""
                while len(said) <= _MAX_ANSWER and (more := await reader.read(64 * 1024)):
                    said += more
            finally:
                writer.close()
        if len(said) > _MAX_ANSWER:
            return {"exit": NO_HELPER, "message": f"{path} said more than {_MAX_ANSWER >> 20} MiB"}
        answer = orjson.loads(said)
        return {**answer, "exit": int(answer["exit"]), "message": str(answer["message"])}
    except TimeoutError:
        message = f"no word from {path} within {limit_s:g} s; it may still be at work"
    except OSError as exc:
        message = f"{path} cannot be asked: {exc.strerror or exc}; is its socket unit active?"
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
        message = f"{path} gave no answer; read: journalctl -u 'b70-slot-admin@*'"
    return {"exit": NO_HELPER, "message": message}


class Job:
    """A load or unload under way: one question to the helper, asked once, whoever waits for its end."""

    def __init__(self, running: Running, asked: Coroutine[Any, Any, dict[str, Any]], failed: Failed) -> None:
        """`failed` is told what went wrong in here."""
        self.running = running
        self._failed = failed
        self._waiting: list[Callable[[int, str], None]] = []
        self.task: asyncio.Task[dict[str, Any]] = asyncio.ensure_future(asked)
        self.task.add_done_callback(self._ended)

    def then(self, done: Callable[[int, str], None]) -> None:
        """Have `done` called with the exit code and the message."""
        self._waiting.append(done)

    def forget(self, done: Callable[[int, str], None]) -> None:
        """Nobody waits there any more."""
        if done in self._waiting:
            self._waiting.remove(done)

    def abandon(self) -> None:
        """Wait for nothing any more, and tell who does; what the helper has begun goes on."""
        self.task.cancel()
        self._tell(STOPPING, "the frontdoor is stopping; what was begun goes on, and can be seen when it is back")

    def _ended(self, task: asyncio.Task[dict[str, Any]]) -> None:
        if task.cancelled():
            return
        exc = task.exception()
        if exc is None:
            answer = task.result()
            self._tell(answer["exit"], answer["message"])
        else:
            assert isinstance(exc, Exception)
            self._failed(exc)
            self._tell(NO_HELPER, "the helper could not be asked; the journal of the frontdoor says why")

    def _tell(self, code: int, message: str) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            try:
                done(code, message)
            except Exception as exc:
                # the next one waits as well
                self._failed(exc)


class Wait:
    """A client's request that is answered when a job ends."""

    def __init__(self, job: Job, answer: Callable[[int, str], None], failed: Failed) -> None:
        """`answer` answers the client, or raises before it has; then `failed` does."""
        self._job = job
        self._answer = answer
        self._failed = failed

    def start(self) -> None:
        """Begin."""
        self._job.then(self._ended)

    def client_gone(self, outcome: str = "") -> None:
        """The job goes on."""
        self._job.forget(self._ended)

    def pause(self) -> None:
        """Nothing is under way to the client."""

    def resume(self) -> None:
        """Nothing was paused."""

    def _ended(self, code: int, message: str) -> None:
        try:
            self._answer(code, message)
        except Exception as exc:
            self._failed(exc)


class Question:
    """A client's request that is answered when the helper has answered."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, None]], failed: Failed) -> None:
        """`ask` answers the client, or raises before it has; then `failed` does."""
        self._ask = ask
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._ask()
        except Exception as exc:
            self._failed(exc)

    def client_gone(self, outcome: str = "") -> None:
        """Nobody wants to know any more."""
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Nothing is under way to the client."""

    def resume(self) -> None:
        """Nothing was paused."""
