# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that fetches a model on the host, as a unit of systemd: it needs nothing but Python, and for the hub its
client.

``list SPEC`` writes what the source has; ``fetch JOB`` brings the files, and says in OUT/progress.json how far it is
and in OUT/result.json how it ended. SPEC and JOB are files of JSON. A token comes as systemd's credential ``token``,
or on the standard input, never otherwise.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .transports import CHUNK, SOURCES, FetchFault, Interrupted, Transport, Wrong, arrived

PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
MIRROR = "take a mirror (model_weights_hub_url, b70_mirror_url)"


def pause(over: threading.Event, seconds: float) -> None:
    """Wait so long, or until all is over."""
    if seconds > 0:
        over.wait(seconds)


def part_name(name: str, entry: list[Any], kind: str) -> str:
    """Return the name under which a file is put together; it covers the content, so another version is never continued.

    What came from other hosts has holes, so only they can continue it.
    """
    said = f"{name} {entry}{' peers' if kind == 'peers' else ''}"
    return f".{hashlib.sha256(said.encode()).hexdigest()[:32]}.part"


def digests(path: str, size: int) -> tuple[str, str]:
    """Return the SHA-256 and Git's SHA-1 (of a blob) of a file."""
    content, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with open(path, "rb") as stream:
        while chunk := stream.read(4 * CHUNK):
            content.update(chunk)
            blob.update(chunk)
    return content.hexdigest(), blob.hexdigest()


class WeightsDownload:
    """Brings the files of one model, several at once."""

    def __init__(self, job: Mapping[str, Any], source: Transport) -> None:
        self._job, self._source = job, source
        self._kind: str = job["kind"]
        self._files: dict[str, list[Any]] = job["files"]
        self._lock = threading.Lock()
        self._done: dict[str, tuple[str, int]] = {}
        self._waiting: dict[str, str] = {}
        self._over = threading.Event()
        # A server that limits requests counts those of all workers.
        self._asks_from = 0.0
        self._start = time.time()
        self._at_start = self._bytes()

    def run(self) -> dict[str, tuple[str, int]]:
        """Return SHA-256 and time of every file as it was read back; raises FetchFault for the first that fails."""
        reporter = threading.Thread(target=self._report, daemon=True)
        reporter.start()
        try:
            with ThreadPoolExecutor(self._job["workers"]) as pool:
                tasks = [pool.submit(self._bring, name, entry) for name, entry in self._files.items()]
                try:
                    for task in tasks:
                        task.result()
                except BaseException:
                    self._over.set()
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
        finally:
            self._over.set()
            reporter.join()
        return self._done

    def _bring(self, name: str, entry: list[Any]) -> None:
        target = os.path.join(self._job["folder"], name)
        part = os.path.join(self._job["folder"], part_name(name, entry, self._kind))
        wrong = failed = 0
        while not self._over.is_set():
            pause(self._over, self._asks_from - time.monotonic())
            if self._over.is_set():
                return
            before = self._arrived(part)
            if before > entry[0]:
                remove(part)
                before = 0
            try:
                self._fetch(name, entry, part)
                content = check(name, entry, part)
                self._source.right(name, part)
                read = (content, os.stat(part).st_mtime_ns)
                os.rename(part, target)
                remove(part)
                self._done[name] = read
                self._waiting.pop(name, None)
                return
            except Wrong as error:
                wrong += 1
                again = self._source.another(name, part, wrong, str(error))
                remove(part)
                if not again:
                    raise FetchFault(
                        f"{error}, {wrong} times. It was thrown away, nothing uses it: what {self._source.where} has "
                        "is not what it says; try again later, or take another source"
                    ) from error
            except Interrupted as error:
                grown = self._arrived(part) > before
                failed = 1 if grown else failed + 1
                if failed >= self._job["attempts"]:
                    raise FetchFault(self._given_up(name, error)) from error
                told = f" in {error.after_s:.0f} s, as it asks for" if error.after_s else ""
                self._waiting[name] = f"{error}, attempt {failed + 1} of {self._job['attempts']}{told}"
                self._asks_from = max(self._asks_from, time.monotonic() + error.after_s)
                pause(self._over, min(MAX_PAUSE_S, PAUSE_S * 2 ** (failed - 1)))
            except OSError as error:
                advice = ": remove models that are not used" if error.errno == errno.ENOSPC else ""
                raise FetchFault(f"{name}: {error.strerror or error}{advice}") from error

    def _fetch(self, name: str, entry: list[Any], part: str) -> None:
        """Bring what is missing of one file; more than was promised is as wrong as another content."""
        try:
            self._source.fetch(name, entry, part)
        except Interrupted:
            if os.path.exists(part) and os.path.getsize(part) > entry[0]:
                raise Wrong(f"{name} has more than {entry[0]} bytes") from None
            raise

    def _given_up(self, name: str, error: Interrupted) -> str:
        have, total = self._bytes(), sum(entry[0] for entry in self._files.values())
        return (
            f"{error}: not one byte of {name} came in {self._job['attempts']} attempts of up to "
            f"{self._job['stall_s']:g} s. {have / 1e9:.2f} of {total / 1e9:.2f} GB are kept; "
            + (error.advice or f"look at the way to {self._source.where}, then run again to go on there, or {MIRROR}")
        )

    def _arrived(self, part: str) -> int:
        return arrived(part, self._kind) if os.path.exists(part) else 0

    def _bytes(self) -> int:
        """Return how many bytes of the model have arrived."""
        total: int = sum(self._files[name][0] for name in list(self._done))
        with os.scandir(self._job["folder"]) as entries:
            for entry in entries:
                if entry.name.endswith(".part"):
                    try:
                        total += arrived(entry.path, self._kind)
                    except FileNotFoundError:
                        continue  # became a file meanwhile
        return total

    def _report(self) -> None:
        while True:
            last = self._over.is_set()
            progress = {
                "files": len(self._files),
                "files_done": len(self._done),
                "done": self._bytes(),
                "total": sum(entry[0] for entry in self._files.values()),
                "at_start": self._at_start,
                "start": self._start,
                "time": time.time(),
                "waiting": next(iter(list(self._waiting.values())), ""),
            }
            write(os.path.join(self._job["out"], "progress.json"), progress)
            if last:
                return
            self._over.wait(PAUSE_S)


