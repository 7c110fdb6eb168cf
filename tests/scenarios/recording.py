# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that never stop asking, a witness of every version of the state file, and the check of both.

A recording begins when the host, the witness and the frontdoor have one state: what a test does to a host before that,
such as taking its state file away, is told to nobody who is recorded.

All times are this machine's real-time clock in seconds, which is the host's as well.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from machine import LIMIT_S, wait_for
from scenarios.rig import STATE_FILE, Rig

QUESTION = "Who are you?"
# A switch has the time until the frontdoor has read a new state file, which takes a busy machine a moment.
READ_S = 10.0  # by then the frontdoor has read a new state, on a machine that has other things to do
GIVE_UP_S = 60.0  # when a client gives up
NO_FILE = {"open": False, "verified": False, "phase": "stopped", "reason": "the state file"}
# What the frontdoor says by itself: systemd shows no process, or another one than the verified; or it is being stopped.
GONE = ("does not run any more", "has not been verified since", "the frontdoor is stopping")


@dataclass(frozen=True)
class Answer:
    """One answer. began: when it was asked for; first, ended: when its first token came (0.0: none) and it was over.

    status 0: no HTTP answer, and error says why. stamp: who gave the tokens, if it was a simulated engine (see there).
    """

    stream: bool
    began: float
    first: float
    ended: float
    status: int
    text: str = ""
    stamp: str = ""
    error: str = ""
    retry_after: str = ""
    whole: bool = False  # a stream came to its [DONE]


@dataclass(frozen=True)
class Version:
    """One version of the state file; at: when it was written, or was last seen before it was gone."""

    at: float
    state: dict[str, Any]

    def lets_in(self, invocation: str) -> bool:
        """Is this process, the only one or a replica, open for clients?"""
        rows = self.state.get("replicas") or [self.state]
        return any(row["open"] and (row.get("engine") or {}).get("invocation_id") == invocation for row in rows)


@dataclass
class Recording:
    """What clients and witness wrote down between two moments."""

    answers: list[Answer] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    began: float = 0.0

    def check(self, *, canary: int = 12) -> None:
        """Assert that no client of a simulated engine got what it must not get.

        :param canary: how many questions an engine must have answered, all rightly, before a client is let in.
        """
        for answer in self.answers:
            if answer.stamp:
                self._proven(answer, canary)
            if answer.status == 503:
                self._refused(answer)
            else:
                assert answer.status in (0, 200, 502, 504), answer

    def _proven(self, answer: Answer, canary: int) -> None:
        """Its engine said itself that it had passed, and the host had said so before the first token came."""
        name, invocation, asked, wrong = answer.stamp.split(" ")
        assert int(asked) >= canary, f"a token of an engine that was not verified: {answer}"
        assert int(wrong) == 0, f"a token of an engine that had answered wrongly: {answer}"
        opened = [at for at in self.versions if at.state["open"] and at.lets_in(invocation)]
        assert opened, f"a token of an engine that was never let in: {answer}"
        assert opened[0].at <= answer.first, f"a token before the engine was let in at {opened[0].at}: {answer}"
        assert all(version.state["verified"] for version in opened), opened
        if answer.status == 200 and answer.whole:
            assert answer.text == f"I am {name}.", answer

    def check_right(self, text: str) -> None:
        """Assert that each client of a real engine got this text, from a verified one, or was refused as documented."""
        for answer in self.answers:
            if answer.status == 503:
                self._refused(answer)
                continue
            assert (answer.status, answer.text.strip(), answer.whole) == (200, text, True), answer
            opened = [at.state for at in self.during(answer.began - READ_S, answer.first) if at.state["open"]]
            assert opened, f"a token while no engine was let in: {answer}"
            assert all(state["verified"] for state in opened), (answer, opened)

    def _refused(self, answer: Answer) -> None:
        """A refusal says when to come back and why, as the state of that moment had it."""
        assert answer.retry_after.isdigit(), answer
        assert int(answer.retry_after) > 0, answer
        if any(words in answer.error for words in GONE):
            return
        closed = [at.state for at in self.during(answer.began - READ_S, answer.ended) if not at.state["open"]]
        assert closed, f"refused while the slot was open: {answer}"
        assert any(tells(answer.error, state) for state in closed), (answer, closed)

    def states(self) -> list[dict[str, Any]]:
        """The states in force since the recording began. `versions` begins earlier, as answers may."""
        return [version.state for version in self.during(self.began, time.time())]

    def during(self, since: float, until: float) -> list[Version]:
        """The versions that were in force between two moments."""
        before = [version for version in self.versions if version.at <= since][-1:]
        return before + [version for version in self.versions if since < version.at <= until]

    def names(self) -> set[str]:
        """Whose tokens were seen."""
        return {answer.stamp.split(" ")[0] for answer in self.answers if answer.stamp}

    def refusals(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status == 503]


def tells(error: str, state: dict[str, Any]) -> bool:
    """Does a refusal say what this closed state says?"""
    switch = state.get("switch") or {}
    words = [word for word in (switch.get("to"), state.get("reason")) if word]
    return any(str(word)[:60] in error for word in words) or not words


