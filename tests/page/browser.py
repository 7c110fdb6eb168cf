# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium, driven over the DevTools protocol on a pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

LIMIT_S = 120.0  # what ends a test that hangs, and nothing that a slow machine may miss
START_LIMIT_S = 180.0  # hundreds of MB are read when nobody has used it for a while
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """The Chromium of this machine; raise RuntimeError that says how to get one."""
    named = os.environ.get("B70_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("no Chromium is here: sh tests/tools/browser.sh, or name one: B70_CHROMIUM=/path/to/chrome")
    return found


class ProtocolError(RuntimeError):
    """The browser did not do what it was told."""


class Browser:
    """One page. `complaints` are what the console would show: errors, refused assets, exceptions."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="b70-page-")
        self._number = 0
        self._received = b""
        self.complaints: list[str] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def place() -> None:
            # where --remote-debugging-pipe expects them; away first, should they stand in each other's place
            reads, writes = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
        quiet = ["--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync"]
        where = ["--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [program(), *flags, *quiet, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self._call("Target.getTargets", limit_s=START_LIMIT_S)["targetInfos"]
        target = next(item["targetId"] for item in targets if item["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def _call(self, method: str, session: str | None = None, limit_s: float = LIMIT_S, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + limit_s
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ProtocolError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _out, _bad = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{program()} gave no answer in time")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError(f"{program()} ended with {self._process.wait(LIMIT_S)}")
            self._received += data
        line, _zero, self._received = self._received.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def do(self, method: str, **params: Any) -> Any:
        """One command of the protocol for the page."""
        return self._call(method, self._session, **params)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be a screen of this size in CSS pixels, with this taste."""
        phone = width < 600
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there."""
        self.do("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Value of an expression in the page."""
        done = self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, script: str, holds: Callable[[Any], bool] = bool) -> Any:
        """Wait until the value of an expression is as wanted, and return it."""
        deadline = time.monotonic() + LIMIT_S
        value: Any = "unknown"
        while True:
            # between two pages there is none to ask
            with contextlib.suppress(ProtocolError):
                value = self.run(script)
                if holds(value):
                    return value
            assert time.monotonic() < deadline, f"{script} stays {value!r}"
            time.sleep(0.05)

    def shoot(self, file: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG; `whole`: all of the page, not only what fits the screen."""
        data = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))