def remove(part: str) -> None:
    """Remove a file that was begun, and what aria2 notes beside it."""
    for path in (part, f"{part}.aria2"):
        if os.path.exists(path):
            os.unlink(path)


def check(name: str, entry: list[Any], path: str) -> str:
    """Read back what came and return its SHA-256; raises Interrupted where it is too short, Wrong where it differs."""
    size = os.path.getsize(path)
    if size < entry[0]:
        raise Interrupted(f"the connection for {name} was cut off")
    if size > entry[0]:
        raise Wrong(f"{name} has {size} bytes instead of {entry[0]}")
    content, blob = digests(path, size)
    for said, want, kind in ((content, entry[1], "sha256"), (blob, None if entry[1] else entry[2], "Git's sha1")):
        if want is not None and said != want:
            raise Wrong(f"{name} came with {kind} {said[:16]}... instead of {want[:16]}...")
    return content


def write(path: str, data: Mapping[str, Any]) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        json.dump(data, stream)
    os.replace(f"{path}.new", path)


def read_token(spec: Mapping[str, Any]) -> str:
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    path = os.path.join(folder, "token")
    if folder and os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    return sys.stdin.readline().strip() if spec.get("token_on_stdin") else ""


def listing(source: Any, attempts: int) -> dict[str, Any]:
    """Return what the source has, or ``wait_s`` and why: a long wait for which the source asks is the caller's."""
    for attempt in range(1, attempts + 1):
        try:
            found: dict[str, Any] = source.contents()
            return found
        except Interrupted as error:
            if error.after_s > MAX_PAUSE_S:
                return {"wait_s": error.after_s, "error": str(error), "advice": error.advice or MIRROR}
            if attempt == attempts:
                advice = error.advice or f"look at the way there, or {MIRROR}"
                raise FetchFault(f"{error}, {attempts} times: {advice}") from error
            pause(threading.Event(), max(error.after_s, min(MAX_PAUSE_S, PAUSE_S * 2 ** (attempt - 1))))
    raise FetchFault("nothing was tried: attempts must be 1 or more")


def main(words: Sequence[str]) -> int:
    with open(words[1], encoding="utf-8") as stream:
        spec = json.load(stream)
    os.umask(0o022)
    answer: dict[str, Any]
    source: Transport | None = None
    asked = words[0] == "list"
    try:
        source = SOURCES[spec["kind"]](spec, read_token(spec))
        answer = listing(source, spec["attempts"]) if asked else {"digests": WeightsDownload(spec, source).run()}
    except FetchFault as error:
        answer = {"error": str(error)}
    if source is not None and source.wrong:
        answer["wrong"] = source.wrong
    if asked:
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        write(os.path.join(spec["out"], "result.json"), answer)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