class Watch:
    """Two clients (one streams) and the witness, in threads of their own. The clients ask while something is recorded:
    other tests have the host for themselves."""

    def __init__(self, rig: Rig, pause_s: float = 0.08) -> None:
        self.rig, self.pause_s = rig, pause_s
        self._change = threading.Condition()
        self._now = Recording()
        self._asked, self._answered = [0, 0], [0, 0]  # how often, by each client
        self._enough, self._recorded = threading.Event(), threading.Event()
        jobs = (self._witness, lambda: self._client(0, stream=False), lambda: self._client(1, stream=True))
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def begin(self) -> Recording:
        """Return a recording of what is asked from now on; the state in force is part of it. Each client has asked."""
        wait_for(self._one_state, "host, witness and frontdoor have one state")
        with self._change:
            now = time.time()
            self._now = Recording(versions=self._now.during(now - READ_S, now), began=now)
            self._recorded.set()
            self._wait([asked + 1 for asked in self._asked])
            return self._now

    def end(self) -> Recording:
        """Return the recording, with the answers to what was asked until now."""
        self._recorded.clear()
        with self._change:
            self._wait(list(self._asked))
            ended, self._now = self._now, Recording(versions=self._now.versions[-1:])
            return ended

    def _one_state(self) -> bool:
        """Have witness and frontdoor seen what the host's state file says, or that there is none?"""
        with self._change:
            seen = [version.state.get("sequence", 0) for version in self._now.versions[-1:]]
        try:
            applied = status(self.rig)["frontdoor"]["state_sequence"]
        except OSError:  # it starts
            return False
        return seen == [self.rig.state().get("sequence", 0)] == [applied]

    def _wait(self, wanted: list[int]) -> None:
        """Wait until each client has had so many answers."""
        answered = self._change.wait_for(
            lambda: all(had >= want for had, want in zip(self._answered, wanted, strict=True)), LIMIT_S
        )
        assert answered, f"{self._answered} answers came of {wanted}"

    def _client(self, number: int, *, stream: bool) -> None:
        while not self._enough.wait(self.pause_s):
            with self._change:
                if not self._recorded.is_set():
                    continue
                recording = self._now
                self._asked[number] += 1
            answer = ask(self.rig.address, stream=stream)
            with self._change:
                # an answer belongs to the test in which it was asked for
                recording.answers.append(answer)
                self._answered[number] += 1
                self._change.notify_all()

    def _witness(self) -> None:
        seen: tuple[int, int] = (-1, 0)
        now = time.time()
        while not self._enough.wait(0.006):
            before, now = now, time.time()
            try:
                # Something else may have its place, and must not hold this up.
                with open(
                    self.rig.root / STATE_FILE, opener=lambda path, how: os.open(path, how | os.O_NONBLOCK)
                ) as file:
                    about = os.fstat(file.fileno())
                    if (about.st_ino, about.st_mtime_ns) == seen:
                        continue
                    seen = about.st_ino, about.st_mtime_ns
                    state = json.load(file)
            except ValueError:
                continue
            except OSError:
                about, state = None, NO_FILE
                if seen == (0, 0):
                    continue
                seen = 0, 0
            with self._change:
                # the frontdoor may have missed it from the last look on
                self._now.versions.append(Version(about.st_mtime_ns / 1e9 if about else before, state))


def status(rig: Rig) -> dict[str, Any]:
    """The frontdoor's /status, whatever its HTTP status."""
    try:
        with urllib.request.urlopen(f"{rig.url}/status", timeout=LIMIT_S) as reply:
            text = reply.read()
    except urllib.error.HTTPError as error:
        text = error.read()
    found: dict[str, Any] = json.loads(text)
    return found


def ask(address: str, *, stream: bool, limit_s: float = GIVE_UP_S, port: int = 8000, **more: Any) -> Answer:
    """Ask the frontdoor, or the load balancer at another port, one question and write down what comes.

    more: further members of the request.
    """
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16, "temperature": 0, "stream": stream}
    body |= more
    began = time.time()
    connection = http.client.HTTPConnection(address, port, timeout=limit_s)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            error = response.read().decode()
            retry_after = response.headers.get("Retry-After", "")
            return Answer(stream, began, 0.0, time.time(), response.status, error=error, retry_after=retry_after)
        if stream:
            return _streamed(response, began)
        text = response.read()
        first = time.time()
        data = json.loads(text)
        answer = str(data["choices"][0]["message"]["content"])
        return Answer(False, began, first, first, 200, answer, stamp_of(data), whole=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(stream, began, 0.0, time.time(), 0, error=repr(error))
    finally:
        connection.close()


def stamp_of(data: dict[str, Any]) -> str:
    """Return what a simulated engine says of itself; empty where it was another one."""
    said = str(data.get("system_fingerprint") or "")
    return said if len(said.split(" ")) == 4 else ""


def _streamed(response: http.client.HTTPResponse, began: float) -> Answer:
    first, text, stamp, error, whole = 0.0, "", "", "", False
    for line in _lines(response):
        if not line.startswith("data: "):
            continue
        now = time.time()
        if line == "data: [DONE]":
            whole = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            error = str(event["error"])
            continue
        for choice in event["choices"]:
            part = choice.get("delta", {}).get("content") or ""
            first = first or (now if part else 0.0)
            text += part
        stamp = stamp_of(event) or stamp
    return Answer(True, began, first or time.time(), time.time(), 200, text, stamp, error, whole=whole and not error)


def _lines(response: http.client.HTTPResponse) -> Iterator[str]:
    while line := response.readline():
        yield line.decode().rstrip("\r\n")
